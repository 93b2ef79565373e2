/* host/adapter/merge.h: a base and an adapter become one model, tensor by tensor, without a device.
 *
 * A base's files are read one after the other, in pieces of rows: what is held is a piece, and the adapter. The merged
 * numbers are computed in fp32 and rounded once, to the type that the file has or that is asked for. */
#ifndef WEFT_HOST_ADAPTER_MERGE_H
#define WEFT_HOST_ADAPTER_MERGE_H

#include "model/declare.h"

typedef struct weft_merging {
    const weft_declared *declared; /* with its adapter */
    const weft_host *host;         /* whose threads compute */
    const char *base, *adapter;    /* directories */
    const char *directory;         /* exists, and is empty */
    int32_t dtype;                 /* WEFT_F32, WEFT_BF16 or WEFT_F16; 0: each tensor's own */
} weft_merging;

/* Writes safetensors files, their index and config.json, and copies what else belongs to a model. [main] */
weft_status weft_adapter_merge(const weft_merging *merging, weft_error *err);

#endif
