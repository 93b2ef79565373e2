/* host/tools/ab/verdict.h: what the times of an arm beside those of the first come to.
 *
 * A round is one block of steps of each arm, and one more of the first: A, A', B, C, ... in an order of its own.
 * Of each round an arm has log(B / sqrt(A A')), which drifts of the machine enter alike above and below, and the
 * first has log(A' / A), which knows no difference: how far from 0 a median of so many rounds comes by itself is
 * the machine's noise, taken as the far end of the interval that holds the true one in two cases of three. An arm
 * is faster or slower where the interval of its own median clears 0 by more than that.
 *
 * The rounds are looked at several times, and whoever looks often enough finds something: the j-th look may miss with a
 * chance of 0.05 * 6 / (pi j)^2, which together are 0.05. */
#ifndef WEFT_HOST_TOOLS_AB_VERDICT_H
#define WEFT_HOST_TOOLS_AB_VERDICT_H

#include "tools/ab/median_interval.h"

enum { WEFT_AB_MOST_ARMS = 8, WEFT_AB_MOST_ROUNDS = 1024, WEFT_AB_FIRST_LOOK = 8 };

#define WEFT_AB_NOISE_ALPHA 0.32

typedef enum weft_ab_answer {
    WEFT_AB_UNDECIDED = 0, /* too few rounds to say anything */
    WEFT_AB_FASTER = 1,    /* than the first */
    WEFT_AB_SLOWER = 2,
    WEFT_AB_NO_DIFFERENCE = 3 /* above `bound` */
} weft_ab_answer;

/* Logarithms of ratios; exp(x) - 1 is the share. */
typedef struct weft_ab_verdict {
    weft_ab_answer answer;
    weft_median_interval ratio, noise; /* of the arm to the first; of the first to itself, at WEFT_AB_NOISE_ALPHA */
    double noise_bound;                /* the end of `noise` that is farther from 0 */
    double bound;                      /* no difference that is larger */
    int32_t rounds;
} weft_ab_verdict;

/* Times of blocks, in any unit: [arms + 1][WEFT_AB_MOST_ROUNDS], the first's second block behind the last arm's. */
typedef struct weft_ab_times {
    int32_t arms, rounds;
    double (*of)[WEFT_AB_MOST_ROUNDS];
} weft_ab_times;

/* After so many rounds the j-th look is due, from 1; 0: none. */
int32_t weft_ab_look(int32_t rounds);

/* Of arm 1 ... arms - 1 at look j. */
weft_ab_verdict weft_ab_judge(const weft_ab_times *times, int32_t arm, int32_t look);

/* What so many rounds of arms will tell, from a few of the first's blocks beside its own others (log(A' / A), [n],
 * which are overwritten): a difference of that share is told as likely as not. Where deviations are s for
 * log(A' / A), they are sqrt(3) / 2 s for log(B / sqrt(A A')), and 1.2533 / sqrt(rounds) of either for a median (its
 * efficiency is 2 / pi); s is 1.4826 times the median deviation from the median. The interval of the last look has to
 * clear the noise, which is the far end of an interval, too. That is four times in five if s were known; it is not, and
 * made-up timings say one in two (tests/ab). NaN: so few rounds tell nothing. */
double weft_ab_told(double *noise, int32_t n, int32_t rounds);

/* Where each block of a round stands: order[i] is the i-th block's arm, arms: the first's second. Every second round is
 * the one before it backwards, so that over two rounds no place in the order is anybody's. */
void weft_ab_order(int32_t *order, int32_t arms, int32_t round, uint64_t seed);

#endif
