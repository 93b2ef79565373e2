/* host/base/file.c: temporary name, sync, rename, sync of the directory. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

FILE *weft_file_begin(weft_file *self, const char *path, weft_error *err) {
    int descriptor = -1;
    memset(self, 0, sizeof *self);
    self->path = strdup(path);
    if (asprintf(&self->temporary, "%s.%ld.tmp", path, (long)getpid()) < 0) self->temporary = NULL;
    if (self->path == NULL || self->temporary == NULL) {
        (void)weft_error_set(err, WEFT_E_MEMORY, "%s: no memory left to write it", path);
        goto done;
    }
    (void)unlink(self->temporary); /* of an earlier process with the same number */
    descriptor = open(self->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) self->stream = fdopen(descriptor, "wb");
    if (self->stream == NULL) {
        (void)weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    }
done:
    if (self->stream == NULL) {
        if (descriptor >= 0) {
            (void)close(descriptor);
            (void)unlink(self->temporary);
        }
        weft_file_cancel(self);
    }
    return self->stream;
}

/* Opens, syncs and closes the directory that holds path. */
static weft_status sync_parent(const char *path, weft_error *err) {
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    weft_status status = WEFT_OK;
    if (parent == NULL) return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory left to write it", path);
    status = weft_directory_sync(parent, err);
    free(parent);
    return status;
}

weft_status weft_file_commit(weft_file *self, weft_error *err) {
    weft_status status = WEFT_OK;
    bool good = fflush(self->stream) == 0 && !ferror(self->stream) && fsync(fileno(self->stream)) == 0;
    int why = errno;
    if (fclose(self->stream) != 0 && good) {
        good = false;
        why = errno;
    }
    self->stream = NULL;
    if (good && rename(self->temporary, self->path) != 0) {
        good = false;
        why = errno;
    }
    if (good) {
        free(self->temporary);
        self->temporary = NULL; /* the file has its final name now */
        status = sync_parent(self->path, err);
    } else {
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be written: %s; what was there before is unchanged",
                                self->path, strerror(why));
    }
    weft_file_cancel(self);
    return status;
}

void weft_file_cancel(weft_file *self) {
    if (self->stream != NULL) {
        (void)fclose(self->stream);
        self->stream = NULL;
    }
    if (self->temporary != NULL) (void)unlink(self->temporary);
    free(self->temporary);
    free(self->path);
    self->temporary = NULL;
    self->path = NULL;
}

weft_status weft_file_replace(const char *path, const void *bytes, size_t n, weft_error *err) {
    weft_file file;
    FILE *stream = weft_file_begin(&file, path, err);
    if (stream == NULL) return (weft_status)(err == NULL ? WEFT_E_SYSTEM : err->code);
    (void)fwrite(bytes, 1, n, stream); /* commit detects a failure */
    return weft_file_commit(&file, err);
}

weft_status weft_file_exists(bool *out, const char *path, weft_error *err) {
    *out = access(path, F_OK) == 0;
    if (*out || errno == ENOENT || errno == ENOTDIR) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
}

weft_status weft_directory_sync(const char *path, weft_error *err) {
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    weft_status status = WEFT_OK;
    if (descriptor < 0 || fsync(descriptor) != 0) {
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: the directory cannot be synced: %s", path, strerror(errno));
    }
    if (descriptor >= 0) (void)close(descriptor);
    return status;
}
