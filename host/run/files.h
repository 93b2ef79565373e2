/* host/run/files.h: files that every rank reads by itself and that must hold the same bytes on all of them.
 *
 * Ranks of one machine mostly have one and the same file before them, and reading it to compare it with itself would
 * cost a start as much as the weights themselves. So a file is known by where it is: by the kernel that is running, its
 * file system, its number there, its size and the moment of its last change. Where all of that is as on rank 0, nothing
 * is read. Any other file of that name and size is hashed whole, by the rank that has it and by rank 0. */
#ifndef WEFT_HOST_RUN_FILES_H
#define WEFT_HOST_RUN_FILES_H

#include "base/safetensors.h"
#include "run/facts.h"

/* A fact of each file, under its name without its directory: its size, and its SHA-256 where some rank has another file
 * than rank 0. files: those of this rank, open. [collective] */
weft_status weft_files_add(weft_facts *facts, const weft_process_group *peers, const weft_tensor_file *files, int32_t n,
                           weft_error *err);

#endif
