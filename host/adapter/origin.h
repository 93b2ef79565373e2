/* host/adapter/origin.h: which base an adapter was made on.
 *
 * An adapter's directory has weft_adapter.json besides PEFT's two files: the plugin that made it, and a SHA-256 of the
 * base's weights. On other weights its numbers mean nothing, and its shapes may fit all the same.
 *
 * All bytes of the base are hashed, once: the file also has a hash of the names, sizes, inodes and times of change of
 * the base's files, and as long as these are equal the recorded hash counts. */
#ifndef WEFT_HOST_ADAPTER_ORIGIN_H
#define WEFT_HOST_ADAPTER_ORIGIN_H

#include "base/safetensors.h"
#include "model/declare.h"

#include <stdbool.h>

#define WEFT_ADAPTER_ORIGIN "weft_adapter.json"

typedef struct weft_adapter_origin {
    char plugin[64], version[64];
    char base[65];  /* SHA-256 of the base's weights; "": not known */
    char files[65]; /* SHA-256 of the state of the base's files at that time; "": not known */
    bool by_ends;   /* read from a file of format 1: base has both ends of each tensor only */
    char all[WEFT_MOST_ADAPTERS][64];
    int32_t
        n_all; /* of several: the ids of all, in their order; 0: it is one alone, or the others are told elsewhere */
} weft_adapter_origin;

/* Sets out->base and out->files for the weights in a directory. They are hashed completely, unless `known` (NULL:
 * none), or an earlier call of this thread, recorded the same state of the files. [any-thread] */
weft_status weft_base_identify(weft_adapter_origin *out, const char *directory, const weft_adapter_origin *known,
                               weft_error *err);

/* Sets *same to whether the weights in a directory are the base that an adapter's file names; true if it names none.
 * now: gets what was found out about them. [main] */
weft_status weft_base_compare(bool *same, weft_adapter_origin *now, const weft_adapter_origin *of,
                              const char *directory, weft_error *err);

weft_status weft_origin_save(const weft_adapter_origin *origin, const char *directory, weft_error *err);

/* Of a directory that was not written here all is empty. */
weft_status weft_origin_load(weft_adapter_origin *out, const char *directory, weft_error *err);

#endif
