/* tests/common/suite.h: main function of test programs, and assertions missing in Check. */
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

/* Checks that the message of a weft_error contains the part. */
#define ck_assert_says(err, part)                                                                                      \
    ck_assert_msg(strstr((err).text, part) != NULL, "\"%s\" does not say \"%s\"", (err).text, part)

#endif
