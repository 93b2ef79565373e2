/* Arbitrary bytes: texts that are not UTF-8, characters that cannot be encoded, long texts, threads, and damaged
 * files. */
#include "rig.h"

static weft_error err = WEFT_ERROR_INIT;

static weft_tokenizer *open_golden(const char *name) {
    char path[512], inside[128];
    (void)snprintf(inside, sizeof inside, "tokenizer/%s", name);
    rig_golden(path, inside);
    return rig_open(path);
}

static const char *const names[] = {"gpt2-style", "llama3-style", "sp-bpe", "sp-bpe-normalized"};

static void check_round_trip(const weft_tokenizer *tokenizer, const char *text, size_t n) {
    weft_bytes ids = rig_encode(tokenizer, text, n, WEFT_ENCODE_PLAIN), back = rig_decode(tokenizer, &ids, 0);
    must(back.n == n && (n == 0 || memcmp(back.data, text, n) == 0));
    weft_bytes_free(&ids);
    weft_bytes_free(&back);
}

/* Makes random bytes: mostly invalid UTF-8, with characters and blanks. Contains no lead byte of U+2581, which is a
 * blank in SentencePiece style. */
static size_t wild_text(char *out, size_t most, uint64_t *state) {
    static const char *const parts[] = {" ", "  ", "\n", "the", "\xc3\xa9", "\xe6\xb8\xa1", "\xf0\x9f\x98\x80",
                                        "1", "'s"};
    const size_t n = rig_chance(state, (uint32_t)most - 8);
    size_t at = 0;
    while (at < n) {
        if (rig_chance(state, 3) == 0) {
            const char *part = parts[rig_chance(state, 9)];
            memcpy(out + at, part, strlen(part));
            at += strlen(part);
        } else {
            const uint32_t byte = rig_chance(state, 256);
            out[at++] = (char)(byte == 0xe2 ? 0 : byte);
        }
    }
    return at;
}

TESTS(any_bytes_come_back, 4) {
    weft_tokenizer *tokenizer = open_golden(names[_i]);
    uint64_t state = 7;
    char text[256];
    for (int i = 0; i < (is_full() ? 3000 : 500); i++)
        check_round_trip(tokenizer, text, wild_text(text, sizeof text, &state));
    rig_close(tokenizer);
}

/* --- characters that cannot be encoded --- */

static void write_characters(const char *decoder_and_more) {
    char text[512];
    const int n = snprintf(text, sizeof text,
                           "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": "
                           "[\"a b\"]}%s}",
                           decoder_and_more);
    write_bytes(scratch_path("tokenizer.json"), text, (size_t)n);
}

static const struct {
    const char *more, *text, *says;
} unwritable[] = {
    {"", "abxab", "character U+0078 at offset 2"},
    {"", "ab\xc3\xa9", "character U+00E9 at offset 2"},
    {"", "a\xff\xfe", "byte 0xFF at offset 1"},
    {", \"normalizer\": {\"type\": \"Lowercase\"}", "ABabQ", "character U+0071 at offset 0 of the text (or after it"},
    {", \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}", "ab ab",
     "byte 0x20 at offset 2"},
};

TEST(what_has_no_piece_is_an_error_with_its_offset) {
    for (size_t i = 0; i < sizeof unwritable / sizeof unwritable[0]; i++) {
        weft_tokenizer *tokenizer = NULL;
        weft_bytes out = {NULL, 0, 0};
        write_characters(unwritable[i].more);
        tokenizer = rig_open(scratch);
        ck_assert_int_eq(rig_try_encode(tokenizer, &out, unwritable[i].text, strlen(unwritable[i].text), 0, &err),
                         WEFT_E_DATA);
        ck_assert_msg(strstr(err.text, unwritable[i].says) != NULL, "expected \"%s\", got: %s", unwritable[i].says,
                      err.text);
        weft_bytes_free(&out);
        rig_close(tokenizer);
    }
}

TEST(an_id_outside_the_vocabulary_has_no_text) {
    static const int32_t outside[] = {3, -1, INT32_MAX, INT32_MIN};
    weft_tokenizer *tokenizer = NULL;
    write_characters("");
    tokenizer = rig_open(scratch);
    for (size_t i = 0; i < 4; i++) {
        const int32_t with[3] = {0, outside[i], 1}, without[2] = {0, 1};
        weft_bytes out = {NULL, 0, 0}, expected = {NULL, 0, 0};
        const weft_text_sink sink = {&out, rig_put_text}, other = {&expected, rig_put_text};
        ck_assert_int_eq(plugin->decode(tokenizer, &sink, with, 3, 0, &err), WEFT_OK);
        ck_assert_int_eq(plugin->decode(tokenizer, &other, without, 2, 0, &err), WEFT_OK);
        ck_assert_uint_gt(expected.n, 0);
        ck_assert_mem_eq(out.data, expected.data, expected.n);
        ck_assert_uint_eq(out.n, expected.n);
        weft_bytes_free(&out);
        weft_bytes_free(&expected);
    }
    rig_close(tokenizer);
}

TEST(bos_and_eos_that_are_not_there_are_errors) {
    weft_tokenizer *tokenizer = NULL;
    const uint32_t flags[2] = {WEFT_ENCODE_BOS, WEFT_ENCODE_EOS};
    const char *const says[2] = {"has no BOS token", "has no EOS token"};
    write_characters("");
    tokenizer = rig_open(scratch);
    for (size_t i = 0; i < 2; i++) {
        weft_bytes out = {NULL, 0, 0};
        ck_assert_int_eq(rig_try_encode(tokenizer, &out, "ab", 2, flags[i], &err), WEFT_E_USER);
        ck_assert_ptr_nonnull(strstr(err.text, says[i]));
        weft_bytes_free(&out);
    }
    rig_close(tokenizer);
}

/* --- long texts --- */

/* Writes tokens of 1, 2, 4, ... 64 times a. Every boundary in a run of a may be merged, so the complete run is
 * processed by one heap. */
static void write_doubling(void) {
    json_t *vocab = json_object(), *merges = json_array(), *root = NULL;
    char piece[65] = "";
    int id = 0;
    for (size_t n = 1; n <= 64; n *= 2) {
        memset(piece, 'a', n);
        piece[n] = 0;
        ck_assert_int_eq(json_object_set_new(vocab, piece, json_integer(id++)), 0);
        if (n > 1)
            ck_assert_int_eq(json_array_append_new(merges, json_pack("[s#, s#]", piece, (int)n / 2, piece, (int)n / 2)),
                             0);
    }
    root = json_pack("{s:{s:s, s:o, s:o}}", "model", "type", "BPE", "vocab", vocab, "merges", merges);
    ck_assert_ptr_nonnull(root);
    rig_write_json("tokenizer.json", root);
    json_decref(root);
}

TEST(a_run_of_millions_takes_seconds) {
    const size_t n = (size_t)2 << 20;
    char *text = malloc(n + 37);
    weft_tokenizer *tokenizer = NULL;
    weft_bytes ids;
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', n + 37);
    write_doubling();
    tokenizer = rig_open(scratch);
    ids = rig_encode(tokenizer, text, n + 37, 0);
    ck_assert_uint_eq(rig_n(&ids), n / 64 + 3); /* 37 = 32 + 4 + 1 */
    for (size_t i = 0; i < n / 64; i++) must(rig_id(&ids, i) == 6);
    ck_assert_int_eq(rig_id(&ids, n / 64), 5);
    ck_assert_int_eq(rig_id(&ids, n / 64 + 1), 2);
    ck_assert_int_eq(rig_id(&ids, n / 64 + 2), 0);
    weft_bytes_free(&ids);
    free(text);
    rig_close(tokenizer);
}

typedef struct counting {
    size_t calls, n;
    int32_t last;
} counting;

static weft_status count_ids(void *context, const int32_t *ids, size_t n) {
    counting *self = context;
    self->calls++;
    self->n += n;
    self->last = ids[n - 1];
    return self->calls == 3 ? WEFT_E_STOPPED : WEFT_OK;
}

TEST(a_sink_that_fails_ends_the_call) {
    char *text = malloc(100000);
    counting counted = {0, 0, 0};
    const weft_ids_sink sink = {&counted, count_ids};
    weft_tokenizer *tokenizer = open_golden("gpt2-style");
    ck_assert_ptr_nonnull(text);
    memset(text, '7', 100000);
    for (size_t i = 0; i < 100000; i += 3) text[i] = ' ';
    ck_assert_int_eq(plugin->encode(tokenizer, &sink, text, 100000, 0, &err), WEFT_E_STOPPED);
    ck_assert_uint_eq(counted.calls, 3);
    ck_assert(err.text[0] != 0);
    free(text);
    rig_close(tokenizer);
}

/* Adds a token to tokenizer.json. */
static void add_piece(json_t *root, const char *piece) {
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    if (json_object_get(vocab, piece) == NULL)
        ck_assert_int_eq(json_object_set_new(vocab, piece, json_integer((json_int_t)json_object_size(vocab))), 0);
}

/* A text is divided at line ends if a pattern ends its pre-tokens there, and before a blank that follows a letter if
 * every letter is in the vocabulary and no merge joins a letter with the blank after it. */
TESTS(long_texts_are_divided_where_ids_do_not_change, 7) {
    static const struct {
        const char *name;
        bool letters; /* add all letters to the vocabulary */
        const char *merge;
        bool is_divided;
    } rows[] = {
        {"gpt2-style", false, NULL, true},
        {"llama3-style", false, NULL, true},
        {"sp-bpe", false, NULL, false},
        {"sp-bpe", true, NULL, true},
        {"sp-bpe", true, "\xe2\x96\x81 a", true},
        {"sp-bpe", true, "e \xe2\x96\x81", false},
        {"sp-bpe", true, "Z \xe2\x96\x81", false},
    };
    char path[512], inside[128], piece[8] = "";
    json_t *root = NULL;
    weft_tokenizer *tokenizer = NULL;
    (void)snprintf(inside, sizeof inside, "tokenizer/%s/tokenizer.json", rows[_i].name);
    rig_golden(path, inside);
    root = rig_load_json(path);
    for (piece[0] = 'A'; rows[_i].letters && piece[0] <= 'z'; piece[0]++)
        if (piece[0] <= 'Z' || piece[0] >= 'a') add_piece(root, piece);
    if (rows[_i].merge != NULL) {
        const size_t n = strcspn(rows[_i].merge, " ");
        json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
        (void)snprintf(piece, sizeof piece, "%.*s%s", (int)n, rows[_i].merge, rows[_i].merge + n + 1);
        add_piece(root, piece);
        ck_assert_int_eq(json_array_insert_new(merges, 0, json_string(rows[_i].merge)), 0);
    }
    rig_write_json("tokenizer.json", root);
    json_decref(root);
    tokenizer = rig_open(scratch);
    ck_assert_int_eq(rig_is_divided(tokenizer, 600000, (uint64_t)_i), rows[_i].is_divided);
    rig_close(tokenizer);
}

/* --- threads --- */

typedef struct thread_work {
    const weft_tokenizer *tokenizer;
    uint64_t seed;
    int32_t *expected; /* a sum per text, from a single thread */
    int wrong;
} thread_work;

static int32_t sum_of(const weft_tokenizer *tokenizer, uint64_t seed) {
    char text[512];
    uint64_t state = seed;
    int32_t sum = 0;
    const size_t n = wild_text(text, sizeof text, &state);
    weft_bytes ids = {NULL, 0, 0};
    if (rig_try_encode(tokenizer, &ids, text, n, 0, &err) != WEFT_OK) return -1;
    for (size_t i = 0; i < rig_n(&ids); i++) sum = (sum * 31 + rig_id(&ids, i)) % 1000003;
    weft_bytes_free(&ids);
    return sum;
}

static void *encode_many(void *context) {
    thread_work *self = context;
    for (uint64_t i = 0; i < 300; i++) self->wrong += sum_of(self->tokenizer, self->seed + i) != self->expected[i];
    return NULL;
}

TESTS(threads_encode_at_once, 4) {
    weft_tokenizer *tokenizer = open_golden(names[_i]);
    thread_work work[4];
    pthread_t threads[4];
    int32_t expected[300];
    for (uint64_t i = 0; i < 300; i++) expected[i] = sum_of(tokenizer, 11 + i);
    for (int t = 0; t < 4; t++) {
        const thread_work one = {tokenizer, 11, expected, 0};
        work[t] = one;
        ck_assert_int_eq(pthread_create(&threads[t], NULL, encode_many, &work[t]), 0);
    }
    for (int t = 0; t < 4; t++) {
        ck_assert_int_eq(pthread_join(threads[t], NULL), 0);
        ck_assert_int_eq(work[t].wrong, 0);
    }
    rig_close(tokenizer);
}

/* --- memory --- */

/* Fails each allocation once: an error, and no leak. */
TESTS(memory_that_ends_is_an_error, 4) {
    char path[512], inside[128];
    bool done = false;
    int64_t fail_at = 1;
    (void)snprintf(inside, sizeof inside, "tokenizer/%s", names[_i]);
    rig_golden(path, inside);
    for (; !done && fail_at < 2000; fail_at++) {
        weft_tokenizer *tokenizer = NULL;
        weft_bytes ids = {NULL, 0, 0};
        weft_status status = WEFT_OK;
        rig_asked = 0;
        rig_fail_at = fail_at;
        status = plugin->create(&tokenizer, rig_host(), NULL, path, &err);
        if (status == WEFT_OK)
            status = rig_try_encode(tokenizer, &ids,
                                    "The harbour <s>\xff"
                                    "1234",
                                    20, 0, &err);
        if (status == WEFT_OK) {
            weft_bytes text = {NULL, 0, 0};
            const weft_text_sink sink = {&text, rig_put_text};
            status = plugin->decode(tokenizer, &sink, (const int32_t *)(const void *)ids.data, rig_n(&ids), 0, &err);
            weft_bytes_free(&text);
        }
        done = rig_asked < fail_at;
        must(status == WEFT_OK || status == WEFT_E_MEMORY);
        must(!done || status == WEFT_OK);
        if (tokenizer != NULL) plugin->destroy(tokenizer);
        weft_bytes_free(&ids);
        must(rig_held == 0);
    }
    rig_fail_at = 0;
    ck_assert(done);
    ck_assert_int_gt(fail_at, 30);
}

int main(void) {
    TCase *tests = tcase_create("bpe");
    tcase_add_checked_fixture(tests, rig_enter, scratch_remove);
    tcase_set_timeout(tests, 300);
    return run_tests(tests);
}
