/* Public structs must match compiled plugins: every size, offset and slot order is compared to layout.txt, and the
 * sizes at SDK 1.0 to weft/sizes.h. For an intended change, this program writes a new layout.txt to the build
 * directory. Sizes of 1.0 are permanent, in tests/archive/sdk-1.0; sizes.h only gains the first sizes of new
 * structs. */
#include "suite.h"

#include <check.h>
#include <stdlib.h>
#include <glob.h>

#include <weft/blocks.h>
#include <weft/dynamic8.h>
#include <weft/capture.h>
#include <weft/choices.h>
#include <weft/comm.h>
#include <weft/data.h>
#include <weft/dry_run.h>
#include <weft/emit.h>
#include <weft/model.h>
#include <weft/native.h>
#include <weft/adapter.h>
#include <weft/policy.h>
#include <weft/random.h>
#include <weft/roofline.h>
#include <weft/team.h>
#include <weft/tokenizer.h>
#include <weft/transfer.h>

static const char *const structs[] = {
#define STRUCT(name) #name,
#define FIXED(name)  #name,
#define F(field)
#define END
#include "layout.def"
#undef STRUCT
#undef FIXED
#undef F
#undef END
};
#define N_STRUCTS (sizeof structs / sizeof structs[0])

/* Consecutive fields must be adjacent; otherwise a field is missing here or the compiler has added padding. */
static void print_layout(FILE *out) {
#define STRUCT(name)                                                                                                   \
    {                                                                                                                  \
        typedef name this_struct;                                                                                      \
        size_t end = 0;                                                                                                \
        const char *of = #name;                                                                                        \
        (void)fprintf(out, "%s %zu\n", #name, sizeof(this_struct));
#define FIXED(name) STRUCT(name)
#define F(field)                                                                                                       \
    ck_assert_msg(offsetof(this_struct, field) == end, "%s: a hole before %s at %zu", of, #field, end);                \
    end = offsetof(this_struct, field) + sizeof(((this_struct *)NULL)->field);                                         \
    (void)fprintf(out, "    %-28s %4zu %4zu\n", #field, offsetof(this_struct, field),                                  \
                  sizeof(((this_struct *)NULL)->field));
#define END                                                                                                            \
    ck_assert_msg(end == sizeof(this_struct), "%s: a hole at its end, after %zu", of, end);                            \
    }
#include "layout.def"
#undef STRUCT
#undef FIXED
#undef F
#undef END
}

static const char *in_source(const char *path) {
    static char whole[4096];
    const char *source = getenv("WEFT_SOURCE");
    ck_assert_msg(source != NULL, "WEFT_SOURCE must name the source directory; ctest sets it");
    (void)snprintf(whole, sizeof whole, "%s/%s", source, path);
    return whole;
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_lt(fread(text, 1, (1 << 20) - 1, file), (1 << 20) - 1);
    (void)fclose(file);
    return text;
}

/* Returns the size in SDK 1.0, or the current size of a newer struct. */
static size_t first_size(const char *measured, const char *name, size_t now) {
    char line[256];
    const char *at = NULL;
    size_t then = 0;
    (void)snprintf(line, sizeof line, "\nstruct %s grows ", name);
    at = strstr(measured, line);
    if (at == NULL) return now;
    then = strtoul(at + strlen(line), NULL, 10);
    ck_assert_msg(now >= then, "%s has %zu bytes, and had %zu in SDK 1.0: structs grow", name, now, then);
    return then;
}

static void print_sizes(FILE *out) {
    const char *before = "";
    char *measured = read_text(in_source("tests/archive/sdk-1.0/measured.txt"));
    ck_assert_ptr_nonnull(strstr(measured, "\nstruct weft_error grows "));
    (void)fprintf(
        out, "%s",
        "/* weft/sizes.h: how many bytes each public struct has in SDK 1.0, and so at least. A reader refuses a\n"
        " * struct_size below that (WEFT_WHOLE) and asks WEFT_HAS only for what was appended later. Written by\n"
        " * tests/sdk/test_layout.c. */\n"
        "#ifndef WEFT_SIZES_H\n"
        "#define WEFT_SIZES_H\n"
        "\n"
        "/* clang-format off */\n"
        "enum {");
#define STRUCT(name)                                                                                                   \
    ck_assert_uint_eq(offsetof(name, struct_size), 0);                                                                 \
    ck_assert_uint_eq(offsetof(name, flags), sizeof(uint32_t));                                                        \
    (void)fprintf(out, "%s\n    WEFT_SIZE_1_0_%-28s = %4zu", before, #name,                                            \
                  first_size(measured, #name, sizeof(name)));                                                          \
    before = ",";
#define FIXED(name)
#define F(field)
#define END
#include "layout.def"
#undef STRUCT
#undef FIXED
#undef F
#undef END
    (void)fprintf(out, "%s", "\n};\n/* clang-format on */\n\n#endif\n");
    free(measured);
}

/* Checks that the output of `print`, stored as build/NAME, equals the source file `held`. */
static void expect_held(void (*print)(FILE *out), const char *name, const char *held) {
    char path[4096], *now = NULL, *then = NULL;
    const char *build = getenv("WEFT_BUILD");
    size_t line = 1, i = 0;
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", build == NULL ? "." : build, name);
    file = fopen(path, "w");
    ck_assert_msg(file != NULL, "%s cannot be written", path);
    print(file);
    ck_assert_int_eq(fclose(file), 0);
    now = read_text(path);
    then = read_text(in_source(held));
    for (i = 0; now[i] != 0 && now[i] == then[i]; i++) line += now[i] == '\n';
    ck_assert_msg(
        now[i] == then[i],
        "the structs differ from %s in line %zu. Plugins that are built already would break. On purpose? Copy "
        "%s there.",
        held, line, path);
    free(now);
    free(then);
}

START_TEST(no_layout_has_changed) {
    expect_held(print_layout, "layout.txt", "tests/sdk/layout.txt");
}
END_TEST

START_TEST(sizes_of_sdk_1_0_are_held) {
    expect_held(print_sizes, "sizes.h", "sdk/include/weft/sizes.h");
}
END_TEST

static void expect_known(const char *name, size_t n, const char *header) {
    size_t i;
    for (i = 0; i < N_STRUCTS; i++) {
        if (strlen(structs[i]) == n && memcmp(structs[i], name, n) == 0) return;
    }
    ck_abort_msg("%s declares struct %.*s, which is not in layout.def", header, (int)n, name);
}

START_TEST(every_public_struct_is_held) {
    glob_t found;
    size_t i, seen = 0;
    ck_assert_int_eq(glob(in_source("sdk/include/weft/*.h"), 0, NULL, &found), 0);
    for (i = 0; i < found.gl_pathc; i++) {
        char *text = read_text(found.gl_pathv[i]);
        const char *at = text;
        while ((at = strstr(at, "struct weft_")) != NULL) {
            const size_t n = strspn(at + 7, "abcdefghijklmnopqrstuvwxyz0123456789_");
            if (at[7 + n] == ' ' && at[8 + n] == '{') {
                expect_known(at + 7, n, found.gl_pathv[i]);
                seen++;
            }
            at += 7 + n;
        }
        free(text);
    }
    ck_assert_uint_eq(seen, N_STRUCTS);
    globfree(&found);
}
END_TEST

START_TEST(who_reads_every_struct_is_said) {
    char *page = read_text(in_source("docs/abi.md"));
    size_t i;
    for (i = 0; i < N_STRUCTS; i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "`%s`", structs[i]);
        ck_assert_msg(strstr(page, name) != NULL, "docs/abi.md does not say who makes and who reads %s", structs[i]);
    }
    free(page);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("layout");
    TCase *tests = tcase_create("layout");
    tcase_add_test(tests, no_layout_has_changed);
    tcase_add_test(tests, sizes_of_sdk_1_0_are_held);
    tcase_add_test(tests, who_reads_every_struct_is_said);
    tcase_add_test(tests, every_public_struct_is_held);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
