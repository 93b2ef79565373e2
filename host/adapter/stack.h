/* host/adapter/stack.h: directories of adapters, and the file that identifies an adapter's base.
 *
 *     model/adapter_config.json, adapter_model.safetensors     one adapter, and trained parameters of the base
 *     model/weft_adapter.json                                  ids of all adapters, in the order of [adapter] plugin
 *     model/mlp-head/adapter_config.json, ...                  each other adapter, by its id, in the same format
 *
 * So PEFT, which reads adapters one by one, finds one that it supports.
 *
 * In addition to PEFT's two files, weft_adapter.json has the plugin that created the adapter and a SHA-256 of the
 * base's weights. With other weights the adapter is invalid, even if all shapes match.
 *
 * All bytes of the base are hashed, once. The file also has a hash of the names, sizes, inodes and change times of the
 * base's files. While these are unchanged, the recorded hash is used. */
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

/* ---- weft_adapter.json ---- */

#define WEFT_ADAPTER_ORIGIN "weft_adapter.json"

typedef struct weft_adapter_origin {
    char plugin[64], version[64];
    char base[65];  /* SHA-256 of the base's weights; "": unknown */
    char files[65]; /* SHA-256 of the state of the base's files at that time; "": unknown */
    char all[WEFT_MOST_ADAPTERS][64];
    int32_t n_all; /* entries of `all`, in order; 0: a single adapter, or one whose ids another file lists */
} weft_adapter_origin;

/* Sets out->base and out->files for the weights in a directory. Hashes them completely, unless `known` (may be NULL) or
 * an earlier call of this thread recorded the same state of the files. [any-thread] */
weft_status weft_base_identify(weft_adapter_origin *out, const char *directory, const weft_adapter_origin *known,
                               weft_error *err);

/* Sets *same: the weights in a directory are the base named by an adapter's file, or the file names no base. now:
 * receives the identity of these weights. [main] */
weft_status weft_base_compare(bool *same, weft_adapter_origin *now, const weft_adapter_origin *of,
                              const char *directory, weft_error *err);

weft_status weft_origin_save(const weft_adapter_origin *origin, const char *directory, weft_error *err);

/* Leaves all fields empty for a directory that Weft did not write. */
weft_status weft_origin_load(weft_adapter_origin *out, const char *directory, weft_error *err);

#endif
