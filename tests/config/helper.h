/* tests/config/helper.h: files in a directory of the test's own, and errors that must say something. */
#ifndef WEFT_TEST_CONFIG_HELPER_H
#define WEFT_TEST_CONFIG_HELPER_H

#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"

static char test_directory[64] __attribute__((unused)); /* absolute, without links; the working directory too */

static inline void directory_enter(void) {
    strcpy(test_directory, "/tmp/weft-config-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(test_directory));
    ck_assert_int_eq(chdir(test_directory), 0);
}

static inline void directory_leave(void) {
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", test_directory);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

static inline void write_bytes(const char *name, const char *bytes, size_t n) {
    FILE *file = fopen(name, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text) {
    write_bytes(name, text, strlen(text));
}

/* The content of a file; to be freed. */
static inline char *read_text(const char *name) {
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(name, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_lt(fread(text, 1, (1 << 16) - 1, file), (1 << 16) - 1);
    (void)fclose(file);
    return text;
}

/* "DIR/name" in a buffer that the next call but three overwrites. */
static inline const char *in_directory(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof *paths, "%s/%s", test_directory, name);
    return path;
}

#define ck_assert_says(err, part)                                                                                      \
    ck_assert_msg(strstr((err).text, part) != NULL, "\"%s\" does not say \"%s\"", (err).text, part)

#define ck_assert_ok(expression)                                                                                       \
    do {                                                                                                               \
        const weft_status status_ = (expression);                                                                      \
        ck_assert_msg(status_ == WEFT_OK, "status %d: %s", (int)status_, err.text);                                    \
    } while (0)

static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#endif
