/* tests/config/helper.h: shared by the tests of the configuration. */
#ifndef WEFT_TEST_CONFIG_HELPER_H
#define WEFT_TEST_CONFIG_HELPER_H

#include "scratch.h"
#include "suite.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"

#undef ck_assert_ok /* here with the `err` of the caller */
#define ck_assert_ok(expression)                                                                                       \
    do {                                                                                                               \
        const weft_status status_ = (expression);                                                                      \
        ck_assert_msg(status_ == WEFT_OK, "status %d: %s", (int)status_, err.text);                                    \
    } while (0)

#endif
