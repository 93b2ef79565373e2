/* host/run/text_files.c: see text_files.h. */
#include "run/text_files.h"

#include "base/file.h"
#include "base/join.h"
#include "plugin/enter.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static weft_status put_text(void *context, const char *bytes, size_t n) {
    return fwrite(bytes, 1, n, context) == n ? WEFT_OK : WEFT_E_MEMORY;
}

/* A file of a tokenizer that got tokens, where it is another one than the directory's. */
static weft_status take_changed(weft_text_file *file, const weft_text *text, uint32_t i, weft_error *err) {
    int32_t changed = 0;
    FILE *to = open_memstream(&file->text, &file->bytes);
    const weft_text_sink sink = {to, put_text};
    weft_status status = WEFT_OK;
    if (to == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokenizer's file %s", file->name);
    WEFT_PLUGIN_CALL(status, text->added, file, err, text->tokenizer, i, &sink, &changed);
    if (fclose(to) != 0 && status == WEFT_OK)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokenizer's file %s", file->name);
    if (changed != 0 && status == WEFT_OK) return WEFT_OK;
    free(file->text);
    file->text = NULL;
    return status;
}

static weft_status add_name(weft_text_files *self, const char *name, weft_error *err) {
    weft_text_file *more = realloc(self->files, (size_t)(self->n + 1) * sizeof *more);
    if (more != NULL) {
        self->files = more;
        memset(&more[self->n], 0, sizeof *more);
        more[self->n].name = strdup(name);
    }
    if (more == NULL || more[self->n].name == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the names of the tokenizer's files");
    self->n++;
    return WEFT_OK;
}

/* The chat template that the model has learned answers with, in place of the one that it came with. */
static weft_status take_template(weft_text_files *self, const char *source, weft_error *err) {
    const char *name = "chat_template.jinja";
    weft_text_file *file = NULL;
    weft_status status = WEFT_OK;
    int32_t i = 0;
    while (i < self->n && strcmp(self->files[i].name, name) != 0) i++;
    if (i == self->n) status = add_name(self, name, err);
    if (status != WEFT_OK) return status;
    file = &self->files[i];
    free(file->text);
    file->text = strdup(source);
    if (file->text == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a chat template");
    file->bytes = strlen(source);
    return WEFT_OK;
}

weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (text == NULL) return WEFT_OK;
    out->directory = text->directory;
    for (uint32_t i = 0; text->plugin->file != NULL && status == WEFT_OK; i++) {
        const char *name = NULL;
        WEFT_PLUGIN_ASK(name, text->plugin, file, text->tokenizer, i);
        if (name == NULL) break;
        status = add_name(out, name, err);
        if (status == WEFT_OK && text->added != NULL) status = take_changed(&out->files[i], text, i, err);
    }
    if (status == WEFT_OK && text->chat_source != NULL) status = take_template(out, text->chat_source, err);
    return status;
}

void weft_text_files_clear(weft_text_files *self) {
    for (int32_t i = 0; i < self->n; i++) {
        free(self->files[i].name);
        free(self->files[i].text);
    }
    free(self->files);
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
    for (int32_t i = 0; i < self->n; i++) {
        const weft_text_file *file = &self->files[i];
        bytes += (file->text != NULL ? (int64_t)file->bytes : file_size(self->directory, file->name)) + block;
    }
    return bytes;
}

weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const weft_text_file *file = &self->files[i];
        char path[WEFT_PATH_BYTES];
        struct stat about;
        if (file->name[0] == '\0' || strchr(file->name, '/') != NULL)
            return weft_error_set(err, WEFT_E_PLUGIN, "the tokenizer names a file '%s', which is not a plain name",
                                  file->name);
        status = weft_path_join(path, directory, file->name, err);
        if (status != WEFT_OK || lstat(path, &about) == 0) continue;
        if (file->text != NULL) status = weft_file_replace(path, file->text, file->bytes, err);
        else status = copy_file(directory, self->directory, file->name, err);
    }
    return status;
}
