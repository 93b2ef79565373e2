/* host/base/file.h: a file appears whole or not at all. What is written goes to a temporary name beside it; commit
 * syncs it, renames it into place and syncs the directory, so that after a crash or a full disk the old content is
 * still there.
 *
 *     weft_file file;
 *     FILE *stream = weft_file_begin(&file, "runs/one/config.ini", &err);
 *     fprintf(stream, ...);
 *     weft_file_commit(&file, &err);      or weft_file_cancel(&file)
 */
#ifndef WEFT_HOST_BASE_FILE_H
#define WEFT_HOST_BASE_FILE_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_file {
    char *path;
    char *temporary; /* path.<process>.tmp */
    FILE *stream;
} weft_file;

/* NULL and err on failure; nothing is to be cancelled then. [any-thread] */
FILE *weft_file_begin(weft_file *self, const char *path, weft_error *err);

/* Whatever it returns, self is done with; on failure the temporary file is gone and path is as it was. [any-thread] */
weft_status weft_file_commit(weft_file *self, weft_error *err);

/* Also after commit or a failed begin, where it does nothing. [any-thread] */
void weft_file_cancel(weft_file *self);

/* All three in one. [any-thread] */
weft_status weft_file_replace(const char *path, const void *bytes, size_t n, weft_error *err);

/* Sets *out to whether something has this name; a link counts as the file that it leads to. Only ENOENT and ENOTDIR are
 * absence: any other failure is an error, because a file system that fails for a moment must not change a run.
 * [any-thread] */
weft_status weft_file_exists(bool *out, const char *path, weft_error *err);

/* Makes renames and new names in the directory last. [any-thread] */
weft_status weft_directory_sync(const char *path, weft_error *err);

#endif
