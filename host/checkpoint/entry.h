/* host/checkpoint/entry.h: what manifest.json says of one file (manifest.h). */
#ifndef WEFT_HOST_CHECKPOINT_ENTRY_H
#define WEFT_HOST_CHECKPOINT_ENTRY_H

#include <jansson.h>
#include <stdbool.h>
#include <weft/base.h>

/* The entry of the file as it is now; the caller owns it. The file is read in bounded pieces. */
weft_status weft_entry_make(json_t **out, const char *path, int64_t grid, weft_error *err);

/* WEFT_E_DATA: the file is missing, has another size, or (content) another content than the entry says. */
weft_status weft_entry_verify(const json_t *entry, const char *path, int64_t grid, bool content, weft_error *err);

#endif
