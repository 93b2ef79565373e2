/* tests/common/suite.h: how every test program ends, and assertions that Check lacks. */
#ifndef WEFT_TEST_SUITE_H
#define WEFT_TEST_SUITE_H

#include <check.h>
#include <string.h>

/* Runs all of it and gives the exit status. */
static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    int failed = 0;
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
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
