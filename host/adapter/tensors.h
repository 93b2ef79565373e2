/* host/adapter/tensors.h: contents of adapter_model.safetensors: the adapter's weights under PEFT's names, and trained
 * parameters of the base: complete modules, which PEFT lists as modules_to_save. */
#ifndef WEFT_HOST_ADAPTER_TENSORS_H
#define WEFT_HOST_ADAPTER_TENSORS_H

#include "base/safetensors.h"
#include "model/declare.h"

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

/* True if adapter files contain the parameter: an adapter's own, or a trained one of the base. */
bool weft_adapter_saves(const weft_declared *declared, int32_t parameter);

/* Lists the tensors of that adapter; own_alone: without trained parameters of the base. The caller calls
 * weft_adapter_list_free, also on failure. */
weft_status weft_adapter_list_make(weft_adapter_list *out, const weft_declared *declared, int32_t adapter,
                                   bool own_alone, weft_error *err);
void weft_adapter_list_free(weft_adapter_list *list);

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
