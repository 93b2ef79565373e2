/* host/program/tokens.c: see tokens.h. Which ids they are follows from the tokenizer alone, so each command that opens
 * the run comes to the same model. */
#include "program/tokens.h"

#include "base/text.h"
#include "plugin/call.h"
#include "plugin/enter.h"

#include <jansson.h>
#include <stdlib.h>

/* ---- which ---- */

/* What is to be added, the pad token behind the others. */
typedef struct token_list {
    char *text; /* what the names lie in */
    const char **names;
    uint32_t n;
    int32_t pad; /* its number among them; -1: none is added */
} token_list;

static void free_list(token_list *list) {
    free((void *)list->names);
    free(list->text);
    memset(list, 0, sizeof *list);
}

bool weft_tokens_wanted(const weft_run *run) {
    return run->settings.tokenizer.pad == WEFT_PAD_ADD || run->settings.tokenizer.add[0] != '\0';
}

/* The id of what is written so; -1: there is none, or the tokenizer does not say. */
static int32_t find_token(const weft_text *text, const char *name) {
    const weft_tokenizer_special *special = weft_text_extension(text, WEFT_TOKENIZER_SPECIAL);
    if (special == NULL || !WEFT_WHOLE(special, weft_tokenizer_special)) return -1;
    return special->id(text->tokenizer, name, strlen(name));
}

static weft_status refuse_name(const token_list *list, const char *name, const weft_text *text, const weft_run *run,
                               weft_error *err) {
    const int32_t id = find_token(text, name);
    if (id >= 0)
        return weft_config_reject(run->config, "tokenizer", "add", err,
                                  "names %s, which the tokenizer in %s has already, with the id %d: take it out", name,
                                  text->directory, (int)id);
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return weft_config_reject(run->config, "tokenizer", "add", err, "names %s twice: take one of them out",
                                      name);
    return WEFT_OK;
}

static weft_status take_names(token_list *list, const weft_text *text, const weft_run *run, weft_error *err) {
    char *rest = list->text;
    weft_status status = WEFT_OK;
    while (rest != NULL && *rest != '\0' && status == WEFT_OK) {
        const char *name = strsep(&rest, ",");
        status = refuse_name(list, name, text, run, err);
        list->names[list->n++] = name;
    }
    return status;
}

/* Nothing where the tokenizer's pad token is written so. */
static weft_status take_pad(token_list *list, const weft_text *text, const weft_run *run, weft_error *err) {
    const char *name = run->settings.tokenizer.pad_token;
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info, .pad = -1};
    if (*name == '\0') return weft_config_reject(run->config, "tokenizer", "pad_token", err, "is empty");
    WEFT_PLUGIN_TELL(text->plugin, info, text->tokenizer, &info);
    if (info.pad >= 0 && info.pad == find_token(text, name)) return WEFT_OK;
    if (info.pad >= 0)
        return weft_config_reject(run->config, "tokenizer", "pad", err,
                                  "asks for a pad token, and the tokenizer in %s has one, id %d, which is not %s: take "
                                  "the line out",
                                  text->directory, (int)info.pad, name);
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return weft_config_reject(run->config, "tokenizer", "add", err,
                                      "names %s, which pad = add adds: take it out of the list", name);
    list->pad = (int32_t)list->n;
    list->names[list->n++] = name;
    return WEFT_OK;
}

static weft_status make_list(token_list *list, const weft_text *text, const weft_run *run, weft_error *err) {
    const char *add = run->settings.tokenizer.add;
    size_t most = 2;
    weft_status status = WEFT_OK;
    for (const char *at = add; *at != '\0'; at++) most += *at == ',';
    list->pad = -1;
    list->text = strdup(add);
    list->names = calloc(most, sizeof *list->names);
    if (list->text == NULL || list->names == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokens that are added");
    status = take_names(list, text, run, err);
    if (status == WEFT_OK && run->settings.tokenizer.pad == WEFT_PAD_ADD) status = take_pad(list, text, run, err);
    return status;
}

/* ---- to the tokenizer ---- */

/* The key that the failure is of: of the pad token where nothing else is added. */
static weft_status locate(const token_list *list, const weft_run *run, weft_status status, weft_error *why,
                          weft_error *err) {
    const bool is_pad = list->pad == 0;
    if (status != WEFT_E_USER) return weft_error_set(err, status, "%s", why->text);
    return weft_config_reject(run->config, "tokenizer", is_pad ? "pad" : "add", err, "cannot be done: %s", why->text);
}

static weft_status add_list(weft_text *text, const token_list *list, const weft_run *run, weft_error *err) {
    const weft_tokenizer_add *add = weft_text_extension(text, WEFT_TOKENIZER_ADD);
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (add == NULL || !WEFT_WHOLE(add, weft_tokenizer_add))
        return weft_config_reject(run->config, "tokenizer", list->pad == 0 ? "pad" : "add", err,
                                  "asks for tokens, which the tokenizer plugin %s cannot add: take the line out",
                                  weft_run_id(run, WEFT_PART_TOKENIZER));
    WEFT_PLUGIN_CALL(status, add, add, &why, text->tokenizer, list->names, list->n, list->pad);
    if (status == WEFT_OK) text->added = add;
    else status = locate(list, run, weft_plugin_blame(text->plugin, status, &why), &why, err);
    return status;
}

weft_status weft_tokens_give(weft_text *text, const weft_run *run, weft_error *err) {
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info, .pad = -1};
    token_list list = {0};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_TELL(text->plugin, info, text->tokenizer, &info);
    text->own_ids = info.vocab_size;
    status = make_list(&list, text, run, err);
    if (status == WEFT_OK && list.n > 0) status = add_list(text, &list, run, err);
    free_list(&list);
    return status;
}

/* ---- to the model ---- */

/* vocab_size of config.json; 0: it has none. */
static int64_t read_rows(const char *directory) {
    char *path = NULL;
    json_t *config = NULL;
    int64_t rows = 0;
    if (asprintf(&path, "%s/config.json", directory) < 0) return 0;
    (void)weft_json_read(&config, path, 0, NULL);
    rows = (int64_t)json_integer_value(json_object_get(config, "vocab_size"));
    json_decref(config);
    free(path);
    return rows;
}

static void tell_pad(const weft_run *run, const weft_text *text, int64_t rows) {
    if (run->settings.tokenizer.pad != WEFT_PAD_ADD || text->added == NULL) return;
    weft_log(run->host, WEFT_LOG_INFO, "the pad token %s has the id %d: %s", run->settings.tokenizer.pad_token,
             (int)text->info.pad,
             text->info.pad >= rows ? "embeddings (and a head of its own) get a row for it, the mean of the others"
                                    : "the model has a row for it, which stays as it is");
}

/* Their ids follow one another. */
static void tell_tokens(const weft_run *run, const weft_text *text, int64_t rows) {
    const char *list = run->settings.tokenizer.add, *last = strrchr(list, ',');
    int32_t n = 1;
    if (list[0] == '\0') return;
    for (const char *at = list; *at != '\0'; at++) n += *at == ',';
    const int64_t end = find_token(text, last == NULL ? list : last + 1) + 1, first = end - n;
    const int64_t grown = end <= rows ? 0 : end - (first > rows ? first : rows);
    char spare[100] = "", ids[64];
    if (grown < n)
        (void)snprintf(spare, sizeof spare, "; the model has rows for %s, which begin as they are",
                       grown == 0 ? "them" : "the others");
    if (n == 1) (void)snprintf(ids, sizeof ids, "id %lld", (long long)first);
    else (void)snprintf(ids, sizeof ids, "ids %lld to %lld", (long long)first, (long long)end - 1);
    weft_log(run->host, WEFT_LOG_INFO,
             "%d token%s added, with the %s: %lld more row%s of embeddings (and "
             "of a head of its own), the mean of those there are%s",
             (int)n, n == 1 ? " is" : "s are", ids, (long long)grown, grown == 1 ? "" : "s", spare);
}

/* What is told of ids and rows that do not belong together is told later. */
static void take_vocabulary(weft_run *run, const weft_text *text, int64_t rows) {
    const int64_t ids = text->info.vocab_size;
    const bool has_pad = run->settings.tokenizer.pad == WEFT_PAD_ADD;
    if (text->own_ids > rows) return;
    run->vocabulary.before = rows;
    run->vocabulary.rows = ids > rows ? ids : rows;
    run->vocabulary.pad = has_pad ? text->info.pad : -1;
    tell_tokens(run, text, rows);
    tell_pad(run, text, rows);
}

weft_status weft_tokens_settle(weft_run *run, weft_error *err) {
    const int64_t rows = read_rows(run->settings.model.path);
    weft_text text = {0};
    weft_status status = WEFT_OK;
    if (run->parts[WEFT_PART_MODEL].loaded == NULL || run->parts[WEFT_PART_TOKENIZER].loaded == NULL) return WEFT_OK;
    status = weft_text_open(&text, run, err);
    if (status != WEFT_OK) return status;
    if (rows >= 1) take_vocabulary(run, &text, rows);
    else
        status = weft_config_reject(run->config, "tokenizer", run->settings.tokenizer.add[0] != '\0' ? "add" : "pad",
                                    err,
                                    "asks for tokens, and %s/config.json has no vocab_size that says how many rows "
                                    "there are",
                                    run->settings.model.path);
    weft_text_close(&text);
    return status;
}
