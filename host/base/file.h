/* host/base/file.h: files and directories. Files are replaced atomically: data is written to a temporary file in the
 * same directory; commit syncs it, renames it and syncs the directory. A crash or a full disk keeps the old content.
 *
 *     weft_file file;
 *     FILE *stream = weft_file_begin(&file, "runs/one/config.ini", &err);
 *     fprintf(stream, ...);
 *     weft_file_commit(&file, &err);      or weft_file_cancel(&file) */
#ifndef WEFT_HOST_BASE_FILE_H
#define WEFT_HOST_BASE_FILE_H

#include "base/text.h"

#include <stdbool.h>
#include <weft/base.h>

/* Writes the absolute path of `name`, relative to the directory of the program `weft` ("plugins", "../share/weft"),
 * with links resolved. A tool in libexec/weft gets the same path as `weft` itself. Returns false if the file does not
 * exist. [any-thread] */
bool weft_sibling_program(char out[WEFT_PATH_BYTES], const char *name);

/* Creates the directory and its parents; one that exists is fine. [any-thread] */
weft_status weft_tree_make(const char *path, weft_error *err);
/* Removes a file or a directory tree. Links are removed, never followed. A missing path is fine. [main] */
weft_status weft_tree_remove(const char *path, weft_error *err);
/* Sets *out to whether the directory exists and contains a name that begins with `beginning`. [any-thread] */
weft_status weft_tree_has(bool *out, const char *path, const char *beginning, weft_error *err);
/* Calls visit for each name in the directory except "." and "..". A missing directory counts as empty. Stops at the
 * first failure. [any-thread] */
weft_status weft_tree_visit(const char *path, weft_status (*visit)(void *context, const char *name, weft_error *err),
                            void *context, weft_error *err);

typedef struct weft_file {
    char *path;
    char *temporary; /* path.<process>.tmp */
    FILE *stream;
} weft_file;

/* Opens the temporary file. Returns NULL and sets err on failure; cancel is not needed then. [any-thread] */
FILE *weft_file_begin(weft_file *self, const char *path, weft_error *err);

/* Always releases self. On failure the temporary file is removed and path is unchanged. [any-thread] */
weft_status weft_file_commit(weft_file *self, weft_error *err);

/* Removes the temporary file. Has no effect after commit or a failed begin. [any-thread] */
void weft_file_cancel(weft_file *self);

/* Combines begin, write and commit. [any-thread] */
weft_status weft_file_replace(const char *path, const void *bytes, size_t n, weft_error *err);
/* Does the same with JSON. flags: of json_dumps. [any-thread] */
weft_status weft_file_write_json(const char *path, const json_t *json, size_t flags, weft_error *err);

/* Sets *out to whether a file of this name exists, following links. Only ENOENT and ENOTDIR count as absent. Any other
 * failure is an error, because a transient file system failure must not change a run. [any-thread] */
weft_status weft_file_exists(bool *out, const char *path, weft_error *err);

/* Returns true if both files can be read and have equal contents. [any-thread] */
bool weft_files_are_equal(const char *a, const char *b);

/* Makes renames and new names in the directory durable. [any-thread] */
weft_status weft_directory_sync(const char *path, weft_error *err);

#endif
