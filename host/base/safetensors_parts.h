/* host/base/safetensors_parts.h: internal declarations of the safetensors reader; other files include safetensors.h. */
#ifndef WEFT_HOST_BASE_SAFETENSORS_PARTS_H
#define WEFT_HOST_BASE_SAFETENSORS_PARTS_H

#include "base/safetensors.h"

weft_status weft_safetensors_no_memory(const char *path, weft_error *err);

/* Creates an empty object with capacity for n_files. path: for the error. */
weft_status weft_safetensors_make(weft_safetensors **out, size_t n_files, const char *path, weft_error *err);

/* Maps path and appends its tensors. On failure weft_safetensors_close releases the partial state. */
weft_status weft_safetensors_add(weft_safetensors *self, const char *path, weft_error *err);

/* Appends the tensors of the last mapped file. */
weft_status weft_safetensors_read_header(weft_safetensors *self, weft_error *err);

/* Finishes an open: sorts the tensors and returns self in *out, or closes self if status is a failure. */
weft_status weft_safetensors_give(weft_safetensors **out, weft_safetensors *self, weft_status status);

#endif
