/* tests/common/suite.h: how every test program ends, and assertions that Check lacks. */
#ifndef WEFT_TEST_SUITE_H
#define WEFT_TEST_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The full suite is asked for (tests/CMakeLists.txt): more draws, larger grids. */
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

/* Runs all of it and gives the exit status. */
static inline int run_suite(Suite *suite) {
    return run_runner(srunner_create(suite), CK_ENV);
}

/* The same of a rank that another test's process has launched: in this very process, and all of it, whatever case was
 * chosen there. */
static inline int run_rank_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    int failed = 0;
    (void)unsetenv("CK_RUN_CASE");
    srunner_set_fork_status(runner, CK_NOFORK);
    failed = run_runner(runner, CK_NORMAL);
    (void)fflush(stdout);
    if (failed != 0) (void)usleep(300000); /* a launcher forgets what it has not passed on when a rank ends badly */
    return failed;
}

/* For loops over every place: Check's own assertions write to a file each time. */
#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) ck_abort_msg("line %d: not true: %s", __LINE__, #condition);                                 \
    } while (0)

/* A weft_error's sentence has the part. */
#define ck_assert_says(err, part)                                                                                      \
    ck_assert_msg(strstr((err).text, part) != NULL, "\"%s\" does not say \"%s\"", (err).text, part)

#endif
