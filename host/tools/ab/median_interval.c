/* host/tools/ab/median_interval.c: see median_interval.h. */
#include "tools/ab/median_interval.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest k with 2 P(B(n, 1/2) < k) <= alpha; 0: none. Summed as logarithms: 2^-n is too small for large n. */
static int32_t places_from_end(int32_t n, double alpha) {
    double chance = 0;
    int32_t k = 0;
    for (; k < n; k++) {
        chance += exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) - n * log(2.0));
        if (2 * chance > alpha) break;
    }
    return k;
}

double weft_median_of(double *values, int32_t n) {
    if (n == 0) return NAN;
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

weft_median_interval weft_median_interval_of(double *values, int32_t n, double alpha) {
    const int32_t k = places_from_end(n, alpha);
    const weft_median_interval out = {weft_median_of(values, n), k > 0 ? values[k - 1] : -INFINITY,
                                      k > 0 ? values[n - k] : INFINITY, k > 0};
    return out;
}
