/* host/checkpoint/text_files.c: see text_files.h. */
#include "checkpoint/text_files.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"
#include "model/config_json.h"
#include "plugin/enter.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 30 };

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

static bool is_additional(const char *name) {
    const size_t n = sizeof WEFT_ADDITIONAL_TEMPLATES - 1;
    return strncmp(name, WEFT_ADDITIONAL_TEMPLATES, n) == 0 && name[n] == '/';
}

/* True for a name without a folder, and for a template in additional_chat_templates. */
static bool is_plain(const char *name) {
    const char *at = is_additional(name) ? name + sizeof WEFT_ADDITIONAL_TEMPLATES : name;
    return at[0] != '\0' && strchr(at, '/') == NULL && (at == name || at[0] != '.');
}

static weft_status add_name(weft_text_files *self, const char *name, weft_error *err) {
    weft_text_file *more = NULL;
    if (!is_plain(name))
        return weft_error_set(err, WEFT_E_PLUGIN, "the tokenizer names a file '%s', which is not a plain name", name);
    more = realloc(self->files, (size_t)(self->n + 1) * sizeof *more);
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

/* Removes the templates in additional_chat_templates: transformers would choose one of them before the model's. */
static void drop_additional(weft_text_files *self) {
    int32_t n = 0;
    for (int32_t i = 0; i < self->n; i++) {
        if (!is_additional(self->files[i].name)) {
            self->files[n++] = self->files[i];
            continue;
        }
        free(self->files[i].name);
        free(self->files[i].text);
    }
    self->n = n;
}

/* Replaces the templates of the files by the one that the model was trained with. */
static weft_status take_template(weft_text_files *self, const char *source, weft_error *err) {
    const char *name = "chat_template.jinja";
    weft_text_file *file = NULL;
    weft_status status = WEFT_OK;
    int32_t i = 0;
    drop_additional(self);
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

static weft_status read_own(weft_text_file *file, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    const weft_status status = weft_path_join(path, directory, file->name, err);
    return status == WEFT_OK ? weft_text_read(&file->text, &file->bytes, path, MOST_BYTES, err) : status;
}

weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, bool reads, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (text == NULL) return WEFT_OK;
    for (uint32_t i = 0; text->plugin->file != NULL && status == WEFT_OK; i++) {
        const char *name = NULL;
        WEFT_PLUGIN_ASK(name, text->plugin, file, text->tokenizer, i);
        if (name == NULL) break;
        status = add_name(out, name, err);
        if (status == WEFT_OK && text->added != NULL) status = take_changed(&out->files[i], text, i, err);
    }
    if (status == WEFT_OK && text->chat_source != NULL) status = take_template(out, text->chat_source, err);
    for (int32_t i = 0; reads && i < out->n && status == WEFT_OK; i++)
        if (out->files[i].text == NULL) status = read_own(&out->files[i], text->directory, err);
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

int64_t weft_text_files_bytes(const weft_text_files *self, int64_t block) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < self->n; i++) bytes += (int64_t)self->files[i].bytes + block;
    return bytes;
}

/* Creates the folder of a template in additional_chat_templates. */
static weft_status make_folder(const char *name, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (!is_additional(name)) return WEFT_OK;
    status = weft_path_join(path, directory, WEFT_ADDITIONAL_TEMPLATES, err);
    if (status == WEFT_OK && mkdir(path, 0777) != 0 && errno != EEXIST)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be made: %s", path, strerror(errno));
    return status;
}

weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const weft_text_file *file = &self->files[i];
        char path[WEFT_PATH_BYTES];
        bool is_there = false;
        status = make_folder(file->name, directory, err);
        if (status == WEFT_OK) status = weft_path_join(path, directory, file->name, err);
        if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
        if (status == WEFT_OK && !is_there && file->text != NULL)
            status = weft_file_replace(path, file->text, file->bytes, err);
    }
    return status;
}
