/* host/program/token_files.c: see token_files.h. */
#include "program/token_files.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>

enum { MOST_BYTES = 256 << 20 };

/* ---- one directory ---- */

/* *text stays NULL if the file does not exist. */
static weft_status read_file(char **text, size_t *bytes, const char *directory, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    bool is_there = false;
    weft_status status = weft_path_join(path, directory, name, err);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    return status == WEFT_OK && is_there ? weft_text_read(text, bytes, path, MOST_BYTES, err) : status;
}

weft_status weft_token_files_pad(char **out, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    json_t *config = NULL;
    const json_t *found = NULL;
    const char *name = NULL;
    weft_status status = read_file(&text, &bytes, directory, "tokenizer_config.json", err);
    *out = NULL;
    if (text != NULL) status = weft_path_join(path, directory, "tokenizer_config.json", err);
    if (text != NULL && status == WEFT_OK)
        status = weft_json_parse(&config, text, bytes, JSON_DECODE_INT_AS_REAL, path, err);
    found = json_object_get(config, "pad_token");
    name = json_string_value(json_is_object(found) ? json_object_get(found, "content") : found);
    if (name != NULL && (*out = strdup(name)) == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a pad token");
    json_decref(config);
    free(text);
    return status;
}

/* ---- two ---- */

static bool lists_token(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(list, i), "content"));
        if (other != NULL && strcmp(other, name) == 0) return true;
    }
    return false;
}

static char *list_more(const json_t *before, const json_t *list, const char *pad) {
    char *all = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(list, i), "content"));
        char *longer = NULL;
        if (name == NULL || (pad != NULL && strcmp(name, pad) == 0) || lists_token(before, name)) continue;
        if (asprintf(&longer, "%s%s%s", all == NULL ? "" : all, all == NULL ? "" : ",", name) < 0) break;
        free(all);
        all = longer;
    }
    return all;
}

/* The files are mostly the same, and large. */
static char *compare(const char *had, size_t n_had, const char *has, size_t n_has, const char *pad) {
    json_t *before = NULL, *after = NULL;
    char *more = NULL;
    if (n_had == n_has && memcmp(had, has, n_had) == 0) return NULL;
    if (weft_json_parse(&before, had, n_had, JSON_ALLOW_NUL, "", NULL) == WEFT_OK &&
        weft_json_parse(&after, has, n_has, JSON_ALLOW_NUL, "", NULL) == WEFT_OK)
        more = list_more(json_object_get(before, "added_tokens"), json_object_get(after, "added_tokens"), pad);
    json_decref(after);
    json_decref(before);
    return more;
}

weft_status weft_token_files_more(char **out, const char *had, const char *has, weft_error *err) {
    char *one = NULL, *other = NULL, *own_pad = NULL, *pad = NULL;
    size_t n_one = 0, n_other = 0;
    weft_status status = weft_token_files_pad(&own_pad, had, err);
    *out = NULL;
    if (status == WEFT_OK && own_pad == NULL) status = weft_token_files_pad(&pad, has, err);
    if (status == WEFT_OK) status = read_file(&one, &n_one, had, "tokenizer.json", err);
    if (status == WEFT_OK) status = read_file(&other, &n_other, has, "tokenizer.json", err);
    if (status == WEFT_OK && one != NULL && other != NULL) *out = compare(one, n_one, other, n_other, pad);
    free(own_pad);
    free(pad);
    free(one);
    free(other);
    return status;
}

/* ---- a run ---- */

/* `list` begins with all of `first`. */
static bool begins_with(const char *list, const char *first) {
    const size_t n = strlen(first);
    return strncmp(list, first, n) == 0 && (list[n] == '\0' || list[n] == ',');
}

static weft_status refuse(const weft_run *run, const char *more, weft_error *err) {
    const char *from = run->settings.adapter_from;
    if (run->settings.tokenizer.add[0] != '\0')
        return weft_config_reject(run->config, "tokenizer", "add", err,
                                  "does not begin with the tokens that the adapter in %s was made with, and so gives "
                                  "them other ids: set add = %s, and others behind them",
                                  from, more);
    return weft_config_reject(run->config, "adapter", run->settings.adapter.use[0] != '\0' ? "use" : "from", err,
                              "(%s) was made with tokens that this run's tokenizer does not have: set [tokenizer] add "
                              "= %s, or path = %s for the tokenizer that lies there",
                              from, more, from);
}

weft_status weft_token_files_check(const weft_run *run, weft_error *err) {
    const weft_tokenizer_settings *keys = &run->settings.tokenizer;
    char *more = NULL;
    weft_status status = WEFT_OK;
    if (run->settings.adapter_from[0] == '\0' || run->parts[WEFT_PART_TOKENIZER].loaded == NULL) return WEFT_OK;
    status = weft_token_files_more(&more, keys->path[0] != '\0' ? keys->path : run->settings.model.path,
                                   run->settings.adapter_from, err);
    if (status == WEFT_OK && more != NULL && !begins_with(keys->add, more)) status = refuse(run, more, err);
    free(more);
    return status;
}
