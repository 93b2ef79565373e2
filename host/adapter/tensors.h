/* host/adapter/tensors.h: what adapter_model.safetensors has: the adapter's own weights by the names that PEFT gives
 * them, and parameters of the base that are trained beside it, whole modules that PEFT lists as modules_to_save. */
#ifndef WEFT_HOST_ADAPTER_TENSORS_H
#define WEFT_HOST_ADAPTER_TENSORS_H

#include "base/safetensors.h"
#include "model/declare.h"

#define WEFT_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define WEFT_ADAPTER_CONFIG  "adapter_config.json"
#define WEFT_ADAPTER_PREFIX  "base_model.model." /* of names in the file */

typedef struct weft_adapter_entry {
    weft_adapter_tensor tensor;
    int32_t parameter;
    int32_t at;        /* which tensor of the file it is, or is a part of */
    bool is_moved;     /* it lies otherwise in the file than in memory: turned, or as columns of a table */
    const char *alias; /* the name in the model that this entry is of, where it is a further one of tied storage: PEFT
                          has such a matrix once for each; NULL: the parameter's own */
} weft_adapter_entry;

typedef struct weft_adapter_list {
    weft_adapter_entry *entries;
    int32_t n, n_tensors;
    const weft_joined_adapter *by; /* whose file it is */
} weft_adapter_list;

/* Whether the parameter is an adapter's to save: its own, or trained beside it. */
bool weft_adapter_saves(const weft_declared *declared, int32_t parameter);

/* Of that adapter; own_alone: without what is trained of the base. weft_adapter_list_free afterwards, also on
 * failure. */
weft_status weft_adapter_list_make(weft_adapter_list *out, const weft_declared *declared, int32_t adapter,
                                   bool own_alone, weft_error *err);
void weft_adapter_list_free(weft_adapter_list *list);

/* Where element (row, column) of one that is moved lies in the file's tensor. */
static inline int64_t weft_adapter_place(const weft_adapter_entry *entry, int64_t row, int64_t column) {
    const weft_adapter_tensor *t = &entry->tensor;
    return t->transposed ? column * t->dims[1] + row : row * t->dims[1] + t->column + column;
}

/* The tensor of an entry as the file has it; its name lives as long as the list. */
weft_tensor_spec weft_adapter_spec(const weft_adapter_entry *entry, int32_t dtype);

/* A parameter of the base by its name in an adapter's file, which may say `base_layer` where PEFT wraps a table that it
 * saves as well, lacks `model.` where PEFT puts no model of its own around the base, and may be what the adapter's
 * plugin calls the parameter; -1: it is none. */
int32_t weft_adapter_base_parameter(const weft_declared *declared, int32_t adapter, const char *name);

/* Refuses by name a part of a module that is trained, for PEFT saves whole ones, and a module that is trained whole and
 * adapted, which PEFT does not know. */
weft_status weft_adapter_check_whole(const weft_declared *declared, weft_error *err);

#endif
