/* host/model/stop_ids.h: the ids that end a generated text, as a Hugging Face directory says. */
#ifndef WEFT_HOST_MODEL_STOP_IDS_H
#define WEFT_HOST_MODEL_STOP_IDS_H

#include <stdbool.h>
#include <weft/base.h>

enum { WEFT_MAX_STOP_IDS = 16 };

typedef struct weft_stop_ids {
    int32_t ids[WEFT_MAX_STOP_IDS];
    int32_t n;
} weft_stop_ids;

/* eos_token_id, a number or a list, of generation_config.json, else of config.json, else `fallback` (-1: none), as
 * transformers chooses it. WEFT_E_DATA: a file that is no JSON, a value of another kind, or too many. */
weft_status weft_stop_ids_read(weft_stop_ids *out, const char *directory, int32_t fallback, weft_error *err);

bool weft_stop_ids_have(const weft_stop_ids *self, int32_t id);

/* Appends those of `more` that are missing, as far as there is room. */
void weft_stop_ids_join(weft_stop_ids *out, const weft_stop_ids *more);

/* Puts these ids before those that the directory's generation_config.json and config.json have as eos_token_id, or,
 * where a file has none, before `others`. A file that is not there, or that has all of them, is left as it is. In a
 * directory without a config.json a generation_config.json of both lists is written. [main] */
weft_status weft_stop_ids_save(const weft_stop_ids *self, const weft_stop_ids *others, const char *directory,
                               weft_error *err);

#endif
