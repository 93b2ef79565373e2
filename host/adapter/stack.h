/* host/adapter/stack.h: directory layout of several adapters.
 *
 *     model/adapter_config.json, adapter_model.safetensors     one adapter, and trained parameters of the base
 *     model/weft_adapter.json                                  ids of all adapters, in the order of [adapter] plugin
 *     model/mlp-head/adapter_config.json, ...                  each other adapter, by its id, in the same format
 *
 * So PEFT, which reads adapters one by one, finds one that it supports. */
#ifndef WEFT_HOST_ADAPTER_STACK_H
#define WEFT_HOST_ADAPTER_STACK_H

#include "base/text.h"
#include "model/declare.h"

/* Returns the number of the adapter in the directory itself: the first one that PEFT supports; else the first that can
 * be merged, else the first. */
int32_t weft_stack_home(const weft_declared *declared);

/* Returns the directory of that adapter. */
weft_status weft_stack_place(char out[WEFT_PATH_BYTES], const weft_declared *declared, int32_t adapter,
                             const char *directory, weft_error *err);

/* The adapters that are about to join, or have joined. */
typedef struct weft_stack {
    const weft_adapter_plugin *plugins[WEFT_MOST_ADAPTERS];
    int32_t n;
} weft_stack;

weft_stack weft_stack_of(const weft_declared *declared);

/* The adapters that a directory contains. Further adapters, which were added later, start new. */
typedef struct weft_held {
    bool has[WEFT_MOST_ADAPTERS];
    int32_t n, home; /* home: the adapter in the directory itself */
} weft_held;

/* Fails for a directory of other adapters, or in another order, because files would be assigned to the wrong adapter or
 * ignored. */
weft_status weft_stack_held(weft_held *out, const weft_stack *stack, const char *directory, weft_error *err);

/* Returns all of them, as in a directory that is saved now. */
weft_held weft_stack_all(const weft_stack *stack);

/* Returns the directory of a contained adapter. */
weft_status weft_stack_source(char out[WEFT_PATH_BYTES], const weft_stack *stack, const weft_held *held,
                              int32_t adapter, const char *directory, weft_error *err);

/* Reports that a directory contains other adapters. Returns WEFT_E_DATA. */
weft_status weft_stack_refuse(const weft_stack *stack, const char *directory, weft_error *err);

#endif
