/* Types of keys: accepted texts, resulting values, and errors. */
#include "helper.h"

#include "config/nearest.h"
#include "config/number.h"
#include "config/value.h"

TEST(whole_numbers_are_read) {
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {{"0", 0},
                {"-3", -3},
                {"+7", 7},
                {"1e6", 1000000},
                {"1.5e3", 1500},
                {"4k", 4000},
                {"2Ki", 2048},
                {"1.5k", 1500},
                {"3M", 3000000},
                {"1Gi", 1 << 30},
                {"2e0", 2},
                {"1.0", 1},
                {"1T", 1000000000000},
                {"9223372036854775807", INT64_MAX},
                {"0.5Ki", 512}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t value = -1;
        ck_assert_msg(weft_number_i64(&value, rows[i].text), "%s", rows[i].text);
        ck_assert_int_eq(value, rows[i].value);
    }
}

TEST(what_is_no_whole_number_is_refused) {
    static const char *const rows[] = {"",
                                       " 1",
                                       "1 ",
                                       "a",
                                       "1.5",
                                       "1e-1",
                                       "0x10",
                                       "inf",
                                       "nan",
                                       "--1",
                                       "1kk",
                                       "1kI",
                                       "1ki",
                                       "1 k",
                                       "9223372036854775808",
                                       "1e19",
                                       "9e18k",
                                       ".",
                                       "e5",
                                       "1e",
                                       "5%",
                                       "1K",
                                       "10000000000000000T",
                                       "1,000"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t value = -1;
        ck_assert_msg(!weft_number_i64(&value, rows[i]), "%s", rows[i]);
        ck_assert_int_eq(value, -1);
    }
}

TEST(sizes_have_their_units) {
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {{"80GB", 80000000000},
                {"24GiB", (int64_t)24 << 30},
                {"512m", 512000000},
                {"1.5 TiB", (int64_t)3 << 39},
                {"7B", 7},
                {"4096b", 4096},
                {"3kb", 3000},
                {"2KI", 2048},
                {"79.6GB", 79600000000}};
    static const char *const refused[] = {"",      "80",     "GB",      "0GB",   "-1GB", "80XB",
                                          "80GBB", "80 G B", "1e300GB", "nanGB", "80iB"};
    int64_t value = -1;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ck_assert_msg(!weft_number_bytes(&value, refused[i]), "%s", refused[i]);
        ck_assert_int_eq(value, -1);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(weft_number_bytes(&value, rows[i].text), "%s", rows[i].text);
        ck_assert_int_eq(value, rows[i].value);
    }
}

TEST(numbers_are_read_and_print_shortest) {
    static const struct {
        const char *text;
        double value;
        const char *printed;
    } rows[] = {{"1e-3", 0.001, "0.001"},
                {"0.1", 0.1, "0.1"},
                {"-2.50", -2.5, "-2.5"},
                {".5", 0.5, "0.5"},
                {"3.", 3, "3"},
                {"0.30000000000000004", 0.30000000000000004, "0.30000000000000004"},
                {"20", 20, "20"},
                {"-3e2", -300, "-300"},
                {"4e5", 400000, "400000"},
                {"2500000", 2.5e6, "2.5e+06"},
                {"1e-300", 1e-300, "1e-300"}};
    static const char *const none[] = {"",      "inf",    "nan", "0x1p3", "1e400", "1e-400",
                                       "1e300", "-1e300", "1 ",  "1k",    "1e5x"};
    char printed[32];
    double value = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(weft_number_f64(&value, rows[i].text), "%s", rows[i].text);
        ck_assert_msg(value == rows[i].value, "%s", rows[i].text);
        weft_number_print(printed, sizeof printed, value);
        ck_assert_str_eq(printed, rows[i].printed);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!weft_number_f64(&value, none[i]), "%s", none[i]);
}

TEST(ranges_are_read) {
    static const struct {
        const char *text, *advice;
        double inside, outside;
    } rows[] = {{"(0,inf)", "a positive number", 1e-9, 0},
                {"[0,inf) | none", "a number of 0 or more, or none", 0, -1e-9},
                {"(0,1]", "a number above 0 and at most 1", 1, 1.1},
                {"[-1,1) | none | auto", "a number of at least -1 and below 1, none or auto", -1, 1},
                {"(-inf,0]|auto", "a number of 0 or less, or auto", 0, 0.1},
                {"(-inf,5)", "a number below 5", 4.9, 5}};
    static const char *const bad[] = {"0,1",           "[0,1",          "[0;1]",    "[1,0]",   "(1,1)",
                                      "[1,1)",         "[0,inf]",       "[-inf,1]", "[0,1,2]", "[a,b]",
                                      "[0,1] | maybe", "[0,1] | [2,3]", "|",        "[,1]",    "none none"};
    weft_bounds range;
    char advice[240];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(weft_bounds_parse(&range, rows[i].text, WEFT_KEY_F64), "%s", rows[i].text);
        ck_assert(weft_bounds_has(&range, rows[i].inside));
        ck_assert(!weft_bounds_has(&range, rows[i].outside));
        weft_bounds_advise(&range, advice, sizeof advice);
        ck_assert_str_eq(advice, rows[i].advice);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(!weft_bounds_parse(&range, bad[i], WEFT_KEY_F64), "%s", bad[i]);
        ck_assert_msg(!weft_bounds_parse(&range, bad[i], WEFT_KEY_I64), "%s", bad[i]);
    }
    ck_assert(!weft_bounds_parse(&range, "(0,1)", WEFT_KEY_I64)); /* contains no integer */
    ck_assert(!weft_bounds_parse(&range, "[0.5,2]", WEFT_KEY_I64));
    ck_assert(weft_bounds_parse(&range, "", WEFT_KEY_I64));
    ck_assert(!weft_bounds_has(&range, WEFT_NONE_I64)); /* values of the special words are not numbers */
    ck_assert(!weft_bounds_has(&range, WEFT_AUTO_I64));
}

/* A key, a text, and the result. */
static const struct {
    int32_t type;
    const char *range, *text;
    const char *kept; /* NULL: rejected */
    const char *says;
} values[] = {
    {WEFT_KEY_I64, "[1,inf) | none", "10", "10", NULL},
    {WEFT_KEY_I64, "[1,inf) | none", "4k", "4000", NULL},
    {WEFT_KEY_I64, "[1,inf) | none", "none", "none", NULL},
    {WEFT_KEY_I64, "[1,inf) | none", "auto", NULL, "is not a whole number: give a whole number of 1 or more, or none"},
    {WEFT_KEY_I64, "[1,inf)", "none", NULL, "is not a whole number"},
    {WEFT_KEY_I64, "[1,inf)", "0", NULL, "is outside [1,inf): give a whole number of 1 or more"},
    {WEFT_KEY_I64, "", "-9223372036854775808", NULL, "is outside"},
    {WEFT_KEY_I64, "[1,inf)", "", NULL, "is empty: give"},
    {WEFT_KEY_I64, "[1,inf)", "2.5", NULL, "is not a whole number"},
    {WEFT_KEY_I64, "[1,inf)", "20K", NULL,
     "is not a whole number: give a whole number of 1 or more; its suffix may be k, M"},
    {WEFT_KEY_F64, "(0,inf) | none", "-1", NULL, "is outside (0,inf) | none: give a positive number, or none"},
    {WEFT_KEY_F64, "(0,1]", "ten", NULL, "is not a number: give a number above 0 and at most 1"},
    {WEFT_KEY_F64, "(0,1]", "1e-3", "0.001", NULL},
    {WEFT_KEY_F64, "(0,1] | auto", "auto", "auto", NULL},
    {WEFT_KEY_BOOL, "", "yes", "yes", NULL},
    {WEFT_KEY_BOOL, "", "True", "yes", NULL},
    {WEFT_KEY_BOOL, "", "on", "yes", NULL},
    {WEFT_KEY_BOOL, "", "1", "yes", NULL},
    {WEFT_KEY_BOOL, "", "no", "no", NULL},
    {WEFT_KEY_BOOL, "", "false", "no", NULL},
    {WEFT_KEY_BOOL, "", "OFF", "no", NULL},
    {WEFT_KEY_BOOL, "", "0", "no", NULL},
    {WEFT_KEY_BOOL, "", "2", NULL, "is neither yes nor no"},
    {WEFT_KEY_BOOL, "", "", NULL, "is neither yes nor no"},
    {WEFT_KEY_STR, "none", " any # text ", " any # text ", NULL},
    {WEFT_KEY_STR, "", "", "", NULL},
    {WEFT_KEY_ENUM, "fp32, bf16", "bf16", "bf16", NULL},
    {WEFT_KEY_ENUM, "constant,linear,cosine", "cosin", NULL,
     "is not one of: constant,linear,cosine; did you mean cosine?"},
    {WEFT_KEY_ENUM, "constant,linear,cosine", "xyz", NULL, "is not one of: constant,linear,cosine"},
    {WEFT_KEY_ENUM, "a,b", "", NULL, "is not one of"},
    {WEFT_KEY_LIST, "", " a , b,c ", "a,b,c", NULL},
    {WEFT_KEY_LIST, "", "", "", NULL},
    {WEFT_KEY_LIST, "", "a,,b", NULL, "empty element"},
    {WEFT_KEY_LIST, "", "a,", NULL, "empty element"},
    {WEFT_KEY_PATH, "none", "none", "none", NULL},
    {WEFT_KEY_PATH, "none", "x", "/base/x", NULL},
    {WEFT_KEY_PATH, "none | number", "0.1", "0.1", NULL},
    {WEFT_KEY_PATH, "none | number", "none", "none", NULL},
    {WEFT_KEY_PATH, "none | number", "number", "/base/number", NULL},
    {WEFT_KEY_PATH, "none | number", "0.1.txt", "/base/0.1.txt", NULL},
    {WEFT_KEY_PATH, "none", "0.1", "/base/0.1", NULL},
    {WEFT_KEY_PATH, "none|number", "-5", "-5", NULL}, /* the plugin decides which numbers are valid */
    {WEFT_KEY_PATH, "none | number", "1e3", "1e3", NULL},
    {WEFT_KEY_PATH, "none | number", "./12", "/base/12", NULL},
    {WEFT_KEY_PATH, "none | number", "12/", "/base/12", NULL},
    {WEFT_KEY_PATH, "none | number", "/12", "/12", NULL},
    {WEFT_KEY_PATH, "none | number", "1k", "/base/1k", NULL},
    {WEFT_KEY_PATH, "none | number", "5%", "/base/5%", NULL},
    {WEFT_KEY_PATH, "none | number", "nan", "/base/nan", NULL},
    {WEFT_KEY_PATH, "none | number", "inf", "/base/inf", NULL},
    {WEFT_KEY_PATH, "none | number", "0x10", "/base/0x10", NULL},
    {WEFT_KEY_PATH, "none | number", "", "", NULL},
    {WEFT_KEY_PATH, "none | numbers", "12", "/base/12", NULL},
    {WEFT_KEY_STR, "number", "12", "12", NULL},
    {WEFT_KEY_PATH, "", "", "", NULL},
    {WEFT_KEY_PATH, "", "/abs//x/./y/../z/", "/abs/x/z", NULL},
    {WEFT_KEY_PATH, "", "../x", "/x", NULL},
    {WEFT_KEY_PATH, "", "../../../x", "/x", NULL},
};

TEST(no_number_is_a_slip_of_another) {
    weft_nearest near = {"4", "", 0};
    weft_nearest_offer(&near, "3", 1);
    weft_nearest_offer(&near, "1", 1);
    ck_assert_str_eq(near.best, "");
    weft_nearest_offer(&near, "4k", 2);
    ck_assert_str_eq(near.best, "4k");
}

TESTS(values_are_judged_by_their_key, LENGTH(values)) {
    const weft_key key = {(uint32_t)sizeof key, 0, values[_i].type, 0, "key", NULL, values[_i].range, "", "Help."};
    weft_error err = WEFT_ERROR_INIT;
    weft_value value = {{0}, NULL};
    const weft_status status = weft_value_parse(&value, &key, values[_i].text, "/base", &err);
    if (values[_i].kept != NULL) {
        ck_assert_ok(status);
        ck_assert_str_eq(value.text, values[_i].kept);
    } else {
        ck_assert_int_eq(status, WEFT_E_USER);
        ck_assert_says(err, values[_i].says);
    }
    weft_value_free(&value);
}

TEST(values_arrive_as_their_c_type) {
    static const struct {
        int32_t type;
        const char *range, *text;
        int64_t whole;
        double real;
    } rows[] = {{WEFT_KEY_I64, "none", "12", 12, 0},
                {WEFT_KEY_I64, "[0,1]|none", "none", WEFT_NONE_I64, 0},
                {WEFT_KEY_I64, "auto", "auto", WEFT_AUTO_I64, 0},
                {WEFT_KEY_F64, "", "0.25", 0, 0.25},
                {WEFT_KEY_F64, "none", "none", 0, WEFT_NONE_F64},
                {WEFT_KEY_F64, "auto", "auto", 0, WEFT_AUTO_F64},
                {WEFT_KEY_BOOL, "", "on", 1, 0},
                {WEFT_KEY_ENUM, "a, b,c", "b", 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const weft_key key = {(uint32_t)sizeof key, 0, rows[i].type, 0, "key", NULL, rows[i].range, "", "Help."};
        weft_error err = WEFT_ERROR_INIT;
        weft_value value = {{0}, NULL};
        int64_t whole = 0;
        double real = 0;
        ck_assert_ok(weft_value_parse(&value, &key, rows[i].text, "/", &err));
        memcpy(&whole, value.bytes, 8);
        memcpy(&real, value.bytes, 8);
        if (rows[i].type == WEFT_KEY_F64) ck_assert(real == rows[i].real);
        else ck_assert_int_eq(whole, rows[i].whole);
        weft_value_free(&value);
    }
}

TEST(a_step_behind_a_link_stays) {
    char expected[256];
    char *path = NULL;
    ck_assert_int_eq(mkdir("real", 0777), 0);
    ck_assert_int_eq(mkdir("real/inner", 0777), 0);
    ck_assert_int_eq(symlink("real/inner", "link"), 0);
    path = weft_path_absolute(scratch, "link/../x");
    (void)snprintf(expected, sizeof expected, "%s/link/../x", scratch); /* the kernel resolves it to real/x */
    ck_assert_str_eq(path, expected);
    free(path);
    path = weft_path_absolute(scratch, "real/../x");
    ck_assert_str_eq(path, scratch_path("x"));
    free(path);
}

TEST(near_names_are_near) {
    ck_assert_int_eq(weft_edit_distance("", "abc"), 3);
    ck_assert_int_eq(weft_edit_distance("kitten", "sitting"), 3);
    ck_assert_int_eq(weft_edit_distance("warmpu", "warmup"), 1);
    ck_assert_int_eq(weft_edit_distance("Micro-Batch", "micro_batch"), 0);
    static const struct {
        const char *word, *name;
        bool near;
    } rows[] = {{"stesp", "steps", true},
                {"lr", "lr2", true},
                {"clop", "clip", true},
                {"abc", "clip", false},
                {"x", "lr", false},
                {"beta", "beta1", true},
                {"wieght_dekay", "weight_decay", true},
                {"", "lr", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_nearest near = {rows[i].word, "", 0};
        weft_nearest_offer(&near, rows[i].name, strlen(rows[i].name));
        ck_assert_msg((*near.best != '\0') == rows[i].near, "%s %s", rows[i].word, rows[i].name);
    }
    weft_nearest best = {"warm", "", 0};
    weft_nearest_offer(&best, "warmup", 6);
    weft_nearest_offer(&best, "warmt", 5);
    weft_nearest_offer(&best, "warms", 5);
    ck_assert_str_eq(best.best, "warmt");
}

int main(void) {
    TCase *tests = tcase_create("types");
    tcase_add_checked_fixture(tests, scratch_enter, scratch_leave);
    return run_tests(tests);
}
