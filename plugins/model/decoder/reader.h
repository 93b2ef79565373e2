/* reader.h: values of config.json with the sentences for those that cannot be. Mistakes are sticky: after the first one
 * the getters do nothing and give their fallback. */
#ifndef WEFT_MODEL_DECODER_READER_H
#define WEFT_MODEL_DECODER_READER_H

#include "decoder.h"

#include <jansson.h>

enum { MAX_SIZE = 1 << 24, MAX_COUNT = 1 << 16 };

typedef struct reader {
    const char *path;
    json_t *root;   /* the object whose keys are read */
    const char *of; /* what stands before its keys in sentences: "", "rope_scaling." */
    weft_error *err;
    weft_status status;
} reader;

/* The value as JSON, cut to what a sentence bears. */
const char *reader_shown(const json_t *value, char text[96]);
/* "FILE: what is wrong, what is allowed"; the first one stays. */
void reader_complain(reader *r, const char *format, ...) WEFT_PRINTF(2, 3);
void reader_refuse(reader *r, const char *key, const json_t *value, const char *allowed);

/* NULL: absent or null. */
json_t *reader_get(const reader *r, const char *key);
json_t *reader_need(reader *r, const char *key);   /* one that must be there */
int reader_says(const reader *r, const char *key); /* it is there, if only as null */

/* From 1 to max; fallback 0: the key must be there. */
int64_t reader_size(reader *r, const char *key, int64_t max, int64_t fallback);
/* Above min, or min itself if `closed`. */
double reader_number(reader *r, const char *key, double min, int closed, double fallback);
/* fallback: where the key is absent; null is false. */
int reader_flag(reader *r, const char *key, int fallback);
/* A token: an id, a list of ids of which the first counts, null, or a negative number, which both mean none (-1). */
int32_t reader_token(reader *r, const char *key, int64_t vocab);

/* null, false, 0, "", [] or {}. */
int reader_is_off(const json_t *value);

/* The parts of config.json, each in the file of its name. The sizes are read already. */
void layers_read(reader *r, decoder_config *c);
void rope_read(reader *r, decoder_config *c);

#endif
