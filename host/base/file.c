/* host/base/file.c: temporary name, sync, rename, sync of the directory. */
#include "base/file.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Replaces a tool's directory libexec/weft: in a build tree or a bundle it is below the program's directory, else next
 * to bin. */
static void leave_libexec(char path[PATH_MAX]) {
    static const char below[] = "/libexec/weft";
    const size_t n = strlen(path), suffix = sizeof below - 1;
    char weft[PATH_MAX + sizeof "/weft"];
    if (n < suffix || strcmp(path + n - suffix, below) != 0) return;
    path[n - suffix] = '\0';
    (void)snprintf(weft, sizeof weft, "%s/weft", path);
    if (access(weft, X_OK) != 0) (void)strcat(path, "/bin"); /* shorter than the removed part */
}

bool weft_sibling_program(char out[WEFT_PATH_BYTES], const char *name) {
    char program[PATH_MAX], path[PATH_MAX + 256], real[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int n;
    program[length > 0 ? length : 0] = '\0';
    if (program[0] != '/') return false;
    *strrchr(program, '/') = '\0';
    leave_libexec(program);
    n = snprintf(path, sizeof path, "%s/%s", program, name);
    if (n < 0 || (size_t)n >= sizeof path || realpath(path, real) == NULL) return false;
    n = snprintf(out, WEFT_PATH_BYTES, "%s", real);
    return n >= 0 && n < WEFT_PATH_BYTES;
}

static weft_status make_one(const char *path, weft_error *err) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return WEFT_OK;
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be created: %s", path,
                          errno == EEXIST ? "a file of that name exists" : strerror(errno));
}

weft_status weft_tree_make(const char *path, weft_error *err) {
    weft_status status = WEFT_OK;
    char *part = weft_strdup(path);
    for (char *at = part + 1; *at != '\0' && status == WEFT_OK; at++) {
        if (*at != '/') continue;
        *at = '\0';
        status = make_one(part, err);
        *at = '/';
    }
    if (status == WEFT_OK) status = make_one(part, err);
    free(part);
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

weft_status weft_tree_remove(const char *path, weft_error *err) {
    struct stat info;
    if (lstat(path, &info) != 0 && errno == ENOENT) return WEFT_OK;
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
    return WEFT_OK;
}

static weft_status cannot_list(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: the directory cannot be listed: %s", path, strerror(errno));
}

weft_status weft_tree_visit(const char *path, weft_status (*visit)(void *context, const char *name, weft_error *err),
                            void *context, weft_error *err) {
    weft_status status = WEFT_OK;
    const struct dirent *entry = NULL;
    DIR *directory = opendir(path);
    if (directory == NULL && (errno == ENOENT || errno == ENOTDIR)) return WEFT_OK;
    if (directory == NULL) return cannot_list(path, err);
    for (errno = 0; status == WEFT_OK && (entry = readdir(directory)) != NULL; errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(context, entry->d_name, err);
    if (status == WEFT_OK && errno != 0) status = cannot_list(path, err);
    (void)closedir(directory);
    return status;
}

typedef struct search {
    const char *beginning;
    bool found;
} search;

static weft_status note_if_found(void *context, const char *name, weft_error *err) {
    search *self = context;
    (void)err;
    self->found = self->found || strncmp(name, self->beginning, strlen(self->beginning)) == 0;
    return WEFT_OK;
}

weft_status weft_tree_has(bool *out, const char *path, const char *beginning, weft_error *err) {
    search self = {beginning, false};
    const weft_status status = weft_tree_visit(path, note_if_found, &self, err);
    *out = self.found;
    return status;
}

FILE *weft_file_begin(weft_file *self, const char *path, weft_error *err) {
    int descriptor = -1;
    memset(self, 0, sizeof *self);
    self->path = weft_strdup(path);
    self->temporary = weft_text_of("%s.%ld.tmp", path, (long)getpid());
    (void)unlink(self->temporary); /* of an earlier process with the same number */
    descriptor = open(self->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) self->stream = fdopen(descriptor, "wb");
    if (self->stream != NULL) return self->stream;
    (void)weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    if (descriptor >= 0) (void)close(descriptor);
    weft_file_cancel(self);
    return NULL;
}

weft_status weft_file_commit(weft_file *self, weft_error *err) {
    char *slash = NULL;
    weft_status status = WEFT_OK;
    int why = 0;
    if (fflush(self->stream) != 0 || ferror(self->stream) || fsync(fileno(self->stream)) != 0)
        why = errno != 0 ? errno : EIO;
    if (fclose(self->stream) != 0 && why == 0) why = errno;
    self->stream = NULL;
    if (why == 0 && rename(self->temporary, self->path) != 0) why = errno;
    if (why == 0) {
        free(self->temporary);
        self->temporary = NULL; /* the file has its final name now */
        slash = strrchr(self->path, '/');
        if (slash != NULL) slash[slash == self->path ? 1 : 0] = '\0';
        status = weft_directory_sync(slash == NULL ? "." : self->path, err);
    } else {
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be written: %s; the previous file is unchanged",
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

weft_status weft_file_write_json(const char *path, const json_t *json, size_t flags, weft_error *err) {
    char *text = json_dumps(json, flags);
    const weft_status status = text == NULL ? weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its JSON", path)
                                            : weft_file_replace(path, text, strlen(text), err);
    free(text);
    return status;
}

weft_status weft_file_exists(bool *out, const char *path, weft_error *err) {
    *out = access(path, F_OK) == 0;
    if (*out || errno == ENOENT || errno == ENOTDIR) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
}

weft_status weft_directory_sync(const char *path, weft_error *err) {
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    weft_status status = WEFT_OK;
    if (descriptor < 0 || fsync(descriptor) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: the directory cannot be synced: %s", path, strerror(errno));
    if (descriptor >= 0) (void)close(descriptor);
    return status;
}

bool weft_files_are_equal(const char *a, const char *b) {
    FILE *x = fopen(a, "rbe"), *y = fopen(b, "rbe");
    int p = 0, q = 0;
    while (x != NULL && y != NULL && p == q && p != EOF) {
        p = getc(x);
        q = getc(y);
    }
    if (x != NULL) (void)fclose(x);
    if (y != NULL) (void)fclose(y);
    return p == EOF && q == EOF;
}
