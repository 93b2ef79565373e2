/* host/run/staging.h: atomic replacement of a directory.
 *
 *     weft_staging staging;
 *     weft_staging_begin(&staging, "runs/one/checkpoints", "step-50", &err);    makes runs/one/checkpoints/.step-50.tmp
 *     ... files are written to staging.path and synced ...
 *     weft_staging_commit(&staging, &err);                                      or weft_staging_cancel(&staging)
 *
 * A directory of the final name is replaced by exchanging the two names, which is one system call. File systems
 * without that call first move the old one to .step-50.old; weft_staging_recover restores it after a crash between
 * the two moves.
 *
 * A run never removes files that no run has written: those of a replaced directory are moved into the new one. A
 * run's files are recognized by their names. */
#ifndef WEFT_HOST_RUN_STAGING_H
#define WEFT_HOST_RUN_STAGING_H

#include "base/text.h"

typedef struct weft_staging {
    char *parent, *final, *path, *old; /* path: the temporary directory */
} weft_staging;

/* Creates the parent too; removes the temporary directory of a killed process. Frees self after a failure. [main] */
weft_status weft_staging_begin(weft_staging *self, const char *parent, const char *name, weft_error *err);
/* Syncs the directory, renames it to its final name and syncs the parent; its files are synced already. Frees self
 * in any case. If the rename fails, the old directory is unchanged and the temporary one removed; if only the last
 * sync fails, the new directory has the name. [main] */
weft_status weft_staging_commit(weft_staging *self, weft_error *err);
/* Removes the temporary directory. After commit it does nothing. [main] */
void weft_staging_cancel(weft_staging *self);
/* Sets the names only, for a process that writes into a directory of another process; forget frees them. */
void weft_staging_name(weft_staging *self, const char *parent, const char *name);
void weft_staging_forget(weft_staging *self); /* a zeroed one is fine */
/* Renames parent/.name.old to `name` if that does not exist, else removes it. A missing one is fine. [main] */
weft_status weft_staging_recover(const char *parent, const char *name, weft_error *err);

/* Fails if the file system has fewer than `bytes` available for this user. purpose: "step-50". [main] */
weft_status weft_space_check(const char *directory, const char *purpose, int64_t bytes, weft_error *err);

/* Sets foreign to the path of a file in checkpoints/, model/ or tensorboard/ of a run's directory that no run has
 * written; "": there is none. [any-thread] */
weft_status weft_unknown_files_find(char foreign[WEFT_PATH_BYTES], const char *directory, weft_error *err);
/* The same in one checkpoint, "checkpoints/step-4". Files that its manifest lists are the run's under any name.
 * [any-thread] */
weft_status weft_unknown_files_find_in_checkpoint(char foreign[WEFT_PATH_BYTES], const char *path, weft_error *err);
/* Moves the files that no run has written from a model or checkpoint to the one that has replaced it. [any-thread] */
weft_status weft_unknown_files_keep(const char *replaced, const char *by, weft_error *err);

#endif
