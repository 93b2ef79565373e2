/* host/tools/ab/verdict.c: see verdict.h. */
#include "tools/ab/verdict.h"

#include <math.h>
#include <weft/random.h>

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

weft_ab_verdict weft_ab_judge(const weft_ab_times *times, int32_t arm, int32_t look) {
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

/* What a normal value leaves on either side with a chance of alpha, together. */
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
    static const double of_eight = 1.129; /* by so much the median deviation of so few is too small */
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
