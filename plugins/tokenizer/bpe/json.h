/* json.h: reads JSON files, and values with their location, so that every error names file and key. */
#ifndef BPE_JSON_H
#define BPE_JSON_H

#include "memory.h"
#include <jansson.h>

/* A location in a file: "pre_tokenizer.pretokenizers[1].pattern". */
typedef struct bpe_place {
    const char *file;
    bool nul_keys; /* see bpe_json_load */
    char path[200];
} bpe_place;

/* Loads a file; *out is NULL if an optional file does not exist. Duplicate keys are errors. *nul_keys: true if keys
 * contain U+FDD0 instead of NUL, which jansson does not support in keys; the file then has no other U+FDD0. */
#define BPE_NUL "\xEF\xB7\x90"
weft_status bpe_json_load(json_t **out, const char *file, bool required, bool *nul_keys, weft_error *err);

bpe_place bpe_place_file(const char *file);
bpe_place bpe_place_key(const bpe_place *at, const char *key);
bpe_place bpe_place_index(const bpe_place *at, size_t i);

/* Writes "FILE: PATH: " and the message to err; returns WEFT_E_DATA. */
weft_status bpe_json_fail(weft_error *err, const bpe_place *at, const char *format, ...) WEFT_PRINTF(3, 4);

/* Read a value of an object by key. A missing or null value is replaced by `fallback`, and is an error without one.
 * bpe_json_copy returns a string that outlives the file. */
weft_status bpe_json_text(const char **out, size_t *n, const bpe_place *at, const json_t *object, const char *key,
                          weft_error *err);
weft_status bpe_json_copy(bpe_text *out, const weft_host *host, const bpe_place *at, const json_t *object,
                          const char *key, weft_error *err);
weft_status bpe_json_bool(bool *out, const bpe_place *at, const json_t *object, const char *key, const bool *fallback,
                          weft_error *err);
weft_status bpe_json_id(int32_t *out, const bpe_place *at, const json_t *value, weft_error *err);

/* Returns "type" of an object; fails if the value is not an object. */
weft_status bpe_json_type(const char **out, const bpe_place *at, const json_t *object, weft_error *err);

/* Returns an array by key. */
weft_status bpe_json_array(const json_t **out, const bpe_place *at, const json_t *object, const char *key,
                           weft_error *err);

/* Returns true if the blank-separated list contains a word. */
bool bpe_json_listed(const char *words, const char *word);

/* Fails for a key that the blank-separated list does not contain: it might change ids. */
weft_status bpe_json_known(const bpe_place *at, const json_t *object, const char *keys, weft_error *err);

/* Reads one step. type: its "type". */
typedef weft_status bpe_step_read(void *self, const bpe_place *at, const json_t *json, const char *type,
                                  weft_error *err);

/* Reads a section that is missing, null, one step, or a Sequence of such sections under the key `list`. Calls `read`
 * for every step in order. */
weft_status bpe_json_steps(void *self, bpe_step_read *read, const bpe_place *at, const json_t *json, const char *list,
                           weft_error *err);

/* A string for a message: quoted, control characters as \xHH, truncated. */
typedef struct bpe_quoted {
    char text[72];
} bpe_quoted;
bpe_quoted bpe_quote(const char *bytes, size_t n);

/* Highest valid id. Prevents a wrong number from allocating gigabytes. */
#define BPE_HIGHEST_ID 16777215

#endif
