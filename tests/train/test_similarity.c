/* One minus the cosine of two means: accuracy, and missing values. */
#include "suite.h"
#include "run/values.h"

#include <math.h>

TEST(directions) {
    static const struct {
        double a[3], b[3], expected;
    } cases[] = {
        {{1, 0, 0}, {0, 2, 0}, 1.0},
        {{3, 4, 0}, {-6, -8, 0}, 2.0},
        {{1, 0, 0}, {3, 4, 0}, 0.4},
        {{0.1, 0.7, -0.3}, {0.1, 0.7, -0.3}, 0.0},
    };
    for (size_t i = 0; i < LENGTH(cases); i++)
        ck_assert_double_eq_tol(weft_similarity_of(cases[i].a, cases[i].b, 3), cases[i].expected, 1e-15);
    ck_assert(weft_similarity_of(cases[3].a, cases[3].b, 3) == 0.0);
}

/* 1 - cosine would round to 0 or below. */
TEST(a_small_turn_is_not_lost) {
    const double a[] = {1.0, 0.0}, b[] = {1.0, 1e-9};
    ck_assert_double_eq_tol(weft_similarity_of(a, b, 2) / 0.5e-18, 1.0, 1e-6);
}

TEST(zero_and_nan_have_no_direction) {
    const double a[] = {0.0, 0.0}, b[] = {1.0, 1.0}, c[] = {NAN, 1.0};
    ck_assert(isnan(weft_similarity_of(a, b, 2)) && isnan(weft_similarity_of(b, a, 2)));
    ck_assert(isnan(weft_similarity_of(c, b, 2)));
}

int main(void) {
    return run_tests(tcase_create("similarity"));
}
