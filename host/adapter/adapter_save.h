/* host/adapter/adapter_save.h: adapters as PEFT writes one, from the region of a model that they have joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_SAVE_H
#define WEFT_HOST_ADAPTER_ADAPTER_SAVE_H

#include "adapter/origin.h"
#include "model/region_write.h"

typedef struct weft_adapter_saving {
    const weft_region *region;
    const char *directory;              /* exists, and has none of the files */
    const char *base;                   /* where the base is, for who reads the adapter */
    const weft_adapter_origin *origins; /* [n_adapters] of the model */
    int32_t dtype;                      /* WEFT_F32, WEFT_BF16 or WEFT_F16 */
    bool own_alone;                     /* what is trained of the base is saved elsewhere */
} weft_adapter_saving;

/* adapter_model.safetensors, adapter_config.json and weft_adapter.json of each, where stack.h has them. roots: may be
 * NULL. [collective] */
weft_status weft_adapter_save(const weft_adapter_saving *saving, const weft_roots *roots, weft_error *err);

#endif
