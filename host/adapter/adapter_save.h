/* host/adapter/adapter_save.h: an adapter as PEFT writes it, from the region of a model that it has joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_SAVE_H
#define WEFT_HOST_ADAPTER_ADAPTER_SAVE_H

#include "adapter/origin.h"
#include "model/region_write.h"

typedef struct weft_adapter_saving {
    const weft_region *region;
    const char *directory; /* exists, and has none of the files */
    const char *base;      /* where the base is, for who reads the adapter */
    weft_adapter_origin origin;
    int32_t dtype;  /* WEFT_F32, WEFT_BF16 or WEFT_F16 */
    bool own_alone; /* what is trained of the base is saved elsewhere */
} weft_adapter_saving;

/* adapter_model.safetensors, adapter_config.json and weft_adapter.json. roots: may be NULL. [collective] */
weft_status weft_adapter_save(const weft_adapter_saving *saving, const weft_roots *roots, weft_error *err);

#endif
