/* host/tools/ab/median_interval.h: the median of paired differences, and an interval that holds the true one,
 * whatever the differences are distributed like: of n independent ones, how many lie above the median is binomial
 * with p = 1/2, so the k-th smallest and the k-th largest bound it with a chance of 1 - 2 P(B(n, 1/2) < k) (the
 * interval of the sign test; Conover, Practical Nonparametric Statistics, 3.2). A few wild differences move it by a
 * place at most. */
#ifndef WEFT_HOST_TOOLS_AB_MEDIAN_INTERVAL_H
#define WEFT_HOST_TOOLS_AB_MEDIAN_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_median_interval {
    double median, low, high;
    bool bounded; /* false: n is too small for this alpha, and low and high are infinite */
} weft_median_interval;

enum { WEFT_MEDIAN_MOST = 4096 };

/* values: [n], n <= WEFT_MEDIAN_MOST; they are sorted. alpha: the chance of missing it. */
weft_median_interval weft_median_interval_of(double *values, int32_t n, double alpha);

/* The middle one, or the mean of the two in the middle; values are sorted. */
double weft_median_of(double *values, int32_t n);

#endif
