/* Mutated INI text never crashes and never fails without a message; accepted text is unchanged after writing and
 * reading. Mutations come from a counter, so that failures are reproducible. */
#include "helper.h"

#include "config/settings.h"

#define ROUNDS 4000

static const char seed_text[] =
    "# a run\n[model]\nplugin = sample\npath = ../m\n[train]\nsteps = 10\nglobal_batch = 8\n"
    "micro_batch = 2\nclip = 1e-1 ; c\nschedule = cosine\nwarmup = 0.1\ntrainable = a, \"b\"\n"
    "[eval]\nevery = 5%\n[plugins]\npath = x,y\n[run]\nout = \"o # 1\"\nseed = 2Ki\n";
static const char *const pieces[] = {"[",
                                     "]",
                                     "=",
                                     ":",
                                     "\"",
                                     "\\",
                                     "#",
                                     " ;",
                                     "\n",
                                     "\r\n",
                                     "\t",
                                     "none",
                                     "auto",
                                     "-1",
                                     "1e309",
                                     "[train]\n",
                                     "steps = 3\n",
                                     "\xC3\xA4",
                                     "\xFF",
                                     "\x01",
                                     ",",
                                     "/",
                                     "..",
                                     "%",
                                     "99999999999999999999",
                                     "\xEF\xBB\xBF",
                                     "plugin = a/b\n",
                                     "[[",
                                     "[] x",
                                     "k",
                                     ""};

static uint64_t state;

/* Returns a number below n. */
static size_t pick(size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((state >> 33) % n);
}

/* Mutates the n bytes at text, whose buffer has 64 more; returns the new n. */
static size_t mutate(char *text, size_t n) {
    const char *piece = pieces[pick(sizeof pieces / sizeof *pieces)];
    const size_t length = strlen(piece);
    const size_t at = pick(n + 1);
    const size_t run = pick(12);
    const size_t gone = run < n - at ? run : n - at;
    switch (pick(4)) {
    case 0: /* insert */
        memmove(text + at + length, text + at, n - at);
        memcpy(text + at, piece, length);
        return n + length;
    case 1: /* delete */ memmove(text + at, text + at + gone, n - at - gone); return n - gone;
    case 2: /* another byte */
        if (at < n) text[at] = (char)pick(256);
        return n;
    default: /* repeat a range */ memmove(text + at + gone, text + at, n - at); return n + gone;
    }
}

static weft_status read_config(weft_config **config, const char *path, weft_settings *settings, weft_error *err) {
    const char *id = NULL;
    weft_status status = weft_config_load(config, path, NULL, 0, err);
    if (status == WEFT_OK) status = weft_settings_load(settings, *config, err);
    if (status == WEFT_OK) status = weft_config_plugin(*config, &id, "model", "sample", err);
    return status == WEFT_OK ? weft_config_finish(*config, err) : status;
}

/* Returns 1 if the text was accepted. */
static int try_text(const char *text, size_t n) {
    weft_error err = WEFT_ERROR_INIT;
    weft_config *config = NULL, *again = NULL;
    weft_settings settings, settings2;
    weft_status status = WEFT_OK;
    write_bytes("fuzz.ini", text, n);
    status = read_config(&config, "fuzz.ini", &settings, &err);
    if (status == WEFT_OK) {
        char *one = NULL, *two = NULL;
        ck_assert_ok(weft_config_save_resolved(config, "one.ini", &err));
        ck_assert_ok(read_config(&again, "one.ini", &settings2, &err));
        ck_assert_ok(weft_config_save_resolved(again, "two.ini", &err));
        one = read_bytes("one.ini", NULL);
        two = read_bytes("two.ini", NULL);
        ck_assert_str_eq(one, two);
        free(one);
        free(two);
    } else {
        ck_assert_int_eq(status, WEFT_E_USER);
        ck_assert_msg(err.text[0] != '\0' && err.code == WEFT_E_USER, "no sentence");
    }
    weft_config_free(config);
    weft_config_free(again);
    return status == WEFT_OK;
}

TEST(mutated_text_is_read_or_refused) {
    int accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char text[sizeof seed_text + 8 * 64];
        size_t n = sizeof seed_text - 1;
        state = (uint64_t)round;
        memcpy(text, seed_text, n);
        for (size_t i = pick(3) + (round > 0); i > 0; i--) n = mutate(text, n);
        accepted += try_text(text, n);
    }
    printf("%d texts, %d accepted\n", ROUNDS, accepted);
    ck_assert_int_gt(accepted, ROUNDS / 50);
    ck_assert_int_lt(accepted, ROUNDS * 9 / 10);
}

int main(void) {
    TCase *tests = tcase_create("ini");
    tcase_add_checked_fixture(tests, scratch_enter, scratch_leave);
    tcase_set_timeout(tests, 600);
    return run_tests(tests);
}
