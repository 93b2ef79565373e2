/* host/run/manifest.h: manifest.json, which says what a whole checkpoint consists of.
 *
 *     {"format": 1, "step": 50, "grid": 64, "files": {
 *          "config.json":       {"bytes": 612, "sha256": "..."},
 *          "model.safetensors": {"bytes": 1041000, "header_sha256": "...", "tensors": {"model.norm.weight": "...",
 * ...}}}}
 *
 * A tensor's hash is SHA-256 over the SHA-256 of each of its grid cells in order, a cell being `grid` elements (the
 * last one less). A cell has one owner whatever the number of ranks: each rank hashes what it writes, before it writes
 * it. Files other than safetensors have one hash. Verifying hashes what the file system gives and compares. */
#ifndef WEFT_HOST_RUN_MANIFEST_H
#define WEFT_HOST_RUN_MANIFEST_H

#include "model/process_group.h"

#include <jansson.h>

#define WEFT_MANIFEST_NAME "manifest.json"

/* Of all files in the directory and the directories in it. roots: {"model.safetensors": {"tensor": root, ...}, ...} of
 * its safetensors files; what it lacks is hashed here. */
weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, const json_t *roots,
                                weft_error *err);

/* WEFT_E_DATA with file and reason where something is missing or another. Files that the manifest does not name do no
 * harm. The ranks share the work, and what one of them finds all have found. [collective] */
weft_status weft_manifest_verify(const char *directory, uint64_t step, const weft_process_group *peers,
                                 weft_error *err);

/* Names and sizes alone, which costs next to nothing, on this rank. */
weft_status weft_manifest_glance(const char *directory, uint64_t step, weft_error *err);

#endif
