/* host/base/safetensors_parts.h: what the files that read safetensors share; safetensors.h is for all others. */
#ifndef WEFT_HOST_BASE_SAFETENSORS_PARTS_H
#define WEFT_HOST_BASE_SAFETENSORS_PARTS_H

#include "base/safetensors.h"

weft_status weft_safetensors_no_memory(const char *path, weft_error *err);

/* Empty, with room for n_files. path: for the error. */
weft_status weft_safetensors_make(weft_safetensors **out, size_t n_files, const char *path, weft_error *err);

/* Maps path and appends its tensors. On failure what was appended is left for weft_safetensors_close. */
weft_status weft_safetensors_add(weft_safetensors *self, const char *path, weft_error *err);

/* Appends the tensors of the last file, which is mapped. */
weft_status weft_safetensors_read_header(weft_safetensors *self, weft_error *err);

/* The end of an open: sorts the tensors and hands self out, or closes it where status is a failure. */
weft_status weft_safetensors_give(weft_safetensors **out, weft_safetensors *self, weft_status status);

#endif
