/* host/model/stop_ids.h: the end-of-text ids of a Hugging Face directory. */
#ifndef WEFT_HOST_MODEL_STOP_IDS_H
#define WEFT_HOST_MODEL_STOP_IDS_H

#include <stdbool.h>
#include <weft/base.h>

enum { WEFT_MAX_STOP_IDS = 16 };

typedef struct weft_stop_ids {
    int32_t ids[WEFT_MAX_STOP_IDS];
    int32_t n;
} weft_stop_ids;

/* Reads eos_token_id, a number or a list, from generation_config.json, else from config.json, else uses `fallback` (-1:
 * absent), as transformers does. WEFT_E_DATA: invalid JSON, a value of another type, or too many ids. */
weft_status weft_stop_ids_read(weft_stop_ids *out, const char *directory, int32_t fallback, weft_error *err);

bool weft_stop_ids_have(const weft_stop_ids *self, int32_t id);

/* Puts these ids before the eos_token_id of the directory's generation_config.json and config.json, or before `others`
 * if a file has no eos_token_id. Missing files, and files that contain all ids, stay unchanged. A directory without
 * config.json gets a generation_config.json with both lists. [main] */
weft_status weft_stop_ids_save(const weft_stop_ids *self, const weft_stop_ids *others, const char *directory,
                               weft_error *err);

#endif
