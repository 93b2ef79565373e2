/* host/adapter/origin.h: identifies the base of an adapter.
 *
 * In addition to PEFT's two files, an adapter's directory has weft_adapter.json with the plugin that created it and a
 * SHA-256 of the base's weights. With other weights the adapter is invalid, even if all shapes match.
 *
 * All bytes of the base are hashed, once. The file also has a hash of the names, sizes, inodes and change times of the
 * base's files. While these are unchanged, the recorded hash is used. */
#ifndef WEFT_HOST_ADAPTER_ORIGIN_H
#define WEFT_HOST_ADAPTER_ORIGIN_H

#include "base/safetensors.h"
#include "model/declare.h"

#include <stdbool.h>

#define WEFT_ADAPTER_ORIGIN "weft_adapter.json"

typedef struct weft_adapter_origin {
    char plugin[64], version[64];
    char base[65];  /* SHA-256 of the base's weights; "": unknown */
    char files[65]; /* SHA-256 of the state of the base's files at that time; "": unknown */
    bool by_ends;   /* read from a file of format 1: `base` covers only both ends of each tensor */
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
