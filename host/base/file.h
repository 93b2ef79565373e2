/* host/base/file.h: atomic file replacement. Data is written to a temporary file in the same directory. Commit syncs
 * it, renames it to its final name and syncs the directory. After a crash or a full disk the old content is still
 * there.
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

/* Finds the files that are installed with the program, in any install prefix. */

/* Writes the absolute path of `name`, relative to the directory of the program `weft` ("plugins", "../share/weft"),
 * with links resolved. A tool in libexec/weft gets the same path as `weft` itself. Returns false if the file does not
 * exist. [any-thread] */
bool weft_find_beside_program(char out[WEFT_PATH_BYTES], const char *name);

/* Finds the SDK templates that `weft plugins` uses. */

/* Writes the absolute path of `name` in share/weft/template of the installation, or next to the program in a build
 * tree. WEFT_E_SYSTEM: this program was installed without them. */
weft_status weft_templates_find(char out[WEFT_PATH_BYTES], const char *name, weft_error *err);

/* Creates and removes directories. */

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

/* Sets *out to whether a file of this name exists, following links. Only ENOENT and ENOTDIR count as absent. Any other
 * failure is an error, because a transient file system failure must not change a run. [any-thread] */
weft_status weft_file_exists(bool *out, const char *path, weft_error *err);

/* Makes renames and new names in the directory durable. [any-thread] */
weft_status weft_directory_sync(const char *path, weft_error *err);

#endif
