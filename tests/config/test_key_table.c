/* External key tables are validated before use, and valid ones print as help. */
#include "helper.h"

#include "config/settings.h"
#include "tools/common/plugins.h"

#define KEYS(K)                                                                                                        \
    K(F64, lr, "1e-4", "(0,1]", "", WEFT_SAME, "Step size before the schedule.")                                       \
    K(I64, steps, NULL, "[1,inf) | none", "steps", WEFT_SAME, "How long.")                                             \
    K(ENUM, mode, "a", "a,b", "", 0, "Which way.")                                                                     \
    K(PATH, path, "none", "none", "", 0, "Where.")                                                                     \
    K(LIST, names, "", "", "", 0, "Which ones.")                                                                       \
    K(BOOL, old, NULL, "", "", WEFT_REMOVED, "use mode instead.")

WEFT_KEYS(sound_config, KEYS)

static weft_key rows[sound_config_n_keys];
static weft_error err;

static void setup(void) {
    const weft_error none = WEFT_ERROR_INIT;
    memcpy(rows, sound_config_keys(), sizeof rows);
    err = none;
}

static weft_status check(void) {
    return weft_key_table_check(rows, sound_config_n_keys, sizeof *rows, sizeof(sound_config), &err);
}

TEST(a_sound_table_passes) {
    ck_assert_ok(check());
    ck_assert_ok(weft_key_table_check(NULL, 0, 0, 8, &err));
}

/* rows[3] is a PATH. A number is a valid default if the range includes the word "number"; the word itself never is. */
TEST(a_number_may_be_the_default_of_a_path) {
    static const struct {
        const char *range, *fallback;
        bool sound;
    } texts[] = {{"none | number", "0.1", true},
                 {"none | number", "none", true},
                 {"number", "12", true},
                 {"number", "/12", true},
                 {"none | number", "number", false},
                 {"none | number", "./12", false},
                 {"none | number", "12.txt", false},
                 {"none", "12", false},
                 {"", "number", false}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_int_eq(rows[3].type, WEFT_KEY_PATH);
        rows[3].range = texts[i].range;
        rows[3].fallback = texts[i].fallback;
        ck_assert_msg((check() == WEFT_OK) == texts[i].sound, "%s: %s: %s", texts[i].range, texts[i].fallback,
                      err.text);
        if (!texts[i].sound) ck_assert_says(err, "is a relative path");
    }
}

/* rows[4] is a LIST. */
TEST(paths_are_lists) {
    rows[4].flags = WEFT_PATHS;
    ck_assert_ok(check());
    rows[4].fallback = "a";
    ck_assert_int_eq(check(), WEFT_E_PLUGIN);
    ck_assert_says(err, "WEFT_PATHS requires a LIST that is required or empty by default");
    rows[4].fallback = NULL; /* required */
    ck_assert_ok(check());
    rows[4].fallback = "";
    rows[3].flags = WEFT_PATHS;
    ck_assert_int_eq(check(), WEFT_E_PLUGIN);
    ck_assert_says(err, "WEFT_PATHS requires a LIST");
}

TEST(all_tables_of_the_host_pass) {
    weft_settings_section table;
    size_t n = 0;
    for (; weft_settings_table(&table, n); n++) {
        weft_key copy[64];
        ck_assert_uint_le(table.n, 64);
        for (uint64_t i = 0; i < table.n; i++) {
            copy[i] = table.keys[i];
            copy[i].flags &= ~(WEFT_HOST_FORMS | WEFT_HOST_OFFERED | WEFT_HOST_NAMED);
        }
        ck_assert_ok(weft_key_table_check(copy, table.n, sizeof *copy, table.size, &err));
    }
    ck_assert_uint_eq(n, 10);
}

/* clang-format off */
/* Makes error number i in row 2 (mode), or in the row named, and returns a part of its message; NULL: no such error. */
static const char *make_error(int i) {
    static char long_text[500];
    int n = 0;
    memset(long_text, 'x', sizeof long_text - 1);
#define ERROR(change, text) if (n++ == i) { change; return text; }
    ERROR(rows[2].offset = (uint32_t)sizeof(sound_config), "its offset")
    ERROR(rows[2].offset = 4, "its offset 4")
    ERROR(rows[2].offset = UINT32_MAX - 7, "its offset")
    ERROR(rows[2].offset = rows[0].offset, "it fills the same bytes as lr")
    ERROR(rows[2].name = "lr", "row 0 has the same name")
    ERROR(rows[2].name = NULL, "its name is missing")
    ERROR(rows[2].name = "", "its name is empty")
    ERROR(rows[2].name = "Mode", "its name must begin with a small letter")
    ERROR(rows[2].name = "mo de", "its name may only have")
    ERROR(rows[2].name = "plugin", "its name is the host's")
    ERROR(rows[2].name = "a2345678901234567890123456789012345678901", "its name is longer")
    ERROR(rows[2].help = NULL, "its help is missing")
    ERROR(rows[2].help = "", "its help is empty")
    ERROR(rows[2].help = "a\x1b[2J", "its help has control characters")
    ERROR(rows[2].help = long_text, "its help is longer")
    ERROR(rows[2].type = 0, "its type 0")
    ERROR(rows[2].type = 99, "its type 99")
    ERROR(rows[2].flags = 0x100, "flags that do not exist")
    ERROR(rows[2].flags = WEFT_HOST_FORMS, "flags that do not exist")
    ERROR(rows[2].range = "a,,b", "its range 'a,,b'")
    ERROR(rows[2].range = "a,b,a", "its range 'a,b,a'")
    ERROR(rows[2].range = "", "its range ''")
    ERROR(rows[2].range = NULL, "its range is missing")
    ERROR(rows[2].fallback = "c", "its default 'c' is not one of: a,b")
    ERROR(rows[0].fallback = "0", "its default '0' is outside (0,1]")
    ERROR(rows[0].fallback = "fast", "its default 'fast' is not a number")
    ERROR(rows[0].range = "(0,1", "its range '(0,1' cannot be read")
    ERROR(rows[0].range = "(1,0)", "its range '(1,0)'")
    ERROR(rows[1].fallback = "auto", "its default 'auto'")
    ERROR(rows[3].fallback = "relative/path", "its default 'relative/path'")
    ERROR(rows[4].range = "a,b", "its range 'a,b'")
    ERROR(rows[4].fallback = "a,,b", "its default 'a,,b'")
    ERROR(rows[2].unit = NULL, "its unit is missing")
    ERROR(rows[2].struct_size = 8, "its struct_size is 8 bytes")
    ERROR(rows[2].struct_size = 4096, "its struct_size is 4096")
    ERROR(rows[5].help = "", "row 5, old: its help is empty")
    return NULL;
}
/* clang-format on */

enum { ERRORS = 36 };

TESTS(rejects_a_table_with_one_error, ERRORS) {
    const char *says = make_error(_i);
    ck_assert_int_eq(check(), WEFT_E_PLUGIN);
    ck_assert_says(err, "the key table's row ");
    ck_assert_says(err, says);
    ck_assert_ptr_null(make_error(ERRORS));
}

TEST(a_table_of_the_wrong_shape_is_refused) {
    ck_assert_int_eq(weft_key_table_check(NULL, 3, sizeof *rows, 64, &err), WEFT_E_PLUGIN);
    ck_assert_int_eq(weft_key_table_check(rows, 1, 8, 64, &err), WEFT_E_PLUGIN);
    ck_assert_int_eq(weft_key_table_check(rows, 1, sizeof *rows + 4, 64, &err), WEFT_E_PLUGIN);
    ck_assert_int_eq(weft_key_table_check(rows, UINT64_MAX / 2, sizeof *rows, 64, &err), WEFT_E_PLUGIN);
    ck_assert_int_eq(weft_key_table_check(rows, 1, sizeof *rows, UINT64_MAX, &err), WEFT_E_PLUGIN);
    ck_assert_int_eq(weft_key_table_check(rows, 1, sizeof *rows, 7, &err), WEFT_E_PLUGIN);
}

TEST(help_is_aligned_and_leaves_removed_keys_out) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    weft_key_table_print(rows, sound_config_n_keys, sizeof *rows, file);
    (void)fclose(file);
    ck_assert_str_eq(text, "  lr     1e-4        number (0,1]                        Step size before the schedule.\n"
                           "  steps  (required)  whole number [1,inf) | none, steps  How long.\n"
                           "  mode   a           a,b                                 Which way.\n"
                           "  path   none        path | none                         Where.\n"
                           "  names  \"\"          list                                Which ones.\n");
    free(text);
}

TEST(long_help_goes_below) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    rows[1].help = "A help that is so long that its line would be longer than what a terminal of usual width can show.";
    weft_key_table_print(rows, 2, sizeof *rows, file);
    (void)fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "  lr     1e-4        number (0,1]\n      Step size"));
    free(text);
}

int main(void) {
    TCase *tests = tcase_create("tables");
    tcase_add_checked_fixture(tests, setup, NULL);
    return run_tests(tests);
}
