/* model.c: reads and checks the "model" section of tokenizer.json, and builds its tables. */
#include "model.h"
#include "unicode.h"

#include <stdlib.h>

#define PIECE(at, n) bpe_quote(at, n).text

static uint64_t mix(uint64_t key) {
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

const bpe_merge *bpe_model_merge(const bpe_model *self, int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t mask = self->n_merge_slots - 1;
    for (size_t i = mix(pair) & mask;; i = (i + 1) & mask) {
        if (self->merges[i].pair == pair) return &self->merges[i];
        if (self->merges[i].pair == UINT64_MAX) return NULL;
    }
}

bool bpe_model_cuts(const bpe_model *self, int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t mask = self->n_crossing_slots - 1;
    for (size_t i = mix(pair) & mask;; i = (i + 1) & mask) {
        if (self->crossings[i] == pair) return false;
        if (self->crossings[i] == UINT64_MAX) return true;
    }
}

int32_t bpe_model_character(const bpe_model *self, int32_t point, const char *bytes, size_t n) {
    if (point < 0) return -1;
    if (point < BPE_N_DIRECT) return self->direct[point];
    return bpe_vocab_find(&self->vocab, bytes, n);
}

static bool add_piece(bpe_vocab *self, int32_t id, const char *key, bool nul_keys) {
    const size_t n = strlen(key);
    char *copy = nul_keys && strstr(key, BPE_NUL) != NULL ? malloc(n) : NULL;
    size_t m = 0;
    bool added = false;
    if (!nul_keys || strstr(key, BPE_NUL) == NULL) return bpe_vocab_add(self, id, key, n);
    for (size_t i = 0; copy != NULL && i < n; m++) {
        const bool nul = strncmp(key + i, BPE_NUL, 3) == 0;
        copy[m] = nul ? '\0' : key[i];
        i += nul ? 3 : 1;
    }
    added = copy != NULL && bpe_vocab_add(self, id, copy, m);
    free(copy);
    return added;
}

static weft_status read_vocab(bpe_model *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "vocab");
    json_t *vocab = json_object_get(json, "vocab");
    const char *key = NULL;
    json_t *value = NULL;
    int32_t highest = 0, id = 0;
    size_t n = 0;
    weft_status status = WEFT_OK;
    if (!json_is_object(vocab)) return bpe_json_fail(err, &here, "must be an object of tokens and ids.");
    json_object_foreach(vocab, key, value) {
        const bpe_place piece = bpe_place_key(&here, PIECE(key, strlen(key)));
        status = bpe_json_id(&id, &piece, value, err);
        if (status != WEFT_OK) return status;
        if (id > highest) highest = id;
    }
    if (json_object_size(vocab) == 0) return bpe_json_fail(err, &here, "has no token.");
    if (!bpe_vocab_reserve(&self->vocab, json_object_size(vocab), highest)) return bpe_no_memory(err);
    json_object_foreach(vocab, key, value) {
        const int32_t own = (int32_t)json_integer_value(value);
        const char *other = bpe_vocab_piece(&self->vocab, own, &n);
        if (other != NULL)
            return bpe_json_fail(err, &here, "id %d belongs to %s and to %s; ids must be unique.", own, PIECE(other, n),
                                 PIECE(key, strlen(key)));
        if (!add_piece(&self->vocab, own, key, at->nul_keys)) return bpe_no_memory(err);
    }
    return WEFT_OK;
}

/* Splits "a b" or ["a", "b"]. */
static weft_status split_merge(bpe_text parts[2], const bpe_place *at, const json_t *merge, weft_error *err) {
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    const char *text = json_string_value(merge);
    const size_t n = json_string_length(merge);
    const char *blank = text == NULL ? NULL : memchr(text, ' ', n);
    if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right)) {
        parts[0].bytes = (char *)(uintptr_t)json_string_value(left);
        parts[0].n = json_string_length(left);
        parts[1].bytes = (char *)(uintptr_t)json_string_value(right);
        parts[1].n = json_string_length(right);
        return WEFT_OK;
    }
    if (blank == NULL || memchr(blank + 1, ' ', (size_t)(text + n - blank) - 1) != NULL)
        return bpe_json_fail(err, at,
                             "a merge must be a string of two tokens separated by a blank, or an array "
                             "of two strings.");
    parts[0].bytes = (char *)(uintptr_t)text;
    parts[0].n = (size_t)(blank - text);
    parts[1].bytes = (char *)(uintptr_t)(blank + 1);
    parts[1].n = n - parts[0].n - 1;
    return WEFT_OK;
}

static weft_status find_part(int32_t *out, const bpe_model *self, const bpe_place *at, const char *bytes, size_t n,
                             weft_error *err) {
    *out = bpe_vocab_find(&self->vocab, bytes, n);
    if (*out >= 0) return WEFT_OK;
    return bpe_json_fail(err, at, "the merge needs the token %s, which model.vocab lacks.", PIECE(bytes, n));
}

static void put_merge(bpe_model *self, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    const bpe_merge merge = {(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, id};
    const size_t mask = self->n_merge_slots - 1;
    size_t i = mix(merge.pair) & mask;
    while (self->merges[i].pair != UINT64_MAX && self->merges[i].pair != merge.pair) i = (i + 1) & mask;
    self->merges[i] = merge; /* a repeated pair has the later rank */
}

static int32_t first_character(const bpe_text *part) {
    int32_t point = 0;
    (void)bpe_utf8(part->bytes, part->n, &point);
    return point;
}

static int32_t last_character(const bpe_text *part) {
    int32_t point = 0;
    size_t at = part->n - 1;
    while (at > 0 && ((unsigned char)part->bytes[at] & 0xc0) == 0x80) at--;
    (void)bpe_utf8(part->bytes + at, part->n - at, &point);
    return point;
}

static void put_crossing(bpe_model *self, const bpe_text parts[2]) {
    const uint64_t pair = (uint64_t)(uint32_t)last_character(&parts[0]) << 32 | (uint32_t)first_character(&parts[1]);
    const size_t mask = self->n_crossing_slots - 1;
    size_t i = mix(pair) & mask;
    while (self->crossings[i] != UINT64_MAX && self->crossings[i] != pair) i = (i + 1) & mask;
    self->crossings[i] = pair;
}

/* Returns true for a byte token or the unknown token, which represent other characters than their names. */
static bool stands_for_others(const bpe_model *self, int32_t id) {
    if (id == self->unknown) return true;
    for (int32_t byte = 0; byte < 256; byte++) {
        if (self->bytes[byte] == id) return true;
    }
    return false;
}

static weft_status read_merge(bpe_model *self, bpe_list *joined, const bpe_place *at, const json_t *json, uint32_t rank,
                              weft_error *err) {
    bpe_text parts[2] = {{NULL, 0}, {NULL, 0}};
    int32_t left = 0, right = 0, id = 0;
    weft_status status = split_merge(parts, at, json, err);
    if (status != WEFT_OK) return status;
    status = find_part(&left, self, at, parts[0].bytes, parts[0].n, err);
    if (status == WEFT_OK) status = find_part(&right, self, at, parts[1].bytes, parts[1].n, err);
    if (status != WEFT_OK) return status;
    bpe_list_clear(joined);
    bpe_list_add(joined, parts[0].bytes, parts[0].n);
    bpe_list_add(joined, parts[1].bytes, parts[1].n);
    if (joined->failed) return bpe_no_memory(err);
    if (parts[0].n == 0 || parts[1].n == 0)
        return bpe_json_fail(err, at, "a merge with an empty token is not allowed.");
    status = find_part(&id, self, at, joined->data, joined->n, err);
    if (status != WEFT_OK) return status;
    put_merge(self, left, right, rank, id);
    put_crossing(self, parts);
    if (stands_for_others(self, left) || stands_for_others(self, right)) self->cut = false;
    return WEFT_OK;
}

static weft_status read_merges(bpe_model *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "merges");
    const json_t *merges = NULL;
    bpe_list joined;
    uint32_t rank = 0;
    weft_status status = bpe_json_array(&merges, at, json, "merges", err);
    bpe_list_init(&joined, self->host, 1);
    if (status != WEFT_OK) goto done;
    self->n_merge_slots = self->n_crossing_slots = 16;
    while (self->n_merge_slots < 2 * json_array_size(merges)) self->n_merge_slots *= 2;
    self->n_crossing_slots = self->n_merge_slots;
    self->merges = self->host->alloc(self->host, self->n_merge_slots * sizeof *self->merges, 16);
    self->crossings = self->host->alloc(self->host, self->n_crossing_slots * sizeof *self->crossings, 16);
    if (self->merges == NULL || self->crossings == NULL) {
        status = bpe_no_memory(err);
        goto done;
    }
    memset(self->merges, 0xff, self->n_merge_slots * sizeof *self->merges);
    memset(self->crossings, 0xff, self->n_crossing_slots * sizeof *self->crossings);
    for (size_t i = 0; i < json_array_size(merges) && status == WEFT_OK; i++) {
        const json_t *merge = json_array_get(merges, i);
        const bpe_place one = bpe_place_index(&here, i);
        const char *text = json_string_value(merge);
        if (text != NULL && strncmp(text, "#version", 8) == 0) continue; /* header of merges.txt */
        status = read_merge(self, &joined, &one, merge, rank++, err);
    }
done:
    bpe_list_free(&joined);
    return status;
}

/* Fails for keys that change ids, unless they have a neutral value. */
static weft_status refuse_options(const bpe_place *at, const json_t *json, weft_error *err) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(json, "dropout");
    const bpe_place here = bpe_place_key(at, "dropout");
    if (dropout != NULL && !json_is_null(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return bpe_json_fail(err, &here, "must be null or 0: dropout of merges is not supported.");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const json_t *value = json_object_get(json, texts[i]);
        const bpe_place place = bpe_place_key(at, texts[i]);
        if (value == NULL || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0)) continue;
        return bpe_json_fail(err, &place, "must be null or empty: prefixes and suffixes of words are not supported.");
    }
    return WEFT_OK;
}

static weft_status read_type(const bpe_place *at, const json_t *json, weft_error *err) {
    const char *type = NULL;
    const bpe_place here = bpe_place_key(at, "type");
    weft_status status = WEFT_OK;
    /* Old files have no type; their merges identify BPE. */
    if (json_is_object(json) && json_object_get(json, "type") == NULL && json_object_get(json, "merges") != NULL)
        return WEFT_OK;
    status = bpe_json_type(&type, at, json, err);
    if (status == WEFT_OK && strcmp(type, "BPE") != 0)
        status = bpe_json_fail(err, &here, "is %s. Allowed: BPE.", PIECE(type, strlen(type)));
    return status;
}

static weft_status read_options(bpe_model *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool no = false;
    weft_status status = bpe_json_known(at, json,
                                        "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                                        "byte_fallback ignore_merges vocab merges",
                                        err);
    if (status == WEFT_OK) status = refuse_options(at, json, err);
    if (status == WEFT_OK) status = bpe_json_bool(&self->fuse_unknown, at, json, "fuse_unk", &no, err);
    if (status == WEFT_OK) status = bpe_json_bool(&self->byte_fallback, at, json, "byte_fallback", &no, err);
    if (status == WEFT_OK) status = bpe_json_bool(&self->ignore_merges, at, json, "ignore_merges", &no, err);
    return status;
}

/* Fills the tables of single characters, byte tokens and the unknown token. */
static weft_status fill_tables(bpe_model *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const json_t *unknown = json_object_get(json, "unk_token");
    const char *name = NULL;
    size_t n = 0;
    char text[8];
    weft_status status = WEFT_OK;
    self->direct = self->host->alloc(self->host, BPE_N_DIRECT * sizeof *self->direct, 16);
    if (self->direct == NULL) return bpe_no_memory(err);
    for (int32_t point = 0; point < BPE_N_DIRECT; point++) {
        n = bpe_utf8_put(text, point);
        self->direct[point] = bpe_vocab_find(&self->vocab, text, n);
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        self->bytes[byte] = self->byte_fallback ? bpe_vocab_find(&self->vocab, text, 6) : -1;
    }
    if (unknown == NULL || json_is_null(unknown)) return WEFT_OK;
    status = bpe_json_text(&name, &n, at, json, "unk_token", err);
    if (status == WEFT_OK) self->unknown = bpe_vocab_find(&self->vocab, name, n);
    return status;
}

weft_status bpe_model_read(bpe_model *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           weft_error *err) {
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->host = host;
    self->unknown = -1;
    self->cut = true;
    bpe_vocab_init(&self->vocab, host);
    status = read_type(at, json, err);
    if (status == WEFT_OK) status = read_options(self, at, json, err);
    if (status == WEFT_OK) status = read_vocab(self, at, json, err);
    if (status == WEFT_OK) status = fill_tables(self, at, json, err);
    if (status == WEFT_OK) status = read_merges(self, at, json, err);
    return status;
}

void bpe_model_free(bpe_model *self) {
    if (self->host == NULL) return;
    bpe_vocab_free(&self->vocab);
    self->host->release(self->host, self->merges);
    self->host->release(self->host, self->crossings);
    self->host->release(self->host, self->direct);
}
