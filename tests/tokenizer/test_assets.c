/* Real tokenizers and texts, if the assets are available: GPT-2, LLaMA 2 and a small LLaMA. */
#include "assets.h"
#include "rig.h"

static bool asset(char path[512], const char *name) {
    ck_assert_int_lt(snprintf(path, 512, "%s", asset_path(name)), 512);
    if (access(path, R_OK) == 0) return true;
    printf("skipped: tokenizers against real files, %s is not there\n", name);
    return false;
}

/* --- complete files: number and hash of the ids from the `tokenizers` library --- */

static const struct {
    const char *tokenizer, *file;
    size_t n;
    uint64_t hash; /* FNV-1a of the ids */
} known[] = {
    {"tokenizers/llama2", "chess_games.pgn", 2035364, 0xde5d26779d1ad9d7u},
    {"tokenizers/llama2", "chess_openings.tsv", 227372, 0x77454a26ee151318u},
    {"tokenizers/llama2", "gsm8k_test.jsonl", 281310, 0xea61747f8ddeeea9u},
    {"tokenizers/llama2", "gsm8k_train_alpaca_format.json", 1400647, 0x090e825c6cf44eedu},
    {"tokenizers/llama2", "tinyshakespeare.txt", 368633, 0x9ffb7adb6cf19127u},
    {"tokenizers/llama2", "tinystories_4MB_lowercase.txt", 1123275, 0x925346e5f4878b66u},
    {"tokenizers/gpt2", "chess_games.pgn", 1677405, 0x49753cff9d1f5e9bu},
    {"tokenizers/gpt2", "chess_openings.tsv", 196186, 0x5ee9acecc34e075du},
    {"tokenizers/gpt2", "gsm8k_test.jsonl", 222356, 0x945bd7275823d8b7u},
    {"tokenizers/gpt2", "gsm8k_train_alpaca_format.json", 1304976, 0x6adb5c5cd580b6b9u},
    {"tokenizers/gpt2", "tinyshakespeare.txt", 338025, 0xb547ad363c19676eu},
    {"tokenizers/gpt2", "tinystories_4MB_lowercase.txt", 1046654, 0xbd66a06c1fad5180u},
    {"stories260k/hf", "chess_games.pgn", 2901162, 0x5d4ac3ee2c71e3ebu},
    {"stories260k/hf", "chess_openings.tsv", 318511, 0x308ce04806406542u},
    {"stories260k/hf", "gsm8k_test.jsonl", 505821, 0xadef8281e6b30aafu},
    {"stories260k/hf", "gsm8k_train_alpaca_format.json", 2769626, 0x73f6d39dee341decu},
    {"stories260k/hf", "tinyshakespeare.txt", 693363, 0x406e6b525bf9d735u},
    {"stories260k/hf", "tinystories_4MB_lowercase.txt", 2093471, 0x6102a99d2dfc8320u},
};

static uint64_t hash_of(const weft_bytes *ids) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < rig_n(ids); i++) hash = (hash ^ (uint64_t)rig_id(ids, i)) * 1099511628211u;
    return hash;
}

TESTS(whole_files_give_the_librarys_ids_and_come_back, LENGTH(known)) {
    char directory[512], path[512], inside[128];
    weft_bytes text, ids, back;
    weft_tokenizer *tokenizer = NULL;
    (void)snprintf(inside, sizeof inside, "data/%s", known[_i].file);
    if (!asset(directory, known[_i].tokenizer) || !asset(path, inside)) return;
    text.data = read_bytes(path, &text.n);
    tokenizer = rig_open(directory);
    ids = rig_encode(tokenizer, text.data, text.n, 0);
    ck_assert_msg(rig_n(&ids) == known[_i].n, "%s, %s: %zu ids", known[_i].tokenizer, known[_i].file, rig_n(&ids));
    ck_assert_msg(hash_of(&ids) == known[_i].hash, "%s, %s: other ids", known[_i].tokenizer, known[_i].file);
    back = rig_decode(tokenizer, &ids, 0);
    ck_assert_uint_eq(back.n, text.n);
    ck_assert(memcmp(back.data, text.data, text.n) == 0);
    weft_bytes_free(&text);
    weft_bytes_free(&ids);
    weft_bytes_free(&back);
    rig_close(tokenizer);
}

/* --- short texts and their ids, in separate files --- */

static const char *const sets[] = {"llama2", "gpt2"};
static const char border[] = "\n__ggml_vocab_test__\n";

static void check_line(const weft_tokenizer *tokenizer, const char *text, size_t n, char *line) {
    weft_bytes ids = rig_encode(tokenizer, text, n, 0);
    size_t i = 0;
    char *end = line;
    for (long id = strtol(line, &end, 10); end != line; id = strtol(line = end, &end, 10), i++)
        ck_assert_msg(i < rig_n(&ids) && rig_id(&ids, i) == id, "id %zu of \"%.*s\"", i, (int)n, text);
    ck_assert_msg(i == rig_n(&ids), "\"%.*s\" has %zu ids, expected %zu", (int)n, text, rig_n(&ids), i);
    weft_bytes_free(&ids);
}

TESTS(short_texts_give_the_expected_ids, 2) {
    char directory[512], path[512], name[128];
    weft_bytes texts, lines;
    weft_tokenizer *tokenizer = NULL;
    char *text = NULL, *line = NULL, *rest = NULL;
    size_t n = 0;
    (void)snprintf(name, sizeof name, "tokenizers/%s", sets[_i]);
    if (!asset(directory, name)) return;
    (void)snprintf(name, sizeof name, "tokenizers/vectors/%s.inp", sets[_i]);
    if (!asset(path, name)) return;
    texts.data = read_bytes(path, &texts.n);
    (void)snprintf(name, sizeof name, "tokenizers/vectors/%s.out", sets[_i]);
    if (!asset(path, name)) return;
    lines.data = read_bytes(path, &lines.n);
    ck_assert_int_eq(weft_bytes_put(&lines, "", 1), WEFT_OK);
    /* tokenizer.json only: the class of tokenizer_config.json prepends no blank to a text that begins with one. */
    (void)snprintf(path, sizeof path, "%.*s/tokenizer.json", (int)sizeof path - 20, directory);
    ck_assert_int_eq(symlink(path, scratch_path("tokenizer.json")), 0);
    tokenizer = rig_open(scratch);
    text = texts.data;
    rest = lines.data;
    while (text != NULL && (line = strsep(&rest, "\n")) != NULL) {
        const size_t left = texts.n - (size_t)(text - texts.data);
        char *end = memmem(text, left, border, sizeof border - 1);
        check_line(tokenizer, text, end == NULL ? left : (size_t)(end - text), line);
        text = end == NULL ? NULL : end + sizeof border - 1;
        n++;
    }
    ck_assert_uint_gt(n, 40);
    weft_bytes_free(&texts);
    weft_bytes_free(&lines);
    rig_close(tokenizer);
}

int main(void) {
    TCase *tests = tcase_create("bpe");
    tcase_add_checked_fixture(tests, rig_enter, scratch_remove);
    tcase_set_timeout(tests, 300);
    return run_tests(tests);
}
