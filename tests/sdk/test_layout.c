/* The public structs are what plugins were compiled with: every size, offset and slot order is held against layout.txt.
 * A change on purpose is a new layout.txt, which this program writes to layout.txt in the build directory. */
#include "suite.h"

#include <check.h>
#include <stdlib.h>
#include <glob.h>

#include <weft/comm.h>
#include <weft/data.h>
#include <weft/emit.h>
#include <weft/model.h>
#include <weft/policy.h>
#include <weft/random.h>
#include <weft/roof.h>
#include <weft/tokenizer.h>

static const char *const structs[] = {
#define STRUCT(name) #name,
#define F(field)
#define END
#include "layout.def"
#undef STRUCT
#undef F
#undef END
};
#define N_STRUCTS (sizeof structs / sizeof structs[0])

/* Fields in order must touch each other: between two that do not, one is missing here or the compiler has padded. */
static void print_layout(FILE *out) {
#define STRUCT(name)                                                                                                   \
    {                                                                                                                  \
        typedef name this_struct;                                                                                      \
        size_t end = 0;                                                                                                \
        const char *of = #name;                                                                                        \
        (void)fprintf(out, "%s %zu\n", #name, sizeof(this_struct));
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

START_TEST(no_layout_has_changed) {
    char path[4096], *now = NULL, *then = NULL;
    const char *build = getenv("WEFT_BUILD");
    size_t line = 1, i = 0;
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "%s/layout.txt", build == NULL ? "." : build);
    file = fopen(path, "w");
    ck_assert_msg(file != NULL, "%s cannot be written", path);
    print_layout(file);
    ck_assert_int_eq(fclose(file), 0);
    now = read_text(path);
    then = read_text(in_source("tests/sdk/layout.txt"));
    for (i = 0; now[i] != 0 && now[i] == then[i]; i++) line += now[i] == '\n';
    ck_assert_msg(now[i] == then[i],
                  "the layout differs from tests/sdk/layout.txt in line %zu. Plugins that are built "
                  "already would break. On purpose? Copy %s there.",
                  line, path);
    free(now);
    free(then);
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

int main(void) {
    Suite *suite = suite_create("layout");
    TCase *tests = tcase_create("layout");
    tcase_add_test(tests, no_layout_has_changed);
    tcase_add_test(tests, every_public_struct_is_held);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
