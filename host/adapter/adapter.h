/* host/adapter/adapter.h: attaches adapters to a model, and loads and saves them in PEFT's format, each in its own
 * directory (stack.h), from the region of a model that they have joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_H
#define WEFT_HOST_ADAPTER_ADAPTER_H

#include "adapter/stack.h"
#include "model/region.h"

/* Creates the adapter and lets it extend the model at its sites. Fewer than WEFT_MOST_ADAPTERS may have joined. The
 * model owns the adapter from then on, also after a failure. source: the saved adapter to continue; NULL: a new one.
 * The error message is the plugin's, or describes its mistake. */
weft_status weft_adapter_attach(weft_declared *declared, const weft_host *host, const weft_adapter_plugin *plugin,
                                const void *plugin_config, const weft_adapter_source *source, weft_error *err);

/* Flags for a directory. */
#define WEFT_ADAPTER_SOME  1u /* it may contain only some of the adapters (stack.h); the others stay unchanged */
#define WEFT_ADAPTER_SAVED 2u /* the model will be saved: everything in the directory must be trained */

/* Checks that the directory's files contain each weight of the adapters in its shape, and otherwise only parameters of
 * the base. WEFT_E_DATA: files of another adapter or model. WEFT_E_USER: a later save would lose one of the base's
 * parameters. */
weft_status weft_adapter_check(const weft_declared *declared, const char *directory, uint32_t flags, weft_error *err);

/* Checks that the model has each module that modules_to_save of the directory's adapter_config.json names. */
weft_status weft_adapter_check_modules(const weft_declared *declared, const char *directory, weft_error *err);

/* Loads them, for the part that the region stores. Modules of the base in the file replace the base's own. */
weft_status weft_adapter_load(const weft_region *region, const char *directory, uint32_t flags, weft_error *err);

/* Loads them to the host, in fp32 and complete: out[p] for each parameter of the file, to be freed by the caller. Other
 * entries stay unchanged. */
weft_status weft_adapter_values(float **out, const weft_declared *declared, const char *directory, weft_error *err);

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
