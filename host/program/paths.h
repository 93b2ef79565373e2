/* host/program/paths.h: the files and directories that a configuration names, before anything reads them. */
#ifndef WEFT_HOST_PROGRAM_PATHS_H
#define WEFT_HOST_PROGRAM_PATHS_H

#include "program/plan.h"
#include "program/program.h"
#include "program/run.h"

/* ---- memory of asynchronous checkpoints ----
 *
 * An asynchronous checkpoint is written from a copy of the rank's state (run/async_checkpoint.h). The copy is complete,
 * because the next step changes all of the state at once. Frozen parameters never change: they are not copied if the
 * host sees the device's memory. */

/* Returns the bytes of the copy of the parameters, from their region's start. */
int64_t weft_save_place_parameters(const weft_plan *plan);
/* Returns the bytes of the complete copy, with each part at the alignment of device buffers. */
int64_t weft_save_place_bytes(const weft_plan *plan);

/* Sets plan->saves and plan->visible from [checkpoint] async. With auto, checkpoints are asynchronous if the device
 * has its own memory and the copies of all ranks of this machine need at most half of the machine's memory. */
void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

/* ---- printing a step program on request, for any mode and rank ---- */

/* Enables printing: each plan also keeps the program of this mode and rank (weft_mode_plan.shown), and rejected
 * programs are printed. [main] */
void weft_show_want(int32_t mode, int32_t rank, FILE *refused);

/* Returns the rank requested for this mode; -1: no request. [main] */
int32_t weft_show_rank(int32_t mode);

/* Prints the program if printing is enabled. instruction: the rejected instruction, or the number of instructions if
 * one is missing. [main] */
void weft_show_refused(const weft_program *program, const weft_job_spec *job, int32_t instruction);

/* Calls visit for each path in the keys of a part's plugin, including lists, in the order of the key table. A value
 * that is no absolute path is skipped. Without a loaded plugin there are no calls. [main] */
typedef weft_status weft_path_visit(void *context, const char *key, const char *path, weft_error *err);
weft_status weft_part_each_path(const weft_part *part, weft_path_visit *visit, void *context, weft_error *err);

#endif
