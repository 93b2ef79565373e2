/* host/checkpoint/text_files.c: see text_files.h. */
#include "checkpoint/text_files.h"

#include "base/file.h"
#include "base/join.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static weft_status add_name(weft_text_files *self, const char *name, weft_error *err) {
    char **more = realloc(self->names, (size_t)(self->n + 1) * sizeof *more);
    if (more != NULL) {
        self->names = more;
        more[self->n] = strdup(name);
    }
    if (more == NULL || more[self->n] == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the names of the tokenizer's files");
    self->n++;
    return WEFT_OK;
}

weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (text == NULL || text->plugin->file == NULL) return WEFT_OK;
    out->directory = text->directory;
    for (uint32_t i = 0; status == WEFT_OK; i++) {
        const char *name = text->plugin->file(text->tokenizer, i);
        if (name == NULL) break;
        status = add_name(out, name, err);
    }
    return status;
}

void weft_text_files_clear(weft_text_files *self) {
    for (int32_t i = 0; i < self->n; i++) free(self->names[i]);
    free(self->names);
    memset(self, 0, sizeof *self);
}

static int64_t file_size(const char *directory, const char *name) {
    char path[WEFT_PATH_BYTES];
    struct stat about;
    if (weft_path_join(path, directory, name, NULL) != WEFT_OK) return 0;
    return stat(path, &about) == 0 ? (int64_t)about.st_size : 0;
}

static weft_status copy_stream(FILE *from, FILE *to, const char *path, weft_error *err) {
    char bytes[1 << 16];
    size_t n = 0;
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0) (void)fwrite(bytes, 1, n, to); /* commit sees a failure */
    if (ferror(from)) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", path, strerror(errno));
    return WEFT_OK;
}

static weft_status copy_file(const char *to_directory, const char *from_directory, const char *name, weft_error *err) {
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    weft_file file;
    FILE *out = NULL, *in = NULL;
    weft_status status = weft_path_join(from, from_directory, name, err);
    if (status == WEFT_OK) status = weft_path_join(to, to_directory, name, err);
    if (status != WEFT_OK) return status;
    in = fopen(from, "rbe");
    if (in == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", from, strerror(errno));
    out = weft_file_begin(&file, to, err);
    if (out == NULL) status = WEFT_E_SYSTEM;
    if (status == WEFT_OK) status = copy_stream(in, out, from, err);
    if (status == WEFT_OK) status = weft_file_commit(&file, err);
    else weft_file_cancel(&file);
    (void)fclose(in);
    return status;
}

int64_t weft_text_files_bytes(const weft_text_files *self, int64_t block) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < self->n; i++) bytes += file_size(self->directory, self->names[i]) + block;
    return bytes;
}

weft_status weft_text_files_copy(const weft_text_files *self, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const char *name = self->names[i];
        char path[WEFT_PATH_BYTES];
        struct stat about;
        if (name[0] == '\0' || strchr(name, '/') != NULL)
            return weft_error_set(err, WEFT_E_PLUGIN, "the tokenizer names a file '%s', which is not a plain name",
                                  name);
        status = weft_path_join(path, directory, name, err);
        if (status == WEFT_OK && lstat(path, &about) != 0) status = copy_file(directory, self->directory, name, err);
    }
    return status;
}
