/* read.c: creates a tokenizer from a directory: opens the files, reads each section, and fills the tables by id. */
#include "tokenizer.h"
#include "unicode.h"

#include <errno.h>
#include <unistd.h>

static const char *const file_names[BPE_MOST_FILES] = {
    "tokenizer.json",  "tokenizer_config.json", "special_tokens_map.json",
    "tokenizer.model", "added_tokens.json",     "vocab.json",
    "merges.txt",      "chat_template.jinja"};

weft_status bpe_path(char out[BPE_PATH_BYTES], const char *directory, const char *name, weft_error *err) {
    const int n = snprintf(out, BPE_PATH_BYTES, "%s/%s", directory, name);
    if (n > 0 && n < BPE_PATH_BYTES) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "%s: the path of a tokenizer is too long.", directory);
}

static weft_status find_files(weft_tokenizer *tokenizer, const char *directory, weft_error *err) {
    char path[BPE_PATH_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < BPE_MOST_FILES; i++) {
        const weft_status status = bpe_path(path, directory, file_names[i], err);
        if (status != WEFT_OK) return status;
        if (access(path, F_OK) == 0) tokenizer->files[n++] = file_names[i];
        else if (errno != ENOENT && errno != ENOTDIR)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s.", path, strerror(errno));
    }
    if (n > 0 && strcmp(tokenizer->files[0], file_names[0]) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "%s: tokenizer.json is missing. Fix: set [tokenizer] path to a directory with "
                          "one, or create one by AutoTokenizer.save_pretrained of transformers.",
                          directory);
}

/* Loads all files, and adds the new tokens to them. */
static weft_status load(json_t *out[BPE_N_JSON], char paths[BPE_N_JSON][BPE_PATH_BYTES], bool nul_keys[BPE_N_JSON],
                        const weft_tokenizer *self, const char *directory, weft_error *err) {
    static const char *const names[BPE_N_JSON] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                                  "added_tokens.json", "config.json"};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < BPE_N_JSON && status == WEFT_OK; i++) {
        status = bpe_path(paths[i], directory, names[i], err);
        if (status == WEFT_OK) status = bpe_json_load(&out[i], paths[i], i == BPE_JSON_TOKENIZER, &nul_keys[i], err);
    }
    for (size_t i = 0; i < BPE_JSON_MODEL && status == WEFT_OK; i++)
        if (!bpe_tokens_edit(self, names[i], out[i])) status = bpe_no_memory(err);
    return status == WEFT_OK ? bpe_auto_edit(out, self->host, directory, err) : status;
}

static weft_status judge_root(const weft_tokenizer *tokenizer, const bpe_place *at, const json_t *root,
                              weft_error *err) {
    const bpe_place here = bpe_place_key(at, "version");
    const json_t *version = json_object_get(root, "version");
    const char *text = json_string_value(version);
    weft_status status = bpe_json_known(at, root,
                                        "version truncation padding added_tokens normalizer pre_tokenizer "
                                        "post_processor decoder model",
                                        err);
    if (status != WEFT_OK) return status;
    if (version != NULL && (text == NULL || strcmp(text, "1.0") != 0))
        return bpe_json_fail(err, &here, "must be \"1.0\".");
    /* As in `transformers`, the caller truncates and pads, not the file. */
    if (json_is_object(json_object_get(root, "truncation")) || json_is_object(json_object_get(root, "padding")))
        weft_log(tokenizer->host, WEFT_LOG_INFO, "%s: truncation and padding are not applied.", at->file);
    return WEFT_OK;
}

static weft_status read_parts(weft_tokenizer *self, const bpe_place *at, const json_t *root, weft_error *err) {
    const weft_host *host = self->host;
    const bpe_place model = bpe_place_key(at, "model"), normal = bpe_place_key(at, "normalizer");
    const bpe_place split = bpe_place_key(at, "pre_tokenizer"), added = bpe_place_key(at, "added_tokens");
    const bpe_place decoder = bpe_place_key(at, "decoder");
    bpe_scratch *scratch = NULL;
    weft_status status = bpe_model_read(&self->model, host, &model, json_object_get(root, "model"), err);
    if (status == WEFT_OK)
        status = bpe_normal_read(&self->normal, host, &normal, json_object_get(root, "normalizer"), err);
    if (status == WEFT_OK)
        status = bpe_split_read(&self->split, host, &split, json_object_get(root, "pre_tokenizer"), err);
    if (status == WEFT_OK)
        status = bpe_decode_read(&self->decode, host, &decoder, json_object_get(root, "decoder"), err);
    if (status != WEFT_OK) return status;
    scratch = bpe_scratch_take(self, err);
    if (scratch == NULL) return WEFT_E_MEMORY;
    status = bpe_added_read(&self->added, host, &added, json_object_get(root, "added_tokens"), &self->model.vocab,
                            &self->normal, &scratch->matcher, err);
    bpe_scratch_give(self, scratch);
    return status;
}

/* With prepend_scheme = first, the start of the text depends on how the library traces characters back through the
 * normalizer. Replacing one character by another is supported; other replacements are an error. */
static weft_status judge_first(const weft_tokenizer *self, const bpe_place *at, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "normalizer");
    const bpe_split_step *first = BPE_AT(&self->split.steps, bpe_split_step);
    int32_t point = 0;
    if (self->split.steps.n == 0 || first->kind != BPE_META || first->scheme != BPE_FIRST) return WEFT_OK;
    for (size_t i = 0; i < self->normal.steps.n; i++) {
        const bpe_normal_step *step = &BPE_AT(&self->normal.steps, bpe_normal_step)[i];
        const bpe_text *literal = &step->pattern.literal;
        if (step->kind != BPE_REPLACE || (step->pattern.kind == BPE_LITERAL && step->content.n > 0 &&
                                          bpe_utf8(literal->bytes, literal->n, &point) == literal->n))
            continue;
        return bpe_json_fail(err, &here,
                             "a Replace other than of one character is not supported with a Metaspace of "
                             "prepend_scheme = first.");
    }
    return WEFT_OK;
}

static weft_status fill_ids(weft_tokenizer *self, weft_error *err) {
    const int32_t of_model = (int32_t)self->model.vocab.pieces.n;
    self->n_ids = self->added.highest + 1 > of_model ? self->added.highest + 1 : of_model;
    self->added_by_id = self->host->alloc(self->host, (size_t)self->n_ids * sizeof(int32_t), 16);
    if (self->added_by_id == NULL) return bpe_no_memory(err);
    memset(self->added_by_id, 0xff, (size_t)self->n_ids * sizeof(int32_t));
    for (size_t i = 0; i < self->added.tokens.n; i++)
        self->added_by_id[BPE_AT(&self->added.tokens, bpe_added_token)[i].id] = (int32_t)i;
    return WEFT_OK;
}

/* Sets a template variable to the text of an id, unless the files name the token. */
static bool name_token(json_t *tokens, const char *variable, const weft_tokenizer *self, int32_t id) {
    const bpe_added_token *added = id < 0 ? NULL : bpe_added_by_id(&self->added, id);
    size_t n = 0;
    const char *text = added != NULL ? added->content.bytes
                       : id >= 0     ? bpe_vocab_piece(&self->model.vocab, id, &n)
                                     : NULL;
    if (text == NULL || json_object_get(tokens, variable) != NULL) return true;
    return json_object_set_new(tokens, variable, json_stringn(text, added != NULL ? added->content.n : n)) == 0;
}

static weft_status read_chat(weft_tokenizer *self, const char *directory, const json_t *config, const json_t *map,
                             weft_error *err) {
    const bpe_special *special = &self->special;
    json_t *list = NULL, *files = NULL, *tokens = NULL;
    weft_status status = chat_find(&list, &files, self->host, directory, config, err);
    if (status == WEFT_OK) status = chat_open(&self->chat, self->host, list, err);
    self->chat.files = files;
    if (status != WEFT_OK) return status;
    self->chat.tokens = tokens = chat_special_tokens(config, map);
    if (tokens == NULL || !name_token(tokens, "bos_token", self, special->bos) ||
        !name_token(tokens, "eos_token", self, special->eos))
        return bpe_no_memory(err);
    return WEFT_OK;
}

weft_status bpe_tokenizer_read(weft_tokenizer *self, const char *directory, weft_error *err) {
    char paths[BPE_N_JSON][BPE_PATH_BYTES];
    json_t *roots[BPE_N_JSON] = {NULL};
    bool nul_keys[BPE_N_JSON] = {false};
    bpe_special_sources from = {0};
    weft_status status = find_files(self, directory, err);
    if (status == WEFT_OK) status = load(roots, paths, nul_keys, self, directory, err);
    if (status != WEFT_OK) goto done;
    from.model = &self->model;
    from.added = &self->added;
    from.root = roots[BPE_JSON_TOKENIZER];
    from.config = roots[BPE_JSON_CONFIG];
    from.map = roots[BPE_JSON_MAP];
    from.root_at = bpe_place_file(paths[BPE_JSON_TOKENIZER]);
    from.root_at.nul_keys = nul_keys[BPE_JSON_TOKENIZER];
    from.config_at = bpe_place_file(paths[BPE_JSON_CONFIG]);
    from.map_at = bpe_place_file(paths[BPE_JSON_MAP]);
    status = judge_root(self, &from.root_at, from.root, err);
    if (status == WEFT_OK) status = read_parts(self, &from.root_at, from.root, err);
    if (status == WEFT_OK) status = judge_first(self, &from.root_at, err);
    if (status == WEFT_OK) status = bpe_special_read(&self->special, &from, err);
    if (status == WEFT_OK) status = fill_ids(self, err);
    if (status == WEFT_OK) status = read_chat(self, directory, from.config, from.map, err);
done:
    for (size_t i = 0; i < BPE_N_JSON; i++) json_decref(roots[i]);
    return status;
}
