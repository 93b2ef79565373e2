/* host/run/staging.c: see staging.h. */
#include "run/staging.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

void weft_staging_forget(weft_staging *self) {
    free(self->parent);
    free(self->final);
    free(self->path);
    free(self->old);
    memset(self, 0, sizeof *self);
}

void weft_staging_name(weft_staging *self, const char *parent, const char *name) {
    self->parent = weft_strdup(parent);
    self->final = weft_text_of("%s/%s", parent, name);
    self->path = weft_text_of("%s/.%s.tmp", parent, name);
    self->old = weft_text_of("%s/.%s.old", parent, name);
}

static bool is_path_there(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0;
}

static weft_status cannot_move(const char *from, const char *to, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be renamed to %s: %s", from, to, strerror(errno));
}

static weft_status recover_old(const weft_staging *self, weft_error *err) {
    if (!is_path_there(self->old)) return WEFT_OK;
    if (is_path_there(self->final)) {
        const weft_status status = weft_unknown_files_keep(self->old, self->final, err);
        return status == WEFT_OK ? weft_tree_remove(self->old, err) : status;
    }
    if (rename(self->old, self->final) != 0) return cannot_move(self->old, self->final, err);
    return weft_directory_sync(self->parent, err);
}

weft_status weft_staging_recover(const char *parent, const char *name, weft_error *err) {
    weft_staging names;
    weft_status status = WEFT_OK;
    weft_staging_name(&names, parent, name);
    status = recover_old(&names, err);
    weft_staging_forget(&names);
    return status;
}

weft_status weft_staging_begin(weft_staging *self, const char *parent, const char *name, weft_error *err) {
    weft_status status = weft_tree_make(parent, err);
    weft_staging_name(self, parent, name);
    if (status == WEFT_OK) status = recover_old(self, err);
    if (status == WEFT_OK) status = weft_unknown_files_keep(self->path, self->final, err);
    if (status == WEFT_OK) status = weft_tree_remove(self->path, err);
    if (status == WEFT_OK && mkdir(self->path, 0777) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", self->path, strerror(errno));
    if (status != WEFT_OK) weft_staging_forget(self);
    return status;
}

/* On file systems that cannot exchange names only .name.old exists between the two moves. */
static weft_status take_name(const weft_staging *self, weft_error *err) {
    const bool replaces = is_path_there(self->final);
    if (replaces && renameat2(AT_FDCWD, self->path, AT_FDCWD, self->final, RENAME_EXCHANGE) == 0) return WEFT_OK;
    if (replaces && errno != EINVAL && errno != ENOSYS) return cannot_move(self->path, self->final, err);
    if (replaces && rename(self->final, self->old) != 0) return cannot_move(self->final, self->old, err);
    if (rename(self->path, self->final) == 0) return WEFT_OK;
    (void)cannot_move(self->path, self->final, err);
    if (replaces) (void)rename(self->old, self->final);
    return WEFT_E_SYSTEM;
}

static weft_status drop_replaced(const weft_staging *self, const char *path, weft_error *err) {
    const weft_status status = weft_unknown_files_keep(path, self->final, err);
    if (status == WEFT_OK) (void)weft_tree_remove(path, NULL);
    return status;
}

weft_status weft_staging_commit(weft_staging *self, weft_error *err) {
    weft_status status = weft_directory_sync(self->path, err);
    if (status == WEFT_OK) status = take_name(self, err);
    if (status != WEFT_OK) {
        weft_staging_cancel(self);
        return status;
    }
    status = weft_directory_sync(self->parent, err);
    /* The replaced directory has one of these two names now. It is removed once its successor is synced and has its
     * foreign files; a failure to remove it is reported by the next save or weft_checkpoint_retain. */
    if (status == WEFT_OK) status = drop_replaced(self, self->path, err);
    if (status == WEFT_OK) status = drop_replaced(self, self->old, err);
    weft_staging_forget(self);
    return status;
}

void weft_staging_cancel(weft_staging *self) {
    if (self->path != NULL) (void)weft_tree_remove(self->path, NULL);
    weft_staging_forget(self);
}

weft_status weft_space_check(const char *directory, const char *purpose, int64_t bytes, weft_error *err) {
    struct statvfs about;
    char needed[WEFT_UNIT_SIZE], there[WEFT_UNIT_SIZE];
    uint64_t room = 0;
    if (statvfs(directory, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: its free space cannot be determined: %s", directory,
                              strerror(errno));
    room = (uint64_t)about.f_bavail * (uint64_t)about.f_frsize;
    if (about.f_blocks == 0 || (uint64_t)bytes <= room) return WEFT_OK; /* some file systems report 0 */
    return weft_error_set(err, WEFT_E_SYSTEM,
                          "%s: %s needs %s and %s are free. Fix: free some space, lower [checkpoint] keep, or choose "
                          "another [run] out",
                          directory, purpose, weft_unit_bytes(needed, bytes), weft_unit_bytes(there, (int64_t)room));
}
