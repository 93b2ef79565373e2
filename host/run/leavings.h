/* host/run/leavings.h: which files of a run's directory a run wrote, by their names. Files that no run wrote are
 * never removed. */
#ifndef WEFT_HOST_RUN_LEAVINGS_H
#define WEFT_HOST_RUN_LEAVINGS_H

#include "base/join.h"

/* Sets foreign to the path of a file in checkpoints/, model/ or tensorboard/ of a run's directory that no run wrote;
 * "": there is none. [any-thread] */
weft_status weft_leavings_find(char foreign[WEFT_PATH_BYTES], const char *directory, weft_error *err);

/* The same in one checkpoint, "checkpoints/step-4". Files that its manifest names are the run's, whatever their names.
 * [any-thread] */
weft_status weft_leavings_find_in_checkpoint(char foreign[WEFT_PATH_BYTES], const char *path, weft_error *err);

/* Moves what no run wrote from a model or checkpoint to the one that has replaced it. [any-thread] */
weft_status weft_leavings_keep(const char *replaced, const char *by, weft_error *err);

#endif
