/* host/tools/ab/verdict.c: see verdict.h. */
#include "tools/ab/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/random.h>

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the largest k with 2 P(B(n, 1/2) < k) <= alpha, or 0. Uses logarithms, because 2^-n underflows. */
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

int32_t weft_ab_look(int32_t rounds) {
    int32_t at = WEFT_AB_FIRST_LOOK, look = 1;
    while (at < rounds) {
        at += at / 2; /* 8, 12, 18, 27, ... */
        look++;
    }
    return at == rounds ? look : 0;
}

static double alpha_of(int32_t look) {
    static const double pi = 3.14159265358979323846;
    return 0.05 * 6 / (pi * pi * look * look);
}

weft_ab_verdict weft_ab_check(const weft_ab_times *times, int32_t arm, int32_t look) {
    static const weft_ab_verdict none;
    weft_ab_verdict out = none;
    const double *first = times->of[0], *again = times->of[times->arms], *mine = times->of[arm];
    double ratio[WEFT_AB_MOST_ROUNDS], noise[WEFT_AB_MOST_ROUNDS];
    for (int32_t i = 0; i < times->rounds; i++) {
        ratio[i] = log(mine[i]) - (log(first[i]) + log(again[i])) / 2;
        noise[i] = log(again[i]) - log(first[i]);
    }
    out.rounds = times->rounds;
    out.ratio = weft_median_interval_of(ratio, times->rounds, alpha_of(look));
    out.noise = weft_median_interval_of(noise, times->rounds, WEFT_AB_NOISE_ALPHA);
    out.noise_bound = fmax(fabs(out.noise.low), fabs(out.noise.high));
    out.bound = fmax(fabs(out.ratio.low), fabs(out.ratio.high));
    if (!out.ratio.bounded || !out.noise.bounded) out.answer = WEFT_AB_UNDECIDED;
    else if (out.ratio.high < -out.noise_bound) out.answer = WEFT_AB_FASTER;
    else if (out.ratio.low > out.noise_bound) out.answer = WEFT_AB_SLOWER;
    else out.answer = WEFT_AB_NO_DIFFERENCE;
    return out;
}

/* Returns the two-sided normal quantile for alpha. */
static double deviations(double alpha) {
    double low = 0, high = 40;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (erfc(middle / sqrt(2)) > alpha) low = middle;
        else high = middle;
    }
    return low;
}

static int32_t last_look(int32_t rounds) {
    int32_t looks = 0;
    for (int32_t r = 1; r <= rounds; r++) looks += weft_ab_look(r) > 0;
    return looks;
}

double weft_ab_told(double *noise, int32_t n, int32_t rounds) {
    static const double mean_deviation = 0.7979, four_in_five = 0.8416; /* sqrt(2 / pi); a normal quantile */
    static const double of_eight = 1.129; /* bias correction of the median deviation of so few values */
    const double middle = weft_median_of(noise, n), of_ratio = sqrt(3) / 2;
    double of_median = 0, clears = 0, slips = 0;
    if (n == 0 || rounds < WEFT_AB_FIRST_LOOK) return NAN;
    for (int32_t i = 0; i < n; i++) noise[i] = fabs(noise[i] - middle);
    of_median = 1.2533 * 1.4826 * of_eight * weft_median_of(noise, n) / sqrt(rounds);
    clears = of_ratio * deviations(alpha_of(last_look(rounds))) + deviations(WEFT_AB_NOISE_ALPHA) + mean_deviation;
    slips = four_in_five * hypot(of_ratio, 1);
    return expm1((clears + slips) * of_median);
}

void weft_ab_order(int32_t *order, int32_t arms, int32_t round, uint64_t seed) {
    const uint64_t n = (uint64_t)arms + 1;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t place = round % 2 == 0 ? i : n - 1 - i;
        order[i] = (int32_t)weft_random_permute(n, place, seed, WEFT_RANDOM_EPOCH, (uint64_t)round / 2);
    }
}

weft_ab_change weft_ab_change_of(const char *key) {
    static const char *const rounds[] = {"train.micro_batch", "strategy.reduce"};
    static const char *const spreads[] = {"strategy.", "policy.", "comm.",   "checkpoint.",
                                          "plugins.",  "eval.",   "run.out", "train.activation_checkpointing"};
    if (strcmp(key, "strategy.reduce_dtype") == 0) return WEFT_AB_LEARNS;
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        if (strcmp(key, rounds[i]) == 0) return WEFT_AB_ROUNDS;
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++)
        if (strncmp(key, spreads[i], strlen(spreads[i])) == 0) return WEFT_AB_SPREADS;
    return WEFT_AB_LEARNS;
}

static weft_ab_outcome of_time(weft_ab_answer answer) {
    static const weft_ab_outcome of[] = {WEFT_AB_UNKNOWN, WEFT_AB_BETTER, WEFT_AB_WORSE, WEFT_AB_EQUAL};
    return of[answer];
}

static weft_ab_outcome of_learning(weft_ab_learning answer) {
    static const weft_ab_outcome of[] = {WEFT_AB_NOT_COMPARABLE, WEFT_AB_BETTER, WEFT_AB_WORSE, WEFT_AB_EQUAL,
                                         WEFT_AB_UNKNOWN};
    return of[answer];
}

bool weft_ab_is_defect(const weft_ab_evidence *evidence) {
    return !evidence->same_bits && evidence->change == WEFT_AB_SPREADS && evidence->covered;
}

weft_ab_outcome weft_ab_outcome_of(const weft_ab_evidence *evidence) {
    const weft_ab_outcome time = evidence->loose ? WEFT_AB_UNKNOWN : of_time(evidence->time);
    const weft_ab_outcome learning = of_learning(evidence->learning);
    if (evidence->first_diverged) return WEFT_AB_NOT_COMPARABLE;
    if (evidence->diverged) return WEFT_AB_WORSE;
    if (weft_ab_is_defect(evidence)) return WEFT_AB_NOT_COMPARABLE;
    if (evidence->learning == WEFT_AB_NOT_LEARNED) {
        const bool alters = !evidence->same_bits && evidence->change == WEFT_AB_LEARNS;
        return alters ? WEFT_AB_NOT_COMPARABLE : time;
    }
    if (learning == WEFT_AB_UNKNOWN || time == WEFT_AB_UNKNOWN) return WEFT_AB_UNKNOWN;
    if (learning == WEFT_AB_EQUAL) return time;
    if (time == WEFT_AB_EQUAL || time == learning) return learning;
    return WEFT_AB_NOT_COMPARABLE; /* faster and worse, or slower and better */
}
