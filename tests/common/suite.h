/* tests/common/suite.h: tests that register themselves, the end of a program's main, and assertions missing in Check.
 *
 *     TEST(a_name_of_the_behaviour) { ck_assert_int_eq(1 + 1, 2); }
 *     TESTS(a_name_for_each_row, sizeof rows / sizeof *rows) { ck_assert(rows[_i].holds); }
 *
 *     int main(void) { return run_tests(tcase_create("name")); } */
#ifndef WEFT_TEST_SUITE_H
#define WEFT_TEST_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* True if the full suite is requested (tests/CMakeLists.txt): more draws, larger grids. */
static inline bool is_full(void) {
    const char *value = getenv("WEFT_FULL");
    return value != NULL && strcmp(value, "1") == 0;
}

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* A test that runs for each _i from FROM to TO - 1, which are evaluated when the program starts its tests. */
#define TEST_RANGE(name, from, ...)                                                                                    \
    static const TTest *name;                                                                                          \
    static void name##_range(int *first, int *end) {                                                                   \
        *first = (int)(from);                                                                                          \
        *end = (int)(__VA_ARGS__);                                                                                     \
    }                                                                                                                  \
    __attribute__((constructor)) static void name##_register(void) {                                                   \
        register_test(&name, name##_range);                                                                            \
    }                                                                                                                  \
    START_TEST(name)
#define TESTS(name, ...) TEST_RANGE(name, 0, __VA_ARGS__)
#define TEST(name)       TEST_RANGE(name, 0, 1)

/* Registered tests run in the order of their file. */
void register_test(const TTest **test, void (*range)(int *first, int *end));
void add_registered_tests(TCase *to);

static inline int run_runner(SRunner *runner, enum print_output output) {
    int failed = 0;
    srunner_run_all(runner, output);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

/* Runs the suite and returns the exit status. */
static inline int run_suite(Suite *suite) {
    return run_runner(srunner_create(suite), CK_ENV);
}

static inline SRunner *create_runner(TCase *tests) {
    Suite *suite = suite_create("tests");
    add_registered_tests(tests);
    suite_add_tcase(suite, tests);
    return srunner_create(suite);
}

/* A case with a timeout in seconds (0: Check's own) and a fixture (NULL: none). */
static inline TCase *test_case(const char *name, double timeout, SFun setup, SFun teardown) {
    TCase *tests = tcase_create(name);
    if (timeout > 0) tcase_set_timeout(tests, timeout);
    tcase_add_checked_fixture(tests, setup, teardown);
    return tests;
}

/* Runs the registered tests as this case, which may have a fixture. Returns the exit status. */
static inline int run_tests(TCase *tests) {
    return run_runner(create_runner(tests), CK_ENV);
}

/* The same without fork, which some threads do not survive. */
static inline int run_tests_in_one_process(TCase *tests) {
    SRunner *runner = create_runner(tests);
    srunner_set_fork_status(runner, CK_NOFORK);
    return run_runner(runner, CK_NORMAL);
}

/* The same for a rank launched by another test's process: without fork, and all tests, even if the parent selected one
 * case. */
static inline int run_rank_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    int failed = 0;
    (void)unsetenv("CK_RUN_CASE");
    srunner_set_fork_status(runner, CK_NOFORK);
    failed = run_runner(runner, CK_NORMAL);
    (void)fflush(stdout);
    if (failed != 0) (void)usleep(300000); /* a launcher drops output that it has not forwarded when a rank fails */
    return failed;
}

/* For loops over every position: Check's own assertions write to a file each time. */
#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) ck_abort_msg("line %d: not true: %s", __LINE__, #condition);                                 \
    } while (0)

/* Checks a weft_status, and prints the message of the weft_error otherwise. */
#define ck_assert_ok(status, err) ck_assert_msg((status) == WEFT_OK, "%s", (err).text)

/* Checks that the message of a weft_error contains the part. */
#define ck_assert_says(err, part)                                                                                      \
    ck_assert_msg(strstr((err).text, part) != NULL, "\"%s\" does not say \"%s\"", (err).text, part)

#endif
