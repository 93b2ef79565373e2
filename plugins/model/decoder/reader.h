/* reader.h: reads values of config.json and formats error messages for invalid ones. Errors are sticky: after the first
 * one the getters return their fallback. */
#ifndef WEFT_MODEL_DECODER_READER_H
#define WEFT_MODEL_DECODER_READER_H

#include "decoder.h"

#include <jansson.h>

enum { MAX_SIZE = 1 << 24, MAX_COUNT = 1 << 16 };

typedef struct reader {
    const char *path;
    json_t *root;   /* the object whose keys are read */
    const char *of; /* prefix of its keys in messages: "", "rope_scaling." */
    weft_error *err;
    weft_status status;
} reader;

/* Formats the value as JSON, shortened for a message. */
const char *reader_shown(const json_t *value, char text[96]);
/* Records "FILE: problem, allowed values"; only the first error is kept. */
void reader_complain(reader *r, const char *format, ...) WEFT_PRINTF(2, 3);
void reader_refuse(reader *r, const char *key, const json_t *value, const char *allowed);

/* Returns NULL if absent or null. */
json_t *reader_get(const reader *r, const char *key);
json_t *reader_need(reader *r, const char *key);   /* must be present */
int reader_says(const reader *r, const char *key); /* present, possibly null */

/* Reads an integer from 1 to max; fallback 0: the key is required. */
int64_t reader_size(reader *r, const char *key, int64_t max, int64_t fallback);
/* Reads a number above min, or min itself if `closed`. */
double reader_number(reader *r, const char *key, double min, int closed, double fallback);
/* fallback: for a missing key; null is false. */
int reader_flag(reader *r, const char *key, int fallback);
/* Reads a token: an id, or a list whose first id is used. null and negative numbers are -1. */
int32_t reader_token(reader *r, const char *key, int64_t vocab);

/* True for null, false, 0, "", [] or {}. */
int reader_is_off(const json_t *value);

/* Read parts of config.json, each in the file of its name, after the sizes. */
void layers_read(reader *r, decoder_config *c);
void rope_read(reader *r, decoder_config *c);

#endif
