/* host/tools/ab/paired_losses.c: see paired_losses.h. */
#include "tools/ab/paired_losses.h"

#include <math.h>

/* Abramowitz and Stegun, 26.7.3 and 26.7.4: P(|T| < t), a finite series in cos^2 of atan(t / sqrt(n)). */
static double chance_within(double t, int64_t n) {
    const double angle = atan(t / sqrt((double)n)), c = cos(angle), pi = 3.14159265358979323846;
    const bool odd = n % 2 == 1;
    double term = odd ? c : 1, sum = n == 1 ? 0 : term;
    for (int64_t k = odd ? 3 : 2; k < n - 1; k += 2) {
        term *= c * c * (double)(k - 1) / (double)k;
        sum += term;
    }
    return odd ? 2 / pi * (angle + sin(angle) * sum) : sin(angle) * sum;
}

double weft_student_t(int64_t freedom) {
    double low = 1.9, high = 13;
    if (freedom > 1000) return 1.959964 + 2.372 / (double)freedom; /* the first terms of 26.7.5 */
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (chance_within(middle, freedom) < 0.95) low = middle;
        else high = middle;
    }
    return high;
}

static weft_paired_loss around(double mean, double deviation, int64_t freedom) {
    const double reach = weft_student_t(freedom) * deviation;
    const weft_paired_loss out = {mean, mean - reach, mean + reach, true};
    return out;
}

weft_paired_loss weft_paired_loss_of_micro_batches(const double *a, const double *b, const int64_t *targets,
                                                   int64_t n) {
    double all = 0, sum = 0, weights = 0, squares = 0;
    int64_t used = 0, freedom = 0;
    weft_paired_loss out = {NAN, -INFINITY, INFINITY, false};
    for (int64_t i = 0; i < n; i++) {
        if (targets[i] == 0) continue;
        all += (double)targets[i];
        weights += pow((double)targets[i], 2);
        sum += b[i] - a[i];
        used++;
    }
    if (used == 0) return out;
    out.mean = sum / all;
    freedom = (int64_t)(all * all / weights) - 1;
    if (used < WEFT_AB_FEWEST_MICRO_BATCHES || freedom < 1 || !isfinite(out.mean)) return out;
    for (int64_t i = 0; i < n; i++)
        squares += pow((b[i] - a[i] - out.mean * (double)targets[i]) / (1 - (double)targets[i] / all), 2);
    return around(out.mean, sqrt((double)(used - 1) / (double)used * squares) / all, freedom);
}

weft_paired_loss weft_paired_loss_of_seeds(const double *means, int32_t n) {
    double sum = 0, squares = 0;
    weft_paired_loss out = {NAN, -INFINITY, INFINITY, false};
    for (int32_t i = 0; i < n; i++) sum += means[i];
    if (n > 0) out.mean = sum / n;
    for (int32_t i = 0; i < n; i++) squares += pow(means[i] - out.mean, 2);
    if (n < 2 || !isfinite(out.mean)) return out;
    return around(out.mean, sqrt(squares / (n - 1) / n), n - 1);
}
