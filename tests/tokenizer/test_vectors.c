/* Ids and decoded texts of the `tokenizers` library, from tests/golden. */
#include "rig.h"

/* Reads text in KEY, or hex in KEY_hex; returns false if both are missing. */
static bool text_of(weft_bytes *out, const json_t *entry, const char *key) {
    char spelled[64];
    const json_t *plain = json_object_get(entry, key);
    const char *hex = NULL;
    memset(out, 0, sizeof *out);
    (void)snprintf(spelled, sizeof spelled, "%s_hex", key);
    hex = json_string_value(json_object_get(entry, spelled));
    if (plain == NULL && hex == NULL) return false;
    if (plain != NULL) must(weft_bytes_put(out, json_string_value(plain), json_string_length(plain)) == WEFT_OK);
    for (size_t i = 0; hex != NULL && hex[i] != 0; i += 2) {
        const char pair[3] = {hex[i], hex[i + 1], 0};
        const char byte = (char)strtol(pair, NULL, 16);
        must(weft_bytes_put(out, &byte, 1) == WEFT_OK);
    }
    return true;
}

static weft_bytes ids_of(const json_t *entry, const char *key) {
    weft_bytes out = {NULL, 0, 0};
    const json_t *list = json_object_get(entry, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(list, i));
        must(weft_bytes_put(&out, &id, sizeof id) == WEFT_OK);
    }
    return out;
}

static bool same(const weft_bytes *a, const weft_bytes *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, a->n) == 0);
}

static void check_ids(const weft_tokenizer *tokenizer, const char *name, const json_t *entry, const char *key,
                      uint32_t flags) {
    weft_bytes text = {NULL, 0, 0}, expected = ids_of(entry, key), ids = {NULL, 0, 0};
    must(text_of(&text, entry, "text"));
    ids = rig_encode(tokenizer, text.n > 0 ? text.data : "", text.n, flags);
    ck_assert_msg(same(&ids, &expected), "%s: the ids of \"%.*s\" differ from %s", name, (int)text.n, text.data, key);
    weft_bytes_free(&text);
    weft_bytes_free(&expected);
    weft_bytes_free(&ids);
}

static void check_text(const weft_tokenizer *tokenizer, const char *name, const json_t *entry, const char *key,
                       uint32_t flags) {
    weft_bytes expected = {NULL, 0, 0}, ids = {NULL, 0, 0}, text = {NULL, 0, 0};
    if (!text_of(&expected, entry, key)) return;
    ids = ids_of(entry, "ids");
    text = rig_decode(tokenizer, &ids, flags);
    ck_assert_msg(same(&text, &expected), "%s: \"%.*s\" is decoded, expected \"%.*s\"", name, (int)text.n, text.data,
                  (int)expected.n, expected.data);
    weft_bytes_free(&expected);
    weft_bytes_free(&ids);
    weft_bytes_free(&text);
}

/* Compares decoded text. The library writes U+FFFD for each byte of invalid UTF-8; Weft restores the byte. */
static bool alike(const weft_bytes *bytes, const weft_bytes *expected) {
    size_t i = 0;
    for (size_t at = 0; at < bytes->n; at++) {
        const bool replaced = i + 3 <= expected->n && memcmp(expected->data + i, "\xef\xbf\xbd", 3) == 0;
        if (!replaced && (i >= expected->n || bytes->data[at] != expected->data[i])) return false;
        i += replaced ? 3 : 1;
    }
    return i == expected->n;
}

static const char *const names[] = {"sp-bpe", "sp-bpe-normalized", "gpt2-style", "llama3-style"};

static weft_tokenizer *open_golden(const char *name, json_t **vectors) {
    char path[512], inside[128];
    (void)snprintf(inside, sizeof inside, "tokenizer/%s/vectors.json", name);
    rig_golden(path, inside);
    *vectors = rig_load_json(path);
    *strrchr(path, '/') = 0;
    return rig_open(path);
}

TESTS(golden_texts_give_the_librarys_ids_and_come_back, 4) {
    json_t *json = NULL;
    weft_tokenizer *tokenizer = open_golden(names[_i], &json);
    const json_t *vectors = json_object_get(json, "vectors");
    ck_assert_uint_gt(json_array_size(vectors), 80);
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        const json_t *entry = json_array_get(vectors, i);
        check_ids(tokenizer, names[_i], entry, "ids", 0);
        if (json_object_get(entry, "ids_bos") != NULL)
            check_ids(tokenizer, names[_i], entry, "ids_bos", WEFT_ENCODE_BOS);
        check_text(tokenizer, names[_i], entry, "decoded", WEFT_DECODE_KEEP_SPECIAL);
    }
    json_decref(json);
    rig_close(tokenizer);
}

TESTS(golden_ids_of_no_text_give_their_bytes, 4) {
    json_t *json = NULL;
    weft_tokenizer *tokenizer = open_golden(names[_i], &json);
    const json_t *lists = json_object_get(json, "decode");
    ck_assert_uint_gt(json_array_size(lists), 0);
    for (size_t i = 0; i < json_array_size(lists); i++) {
        const json_t *entry = json_array_get(lists, i);
        weft_bytes ids = ids_of(entry, "ids"), text = rig_decode(tokenizer, &ids, WEFT_DECODE_KEEP_SPECIAL), expected;
        ck_assert(text_of(&expected, entry, "decoded"));
        ck_assert_msg(same(&text, &expected) || alike(&text, &expected), "%s, list %zu", names[_i], i);
        weft_bytes_free(&ids);
        weft_bytes_free(&text);
        weft_bytes_free(&expected);
    }
    json_decref(json);
    rig_close(tokenizer);
}

/* Writes the base with the changes of a variant. */
static void write_variant(const json_t *base, const json_t *changes) {
    json_t *spec = json_deep_copy(base);
    const char *key = NULL, *inner = NULL;
    json_t *value = NULL, *part = NULL;
    json_object_foreach((json_t *)(uintptr_t)changes, key, value) {
        if (strcmp(key, "model") != 0) {
            ck_assert_int_eq(json_object_set(spec, key, value), 0);
            continue;
        }
        json_object_foreach(value, inner, part) {
            json_t *model = json_object_get(spec, "model");
            if (strcmp(inner, "vocab") == 0)
                ck_assert_int_eq(json_object_update(json_object_get(model, "vocab"), part), 0);
            else ck_assert_int_eq(json_object_set(model, inner, part), 0);
        }
    }
    rig_write_json("tokenizer.json", spec);
    json_decref(spec);
}

/* Each feature of the format separately; tokenizers of common model families on random Unicode strings. */
static const struct {
    const char *file;
    size_t least;
} variants[] = {{"tokenizer_variants.json", 50}, {"tokenizer_families.json", 19}};

TESTS(every_part_of_the_format_does_what_the_library_does, 2) {
    char path[512];
    json_t *json = NULL;
    size_t n = 0;
    rig_golden(path, variants[_i].file);
    json = rig_load_json(path);
    n = json_array_size(json_object_get(json, "variants"));
    ck_assert_uint_ge(n, variants[_i].least);
    for (size_t i = 0; i < n; i++) {
        const json_t *variant = json_array_get(json_object_get(json, "variants"), i);
        const char *name = json_string_value(json_object_get(variant, "name"));
        const json_t *vectors = json_object_get(variant, "vectors");
        weft_tokenizer *tokenizer = NULL;
        write_variant(json_object_get(json_object_get(json, "bases"),
                                      json_string_value(json_object_get(variant, "base"))),
                      json_object_get(variant, "changes"));
        tokenizer = rig_open(scratch);
        for (size_t k = 0; k < json_array_size(vectors); k++) {
            const json_t *entry = json_array_get(vectors, k);
            check_ids(tokenizer, name, entry, "ids", 0);
            check_ids(tokenizer, name, entry, json_object_get(entry, "plain") != NULL ? "plain" : "ids",
                      WEFT_ENCODE_PLAIN);
            check_text(tokenizer, name, entry, "decoded", WEFT_DECODE_KEEP_SPECIAL);
            check_text(tokenizer, name, entry, "without_special", 0);
        }
        rig_close(tokenizer);
    }
    json_decref(json);
}

/* Character classes: number and hash of the ids of a text with every character. */
TEST(every_character_is_in_the_librarys_classes) {
    char path[512];
    json_t *json = NULL;
    size_t n = 0;
    rig_golden(path, "unicode.json");
    json = rig_load_json(path);
    n = json_array_size(json_object_get(json, "rows"));
    ck_assert_uint_ge(n, 50);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(json_object_get(json, "rows"), i), *range = NULL;
        char *name = json_dumps(json_object_get(row, "changes"), JSON_COMPACT);
        weft_bytes text = {0}, ids = {0};
        weft_tokenizer *tokenizer = NULL;
        uint64_t hash = 14695981039346656037u;
        size_t k = 0;
        json_array_foreach(json_object_get(json, "ranges"), k, range) {
            const int32_t last = (int32_t)json_integer_value(json_array_get(range, 1));
            for (int32_t c = (int32_t)json_integer_value(json_array_get(range, 0)); c <= last; c++) {
                const char *before = json_string_value(json_object_get(row, "before"));
                const char *after = json_string_value(json_object_get(row, "after"));
                char character[4];
                must(weft_bytes_put(&text, before, strlen(before)) == WEFT_OK);
                must(weft_bytes_put(&text, character, rig_utf8(character, c)) == WEFT_OK);
                must(weft_bytes_put(&text, after, strlen(after)) == WEFT_OK);
            }
        }
        write_variant(json_object_get(json, "base"), json_object_get(row, "changes"));
        tokenizer = rig_open(scratch);
        ids = rig_encode(tokenizer, text.data, text.n, 0);
        for (k = 0; k < rig_n(&ids); k++) hash = (hash ^ (uint64_t)rig_id(&ids, k)) * 1099511628211u;
        ck_assert_msg(rig_n(&ids) == (size_t)json_integer_value(json_object_get(row, "n")), "%s: %zu ids", name,
                      rig_n(&ids));
        ck_assert_msg(hash == strtoull(json_string_value(json_object_get(row, "hash")), NULL, 16), "%s: other ids",
                      name);
        rig_close(tokenizer);
        weft_bytes_free(&text);
        weft_bytes_free(&ids);
        free(name);
    }
    json_decref(json);
}

int main(void) {
    TCase *tests = tcase_create("bpe");
    tcase_add_checked_fixture(tests, rig_enter, scratch_remove);
    tcase_set_timeout(tests, 300);
    return run_tests(tests);
}
