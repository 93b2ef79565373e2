/* host/run/staging.h: a directory appears whole or not at all.
 *
 *     weft_staging staging;
 *     weft_staging_begin(&staging, "runs/one/checkpoints", "step-50", &err);    makes runs/one/checkpoints/.step-50.tmp
 *     ... files are written to staging.path and synced ...
 *     weft_staging_commit(&staging, &err);                                      or weft_staging_cancel(&staging)
 *
 * A directory of the final name is replaced by exchanging the two names, which one system call does; on file systems
 * without that call the old one is first moved to .step-50.old, and weft_staging_recover puts it back after a crash
 * between the two moves. Files in the replaced directory that no run wrote are moved into the new one. */
#ifndef WEFT_HOST_RUN_STAGING_H
#define WEFT_HOST_RUN_STAGING_H

#include <weft/base.h>

typedef struct weft_staging {
    char *parent, *final, *path, *old; /* path: the temporary directory */
} weft_staging;

/* Makes the parent too; what a killed process left under the temporary name is removed. On failure nothing is to be
 * cancelled. [main] */
weft_status weft_staging_begin(weft_staging *self, const char *parent, const char *name, weft_error *err);

/* Syncs the directory, gives it its final name and syncs the parent; the files in it are synced already. Whatever it
 * returns, self is done with. If the name could not be given, it has what it had and the temporary directory is gone;
 * if only the last sync fails, the new directory has the name. [main] */
weft_status weft_staging_commit(weft_staging *self, weft_error *err);

/* Removes the temporary directory. Also after commit, where it does nothing. [main] */
void weft_staging_cancel(weft_staging *self);

/* The names alone, for a process that writes into a directory which another one begins, commits or cancels; forget
 * frees them. */
weft_status weft_staging_name(weft_staging *self, const char *parent, const char *name, weft_error *err);
void weft_staging_forget(weft_staging *self); /* a zeroed one is fine */

/* Puts parent/.name.old back if nothing has the name, else removes it. One that is not there is fine. [main] */
weft_status weft_staging_recover(const char *parent, const char *name, weft_error *err);

/* Refuses, with a sentence, a file system that has less room for this user than `bytes`. purpose: "step-50". [main] */
weft_status weft_space_check(const char *directory, const char *purpose, int64_t bytes, weft_error *err);

#endif
