/* host/tools/merge/merge.h: merges an adapter into its base, tensor by tensor, without a device.
 *
 * The base's files are read one after the other, in chunks of rows; memory contains one chunk and the adapter. The
 * merged numbers are computed in fp32 and rounded once, to the file's type or the requested type. */
#ifndef WEFT_HOST_TOOLS_MERGE_MERGE_H
#define WEFT_HOST_TOOLS_MERGE_MERGE_H

#include "model/declare.h"

typedef struct weft_merging {
    const weft_declared *declared; /* with its adapter */
    const weft_host *host;         /* provides the threads */
    const char *base, *adapter;    /* directories */
    const char *directory;         /* must exist and be empty */
    int32_t dtype;                 /* WEFT_F32, WEFT_BF16 or WEFT_F16; 0: each tensor's own */
} weft_merging;

/* Writes safetensors files, their index and config.json, and copies the other files of a model. [main] */
weft_status weft_adapter_merge(const weft_merging *merging, weft_error *err);

#endif
