/* json.h: reads a JSON file, and its values with the place where they stand, so that every complaint names file and
 * key. */
#ifndef BPE_JSON_H
#define BPE_JSON_H

#include "memory.h"
#include <jansson.h>

/* A place in a file: "pre_tokenizer.pretokenizers[1].pattern". */
typedef struct bpe_place {
    const char *file;
    bool nul_keys; /* as bpe_json_load says */
    char path[200];
} bpe_place;

/* *out is NULL where the file does not exist and is not required. Keys that appear twice are refused. *nul_keys: keys
 * hold U+FDD0 for each NUL, which jansson has no keys with; the file holds no other U+FDD0. */
#define BPE_NUL "\xEF\xB7\x90"
weft_status bpe_json_load(json_t **out, const char *file, bool required, bool *nul_keys, weft_error *err);

bpe_place bpe_place_file(const char *file);
bpe_place bpe_place_key(const bpe_place *at, const char *key);
bpe_place bpe_place_index(const bpe_place *at, size_t i);

/* "FILE: PATH: " and the sentence; WEFT_E_DATA. */
weft_status bpe_json_fail(weft_error *err, const bpe_place *at, const char *format, ...) WEFT_PRINTF(3, 4);

/* Values by key of an object. A fallback stands for a key that is missing or null; without one it is an error. copy: a
 * text that outlives the file. */
weft_status bpe_json_text(const char **out, size_t *n, const bpe_place *at, const json_t *object, const char *key,
                          weft_error *err);
weft_status bpe_json_copy(bpe_text *out, const weft_host *host, const bpe_place *at, const json_t *object,
                          const char *key, weft_error *err);
weft_status bpe_json_bool(bool *out, const bpe_place *at, const json_t *object, const char *key, const bool *fallback,
                          weft_error *err);
weft_status bpe_json_id(int32_t *out, const bpe_place *at, const json_t *value, weft_error *err);

/* The object's "type", after judging that it is an object. */
weft_status bpe_json_type(const char **out, const bpe_place *at, const json_t *object, weft_error *err);

/* An array by key. */
weft_status bpe_json_array(const json_t **out, const bpe_place *at, const json_t *object, const char *key,
                           weft_error *err);

/* True if a word is one of a list's, which have blanks between them. */
bool bpe_json_listed(const char *words, const char *word);

/* Refuses keys that are not in the list, blank-separated: they might change ids. */
weft_status bpe_json_known(const bpe_place *at, const json_t *object, const char *keys, weft_error *err);

/* What reads a step of its own kind. type: the value of its "type". */
typedef weft_status bpe_step_read(void *self, const bpe_place *at, const json_t *json, const char *type,
                                  weft_error *err);

/* A part of the file that is missing, null, one step, or a Sequence of such parts under the key `list`: `read` gets
 * every step in order. */
weft_status bpe_json_steps(void *self, bpe_step_read *read, const bpe_place *at, const json_t *json, const char *list,
                           weft_error *err);

/* A text for a message: quoted, controls as \xHH, cut where it is long. */
typedef struct bpe_quoted {
    char text[72];
} bpe_quoted;
bpe_quoted bpe_quote(const char *bytes, size_t n);

/* Ids go up to this, so that a wrong number does not ask for a table of gigabytes. */
#define BPE_HIGHEST_ID 16777215

#endif
