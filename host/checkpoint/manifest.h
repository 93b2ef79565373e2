/* host/checkpoint/manifest.h: manifest.json, which says what a whole checkpoint consists of.
 *
 *     {"format": 1, "step": 50, "grid": 64, "files": {
 *          "config.json":       {"bytes": 612, "sha256": "..."},
 *          "model.safetensors": {"bytes": 1041000, "header_sha256": "...", "tensors": {"model.norm.weight": "...",
 * ...}}}}
 *
 * A tensor's hash is SHA-256 over the SHA-256 of each of its grid cells in order, a cell being `grid` elements (the
 * last one less). A cell has one owner whatever the number of ranks, so that each rank can hash what it writes; here
 * one rank reads everything back after it was synced, so that what is hashed is what the file system gives. Files other
 * than safetensors have one hash. Verifying makes the entries again and compares. */
#ifndef WEFT_HOST_CHECKPOINT_MANIFEST_H
#define WEFT_HOST_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <weft/base.h>

#define WEFT_MANIFEST_NAME "manifest.json"

/* Of all files in the directory and the directories in it. */
weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, weft_error *err);

/* WEFT_E_DATA with file and reason where something is missing or another. content false: names and sizes alone, which
 * costs next to nothing. Files that the manifest does not name do no harm. */
weft_status weft_manifest_verify(const char *directory, uint64_t step, bool content, weft_error *err);

#endif
