/* host/run/entry.h: what manifest.json says of one file (manifest.h). */
#ifndef WEFT_HOST_RUN_ENTRY_H
#define WEFT_HOST_RUN_ENTRY_H

#include <jansson.h>
#include <stdbool.h>
#include <weft/base.h>

/* The entry of the file as it is now; the caller owns it. tensors: what is known of a safetensors file's, {"name":
 * root}, so that nothing but its header is read; NULL: they are hashed, in bounded pieces. */
weft_status weft_entry_make(json_t **out, const char *path, int64_t grid, json_t *tensors, weft_error *err);

/* Work that ranks share: whoever has least so far takes the next. Alike on all ranks. */
typedef struct weft_shares {
    int32_t rank, world;
    int64_t *bytes; /* [world] taken so far */
} weft_shares;

/* WEFT_E_DATA: the file is missing, has another size, or another content than the entry says. shares: of the content,
 * this rank looks at its share of tensors and files alone; NULL: at no content. */
weft_status weft_entry_verify(const json_t *entry, const char *path, int64_t grid, weft_shares *shares,
                              weft_error *err);

#endif
