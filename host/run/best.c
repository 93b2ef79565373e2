/* host/run/best.c: see best.h. */
#include "run/best.h"

#include "base/file.h"
#include "base/join.h"
#include "run/list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kind of file that a path names: S_IFMT of its mode, 0 if it does not exist. A link is not followed. */
static weft_status kind_of(mode_t *out, const char *path, weft_error *err) {
    struct stat info;
    *out = 0;
    if (lstat(path, &info) == 0) *out = info.st_mode & S_IFMT;
    else if (errno != ENOENT)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
    return WEFT_OK;
}

static weft_status drop_link(const char *path, weft_error *err) {
    if (unlink(path) == 0 || errno == ENOENT) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
}

/* Under another name first: a rename replaces a link in one step. */
static weft_status put_link(const char *directory, const char *path, uint64_t step, const weft_host *host,
                            weft_error *err) {
    char target[40], temporary[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(temporary, directory, "." WEFT_BEST_NAME ".tmp", err);
    (void)snprintf(target, sizeof target, "step-%" PRIu64, step);
    if (status == WEFT_OK) status = drop_link(temporary, err);
    if (status != WEFT_OK) return status;
    if (symlink(target, temporary) != 0 || rename(temporary, path) != 0) {
        weft_log(host, WEFT_LOG_WARN, "%s cannot be made to lead to %s: %s", path, target, strerror(errno));
        return WEFT_OK;
    }
    return weft_directory_sync(directory, err);
}

weft_status weft_best_point(const char *directory, uint64_t best_step, const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES], target[WEFT_PATH_BYTES];
    mode_t now = 0, best = 0;
    weft_status status = weft_path_join(path, directory, WEFT_BEST_NAME, err);
    if (status == WEFT_OK) status = weft_step_path(target, directory, best_step, err);
    if (status == WEFT_OK) status = kind_of(&now, path, err);
    if (status == WEFT_OK) status = kind_of(&best, target, err);
    if (status != WEFT_OK) return status;
    if (now != 0 && now != S_IFLNK) {
        weft_log(host, WEFT_LOG_WARN, "%s is no link of this run's and stays as it is: move it away", path);
        return WEFT_OK;
    }
    return best_step > 0 && best == S_IFDIR ? put_link(directory, path, best_step, host, err) : drop_link(path, err);
}
