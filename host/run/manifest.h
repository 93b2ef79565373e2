/* host/run/manifest.h: manifest.json, which lists the files of a complete checkpoint.
 *
 *     {"format": 1, "step": 50, "grid": 64, "files": {
 *          "config.json":       {"bytes": 612, "sha256": "..."},
 *          "model.safetensors": {"bytes": 1041000, "header_sha256": "...", "tensors": {"norm.weight": "...", ...}}}}
 *
 * A tensor's hash is SHA-256 over the SHA-256 of each of its grid cells in order; a cell has `grid` elements (the
 * last one fewer). A cell has one owner for every number of ranks: each rank hashes what it writes, before it writes
 * it. Files other than safetensors have one hash. Verification hashes the content of the file system and compares. */
#ifndef WEFT_HOST_RUN_MANIFEST_H
#define WEFT_HOST_RUN_MANIFEST_H

#include "model/process_group.h"

#include <jansson.h>

#define WEFT_MANIFEST_NAME "manifest.json"

/* Lists all files in the directory and below. roots: {"model.safetensors": {"tensor": root, ...}, ...} of its
 * safetensors files; tensors of other files are hashed here. */
weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, const json_t *roots,
                                weft_error *err);

/* WEFT_E_DATA with file and reason if something is missing or different; other files are ignored. The ranks share
 * the work and the result. [collective] */
weft_status weft_manifest_verify(const char *directory, uint64_t step, const weft_process_group *peers,
                                 weft_error *err);
/* Checks names and sizes only, on this rank. */
weft_status weft_manifest_glance(const char *directory, uint64_t step, weft_error *err);

#endif
