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

/* ---- contents of adapter_model.safetensors (tensors.c) ----
 *
 * The adapter's weights under PEFT's names, and trained parameters of the base: complete modules, which PEFT lists as
 * modules_to_save. */

#define WEFT_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define WEFT_ADAPTER_CONFIG  "adapter_config.json"
#define WEFT_ADAPTER_PREFIX  "base_model.model." /* prefix of names in the file */

typedef struct weft_adapter_entry {
    weft_adapter_tensor tensor;
    int32_t parameter;
    int32_t at;        /* index of its tensor in the file; several entries may share one */
    bool is_moved;     /* its layout differs from memory: transposed, or columns of a table */
    const char *alias; /* Further name of tied storage that this entry represents, since PEFT stores such a matrix once
                          per name; NULL: the parameter's own name */
} weft_adapter_entry;

typedef struct weft_adapter_list {
    weft_adapter_entry *entries;
    int32_t n, n_tensors;
    const weft_joined_adapter *by; /* adapter that owns the file */
} weft_adapter_list;

/* Lists the tensors of that adapter; own_alone: without trained parameters of the base. The caller frees the
 * entries, also on failure. */
weft_status weft_adapter_list_make(weft_adapter_list *out, const weft_declared *declared, int32_t adapter,
                                   bool own_alone, weft_error *err);

/* Returns the index of element (row, column) of a moved entry in the file's tensor. */
static inline int64_t weft_adapter_place(const weft_adapter_entry *entry, int64_t row, int64_t column) {
    const weft_adapter_tensor *t = &entry->tensor;
    return t->transposed ? column * t->dims[1] + row : row * t->dims[1] + t->column + column;
}

/* Returns the file tensor of an entry. Its name is valid as long as the list. */
weft_tensor_spec weft_adapter_spec(const weft_adapter_entry *entry, int32_t dtype);

/* Returns a base parameter by its name in an adapter's file, or -1. The name may contain `base_layer`, if PEFT wraps a
 * table that it also saves. It may lack `model.`, if PEFT adds no model of its own around the base. It may also be the
 * plugin's own name for the parameter. */
int32_t weft_adapter_base_parameter(const weft_declared *declared, int32_t adapter, const char *name);

/* Fails with the name of a partly trained module, because PEFT saves complete modules. Fails also for a module that is
 * both trained completely and adapted, which PEFT does not support. */
weft_status weft_adapter_check_whole(const weft_declared *declared, weft_error *err);
#endif
