/* Parsing of INI files, line by line. */
#include "helper.h"

#include "config/ini.h"

static weft_error err = WEFT_ERROR_INIT;

/* Parser instructions, as "[section]" and "section.key=<value>@line" lines. */
typedef struct heard {
    char text[8192];
} heard;

static weft_status on_line(void *context, const char *section, const char *key, const char *value, long line,
                           weft_error *unused) {
    heard *self = context;
    const size_t n = strlen(self->text);
    (void)unused;
    if (key == NULL) (void)snprintf(self->text + n, sizeof self->text - n, "[%s]\n", section);
    else (void)snprintf(self->text + n, sizeof self->text - n, "%s.%s=<%s>@%ld\n", section, key, value, line);
    return WEFT_OK;
}

static weft_status parse_bytes(heard *out, const char *text, size_t n) {
    out->text[0] = '\0';
    return weft_ini_parse(on_line, out, "a.ini", text, n, &err);
}

static const struct {
    const char *text, *heard;
} good[] = {
    {"", ""},
    {"\n\n# c\n; d\n", ""},
    {"[s]\nk = v\n", "[s]\ns.k=<v>@2\n"},
    {"[s]\nk=v", "[s]\ns.k=<v>@2\n"},
    {"  [ s ]  # c\n\tk\t=\tv\t\n", "[s]\ns.k=<v>@2\n"},
    {"[s]\r\nk = v\r\n\r\nl = w # c\r\n", "[s]\ns.k=<v>@2\ns.l=<w>@4\n"},
    {"\xEF\xBB\xBF[s]\nk = v\n", "[s]\ns.k=<v>@2\n"},
    {"[s]\nk = v ; c\nl = w # c\nm = a;b#c\n", "[s]\ns.k=<v>@2\ns.l=<w>@3\ns.m=<a;b#c>@4\n"},
    {"[s]\nk =\nl = # c\nm =#c\n", "[s]\ns.k=<>@2\ns.l=<>@3\ns.m=<#c>@4\n"},
    {"[s]\nk = \" a ; b # c \" # d\n", "[s]\ns.k=< a ; b # c >@2\n"},
    {"[s]\nk = \"say \\\"hi\\\" \\\\\"\n", "[s]\ns.k=<say \"hi\" \\>@2\n"},
    {"[s]\nk = \"\"\n", "[s]\ns.k=<>@2\n"},
    {"[s]\nk = say \"hi\"\n", "[s]\ns.k=<say \"hi\">@2\n"},
    {"[s]\nk = a=b:c\n", "[s]\ns.k=<a=b:c>@2\n"},
    {"[s]\nk : v\n", "[s]\ns.k=<v>@2\n"},
    {"[s]\nk = v\n   l = w\n", "[s]\ns.k=<v>@2\ns.l=<w>@3\n"}, /* an indented line is a separate line */
    {"[s]\n[t]\n[s]\nk = v\n", "[s]\n[t]\n[s]\ns.k=<v>@4\n"},
    {"[s]\nk = \xC3\xA4\n", "[s]\ns.k=<\xC3\xA4>@2\n"},
};

TESTS(good_text_is_read, LENGTH(good)) {
    heard told;
    ck_assert_ok(parse_bytes(&told, good[_i].text, strlen(good[_i].text)));
    ck_assert_str_eq(told.text, good[_i].heard);
}

#define BYTES(text) text, sizeof text - 1
static const struct {
    const char *text;
    size_t n;
    const char *where, *says;
} bad[] = {
    {BYTES("k = v\n"), "a.ini:1: ", "precedes the first [section]"},
    {BYTES("[s]\njust text\n"), "a.ini:2: ", "'just text' is neither [section] nor key = value"},
    {BYTES("[s]\n= v\n"), "a.ini:2: ", "name is missing"},
    {BYTES("[s]\nfoo ; bar = 3\n"), "a.ini:2: ", "neither [section] nor key = value"},
    {BYTES("\n[s\nk = v\n"), "a.ini:2: ", "without ]"},
    {BYTES("[]\n"), "a.ini:1: ", "letters, digits"},
    {BYTES("[a b]\n"), "a.ini:1: ", "letters, digits"},
    {BYTES("[abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx]\n"), "a.ini:1: ", "at most 49"},
    {BYTES("[s] k = v\n"), "a.ini:1: ", "text follows [s]"},
    {BYTES("[s]\nk = \"a\n"), "a.ini:2: ", "closing quote"},
    {BYTES("[s]\nk = \"a\" b\n"), "a.ini:2: ", "text follows"},
    {BYTES("[s]\nk = \"a\"b\"\n"), "a.ini:2: ", "text follows"},
    {BYTES("[s]\nk = \"a\\n\"\n"), "a.ini:2: ", "backslash"},
    {BYTES("[s]\nk = \"a\\"), "a.ini:2: ", "backslash"},
    {BYTES("[s]\nk = a\0b\n"), "a.ini:2: ", "NUL"},
    {BYTES("\xFF\xFE[\0s\0]\0"), "a.ini:1: ", "UTF-16"},
    {BYTES("[s]\n\nk = \xE4\n"), "a.ini:3: ", "UTF-8"},
    {BYTES("[s]\nk = a\x1b[31m\n"), "a.ini:2: ", "control character"},
    {BYTES("[s]\rk = v\r"), "a.ini:1: ", "control character"},
};

TESTS(bad_text_is_refused_with_its_line, LENGTH(bad)) {
    heard told;
    ck_assert_int_eq(parse_bytes(&told, bad[_i].text, bad[_i].n), WEFT_E_USER);
    ck_assert_msg(strncmp(err.text, bad[_i].where, strlen(bad[_i].where)) == 0, "%s", err.text);
    ck_assert_says(err, bad[_i].says);
}

/* inih's own buffer has 200 bytes. */
TEST(long_values_are_whole) {
    char text[4096], value[3001];
    heard told;
    memset(value, 'x', 3000);
    value[3000] = '\0';
    (void)snprintf(text, sizeof text, "[s]\nk = %s\nl = w\n", value);
    ck_assert_ok(parse_bytes(&told, text, strlen(text)));
    ck_assert_uint_eq(strlen(told.text), strlen("[s]\ns.k=<>@2\ns.l=<w>@3\n") + 3000);
    ck_assert_ptr_nonnull(strstr(told.text, value));
    ck_assert_ptr_nonnull(strstr(told.text, "s.l=<w>@3"));
}

TEST(a_long_comment_is_passed_over) {
    char text[2048] = "[s]\n#";
    heard told;
    memset(text + 5, '=', 1000);
    strcpy(text + 1005, "\nk = v\n");
    ck_assert_ok(parse_bytes(&told, text, strlen(text)));
    ck_assert_str_eq(told.text, "[s]\ns.k=<v>@3\n");
}

TEST(a_long_name_is_refused) {
    char text[2048] = "[s]\n";
    heard told;
    memset(text + 4, 'k', 1000);
    strcpy(text + 1004, " = v\n");
    ck_assert_int_eq(parse_bytes(&told, text, strlen(text)), WEFT_E_USER);
    ck_assert_says(err, "a.ini:2: ");
    ck_assert_says(err, "too long");
}

TEST(printed_values_read_back) {
    static const char *const values[] = {"v",     "",     " v", "v ",     "a # b",  "a #",  "a#b", "#a",  ";",   "\"",
                                         "\"a\"", "a\"b", "\\", "a \\ b", " \\\" ", "a\tb", "=",   "[x]", "none"};
    const size_t n = sizeof values / sizeof *values;
    char *text = NULL, expected[1024] = "[s]\n";
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    heard told;
    fprintf(file, "[s]\n");
    for (size_t i = 0; i < n; i++) {
        char line[64];
        weft_ini_print(file, "k", values[i]);
        (void)snprintf(line, sizeof line, "s.k=<%s>@%zu\n", values[i], i + 2);
        strcat(expected, line);
    }
    (void)fclose(file);
    ck_assert_ok(parse_bytes(&told, text, size));
    ck_assert_str_eq(told.text, expected);
    free(text);
}

int main(void) {
    return run_tests(tcase_create("lines"));
}
