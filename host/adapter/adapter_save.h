/* host/adapter/adapter_save.h: saves adapters in PEFT's format, from the region of a model that they have joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_SAVE_H
#define WEFT_HOST_ADAPTER_ADAPTER_SAVE_H

#include "adapter/origin.h"
#include "model/region.h"

typedef struct weft_adapter_saving {
    const weft_region *region;
    const char *directory;              /* exists, without any of the files */
    const char *base;                   /* path or name of the base, for readers of the adapter */
    const weft_adapter_origin *origins; /* [n_adapters] */
    int32_t dtype;                      /* WEFT_F32, WEFT_BF16 or WEFT_F16 */
    bool own_alone;                     /* trained parameters of the base are saved elsewhere */
} weft_adapter_saving;

/* Writes adapter_model.safetensors, adapter_config.json and weft_adapter.json of each adapter, in the directories of
 * stack.h. roots: may be NULL. [collective] */
weft_status weft_adapter_save(const weft_adapter_saving *saving, const weft_roots *roots, weft_error *err);

#endif
