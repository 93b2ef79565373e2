/* host/run/text_files.c: see text_files.h. */
#include "run/text_files.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"
#include "model/config_json.h"
#include "plugin/enter.h"

#include <errno.h>
#include <jansson.h>
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

/* ---- the token that ends a text ---- */

/* The bytes of a file that was read, ended by a zero; NULL: it is not among the tokenizer's. */
static const char *find_text(const weft_text_files *self, const char *name) {
    for (int32_t i = 0; i < self->n; i++)
        if (strcmp(self->files[i].name, name) == 0) return self->files[i].text;
    return NULL;
}

/* A template that writes eos_token would write another text if that became another token. */
static bool template_has_eos(const weft_text_files *self) {
    const char *source = find_text(self, "chat_template.jinja"), *config = NULL;
    char *dumped = NULL;
    json_t *root = NULL;
    bool has = source != NULL && strstr(source, "eos_token") != NULL;
    if (source == NULL) {
        config = find_text(self, "tokenizer_config.json");
        if (config != NULL) (void)weft_json_parse(&root, config, strlen(config), JSON_DECODE_INT_AS_REAL, "", NULL);
        dumped = json_dumps(json_object_get(root, "chat_template"), JSON_ENCODE_ANY);
        has = dumped != NULL && strstr(dumped, "eos_token") != NULL;
    }
    json_decref(root);
    free(dumped);
    return has;
}

/* eos_token of one of the tokenizer's files, where it is there and another one. */
static weft_status change_eos(weft_text_file *file, const char *token, weft_error *err) {
    char *value = NULL, *changed = NULL;
    size_t bytes = 0;
    json_t *root = NULL, *name = json_string(token);
    weft_status status =
        file->text == NULL ? WEFT_OK
                           : weft_json_parse(&root, file->text, file->bytes, JSON_DECODE_INT_AS_REAL, file->name, err);
    const json_t *now = json_object_get(root, "eos_token");
    const char *is = json_string_value(json_is_object(now) ? json_object_get(now, "content") : now);
    const bool changes = now != NULL && (is == NULL || strcmp(is, token) != 0) && name != NULL;
    if (changes) value = json_dumps(name, JSON_ENCODE_ANY);
    if (value != NULL) {
        const weft_json_change change = {"eos_token", value};
        changed = weft_config_json_change(file->text, strlen(file->text), &change, 1, &bytes);
    }
    if (changes && changed == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokenizer's file %s", file->name);
    if (changed != NULL) {
        free(file->text);
        file->text = changed;
        file->bytes = bytes;
    }
    json_decref(name);
    json_decref(root);
    free(value);
    return status;
}

/* llama.cpp and vLLM take the tokenizer's eos_token, transformers generation_config.json or config.json. */
static weft_status take_end(weft_text_files *self, const weft_text *text, const char *model, weft_error *err) {
    weft_status status = weft_stop_ids_read(&self->others, model, text->info.eos, err);
    if (status != WEFT_OK) return status;
    self->end = (weft_stop_ids){.ids = {text->end}, .n = 1};
    if (template_has_eos(self)) return WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++)
        if (strcmp(self->files[i].name, "tokenizer_config.json") == 0 ||
            strcmp(self->files[i].name, "special_tokens_map.json") == 0)
            status = change_eos(&self->files[i], text->end_token, err);
    return status;
}

/* ---- all ---- */

weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, bool reads, const char *model,
                                 weft_error *err) {
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
    return status == WEFT_OK && reads && text->end_token != NULL ? take_end(out, text, model, err) : status;
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
    if (status != WEFT_OK || self->end.n == 0) return status;
    return weft_stop_ids_save(&self->end, &self->others, directory, err);
}
