/* host/adapter/origin.h: which base an adapter was made on.
 *
 * An adapter's directory has weft_adapter.json beside PEFT's two files: the plugin that made it, and a fingerprint of
 * the base's weights. On other weights its numbers mean nothing, and its shapes may fit all the same. */
#ifndef WEFT_HOST_ADAPTER_ORIGIN_H
#define WEFT_HOST_ADAPTER_ORIGIN_H

#include "base/safetensors.h"
#include "model/declare.h"

#define WEFT_ADAPTER_ORIGIN "weft_adapter.json"

typedef struct weft_adapter_origin {
    char plugin[64], version[64];
    char base[65]; /* fingerprint; "": not known */
    char all[WEFT_MOST_ADAPTERS][64];
    int32_t
        n_all; /* of several: the ids of all, in their order; 0: it is one alone, or the others are told elsewhere */
} weft_adapter_origin;

/* SHA-256 over name, type, shape and the first and last 4 KiB of each tensor: a base that was trained on or rounded has
 * another one, and a base of any size is read in a moment. */
weft_status weft_base_fingerprint(char hex[65], const char *directory, weft_error *err);

weft_status weft_origin_save(const weft_adapter_origin *origin, const char *directory, weft_error *err);

/* Of a directory that was not written here all is empty. */
weft_status weft_origin_load(weft_adapter_origin *out, const char *directory, weft_error *err);

#endif
