/* host/model/stop_ids.h: the ids that end a generated text, as a Hugging Face directory says. */
#ifndef WEFT_HOST_MODEL_STOP_IDS_H
#define WEFT_HOST_MODEL_STOP_IDS_H

#include <weft/base.h>

enum { WEFT_MAX_STOP_IDS = 16 };

typedef struct weft_stop_ids {
    int32_t ids[WEFT_MAX_STOP_IDS];
    int32_t n;
} weft_stop_ids;

/* eos_token_id, a number or a list, of generation_config.json, else of config.json, else `fallback` (-1: none), as
 * transformers chooses it. WEFT_E_DATA: a file that is no JSON, a value of another kind, or too many. */
weft_status weft_stop_ids_read(weft_stop_ids *out, const char *directory, int32_t fallback, weft_error *err);

#endif
