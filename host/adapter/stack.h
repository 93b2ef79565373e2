/* host/adapter/stack.h: where in a directory the files of each of several adapters lie.
 *
 *     model/adapter_config.json, adapter_model.safetensors     of one of them, and what is trained of the base beside
 *     model/weft_adapter.json                                  lists all of them, in the order of [adapter] plugin
 *     model/mlp-head/adapter_config.json, ...                  of each other one, by its id: as of one alone
 *
 * So what reads adapters one by one, as PEFT, finds one that it knows. */
#ifndef WEFT_HOST_ADAPTER_STACK_H
#define WEFT_HOST_ADAPTER_STACK_H

#include "base/join.h"
#include "model/declare.h"

/* The number of the adapter whose files lie in the directory itself: the first one that PEFT knows; else the first that
 * can be merged, or simply the first. */
int32_t weft_stack_home(const weft_declared *declared);

/* Where the files of that adapter lie. */
weft_status weft_stack_place(char out[WEFT_PATH_BYTES], const weft_declared *declared, int32_t adapter,
                             const char *directory, weft_error *err);

/* Those that are about to join, or have joined. */
typedef struct weft_stack {
    const weft_adapter_plugin *plugins[WEFT_MOST_ADAPTERS];
    int32_t n;
} weft_stack;

weft_stack weft_stack_of(const weft_declared *declared);

/* Which of them a directory holds. Beside those that it does not, as it was made without, the others go on. */
typedef struct weft_held {
    bool has[WEFT_MOST_ADAPTERS];
    int32_t n, home; /* home: the one whose files lie in the directory itself */
} weft_held;

/* Refuses a directory of other adapters, or in another order: files of one would be taken for those of another, or be
 * left out. */
weft_status weft_stack_held(weft_held *out, const weft_stack *stack, const char *directory, weft_error *err);

/* All of them, as a directory holds those that are saved together. */
weft_held weft_stack_all(const weft_stack *stack);

/* Where the files of one that is held lie. */
weft_status weft_stack_source(char out[WEFT_PATH_BYTES], const weft_stack *stack, const weft_held *held,
                              int32_t adapter, const char *directory, weft_error *err);

/* Says that a directory holds others than these. Returns WEFT_E_DATA. */
weft_status weft_stack_refuse(const weft_stack *stack, const char *directory, weft_error *err);

#endif
