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
/* Row 2 (mode), or the one named, with one error. */
static void lie(int i) {
    static char unprintable[] = "a\x1b[2J", long_text[500];
    memset(long_text, 'x', sizeof long_text - 1);
    switch (i) {
    case 0: rows[2].offset = (uint32_t)sizeof(sound_config); break;
    case 1: rows[2].offset = 4; break;
    case 2: rows[2].offset = UINT32_MAX - 7; break;
    case 3: rows[2].offset = rows[0].offset; break;
    case 4: rows[2].name = "lr"; break;
    case 5: rows[2].name = NULL; break;
    case 6: rows[2].name = ""; break;
    case 7: rows[2].name = "Mode"; break;
    case 8: rows[2].name = "mo de"; break;
    case 9: rows[2].name = "plugin"; break;
    case 10: rows[2].name = "a2345678901234567890123456789012345678901"; break;
    case 11: rows[2].help = NULL; break;
    case 12: rows[2].help = ""; break;
    case 13: rows[2].help = unprintable; break;
    case 14: rows[2].help = long_text; break;
    case 15: rows[2].type = 0; break;
    case 16: rows[2].type = 99; break;
    case 17: rows[2].flags = 0x100; break;
    case 18: rows[2].flags = WEFT_HOST_FORMS; break;
    case 19: rows[2].range = "a,,b"; break;
    case 20: rows[2].range = "a,b,a"; break;
    case 21: rows[2].range = ""; break;
    case 22: rows[2].range = NULL; break;
    case 23: rows[2].fallback = "c"; break;
    case 24: rows[0].fallback = "0"; break;
    case 25: rows[0].fallback = "fast"; break;
    case 26: rows[0].range = "(0,1"; break;
    case 27: rows[0].range = "(1,0)"; break;
    case 28: rows[1].fallback = "auto"; break;
    case 29: rows[3].fallback = "relative/path"; break;
    case 30: rows[4].range = "a,b"; break;
    case 31: rows[4].fallback = "a,,b"; break;
    case 32: rows[2].unit = NULL; break;
    case 33: rows[2].struct_size = 8; break;
    case 34: rows[2].struct_size = 4096; break;
    default: rows[5].help = ""; break; /* a removed key needs an explanation */
    }
}

/* clang-format on */

static const char *const says[] = {"its offset",
                                   "its offset 4",
                                   "its offset",
                                   "it fills the same bytes as lr",
                                   "row 0 has the same name",
                                   "its name is missing",
                                   "its name is empty",
                                   "its name must begin with a small letter",
                                   "its name may only have",
                                   "its name is the host's",
                                   "its name is longer",
                                   "its help is missing",
                                   "its help is empty",
                                   "its help has control characters",
                                   "its help is longer",
                                   "its type 0",
                                   "its type 99",
                                   "flags that do not exist",
                                   "flags that do not exist",
                                   "its range 'a,,b'",
                                   "its range 'a,b,a'",
                                   "its range ''",
                                   "its range is missing",
                                   "its default 'c' is not one of: a,b",
                                   "its default '0' is outside (0,1]",
                                   "its default 'fast' is not a number",
                                   "its range '(0,1' cannot be read",
                                   "its range '(1,0)'",
                                   "its default 'auto'",
                                   "its default 'relative/path'",
                                   "its range 'a,b'",
                                   "its default 'a,,b'",
                                   "its unit is missing",
                                   "its struct_size is 8 bytes",
                                   "its struct_size is 4096",
                                   "row 5, old: its help is empty"};

TESTS(a_table_that_lies_is_refused, LENGTH(says)) {
    lie(_i);
    ck_assert_int_eq(check(), WEFT_E_PLUGIN);
    ck_assert_says(err, "the key table's row ");
    ck_assert_says(err, says[_i]);
}

TEST(a_name_that_is_the_hosts_is_shown) {
    lie(9);
    ck_assert_int_eq(check(), WEFT_E_PLUGIN);
    ck_assert_says(err, "the key table's row 2, plugin: its name is the host's");
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
