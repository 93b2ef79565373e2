/* host/tools/ab/verdict.h: statistical test of an arm's step times against the first arm's.
 *
 * A round has one block of steps per arm and a second block of the first arm: A, A', B, C, ... in a random order. For
 * each round an arm has log(B / sqrt(A A')), in which drifts of the machine cancel. The first arm has log(A' / A),
 * whose true value is zero. The noise of a median over the rounds is the far end of the interval of its median, at an
 * error of one third. An arm is faster or slower if the interval of its own median is farther from zero than the noise.
 *
 * The rounds are evaluated several times, so the error of the j-th look is 0.05 * 6 / (pi j)^2, in total 0.05. */
#ifndef WEFT_HOST_TOOLS_AB_VERDICT_H
#define WEFT_HOST_TOOLS_AB_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

/* distribution-free confidence interval for the median of paired differences.
 *
 * The number of independent values above the median is binomial with p = 1/2. The k-th smallest and k-th largest value
 * therefore bound the median with a probability of 1 - 2 P(B(n, 1/2) < k) (the interval of the sign test; Conover,
 * Practical Nonparametric Statistics, 3.2). Each outlier moves it by at most one order statistic. */

typedef struct weft_median_interval {
    double median, low, high;
    bool bounded; /* false: n is too small for this alpha; low and high are infinite */
} weft_median_interval;

enum { WEFT_MEDIAN_MOST = 4096 };

/* Sorts values: [n], n <= WEFT_MEDIAN_MOST. alpha: probability of missing the median. */
weft_median_interval weft_median_interval_of(double *values, int32_t n, double alpha);

/* Returns the middle value, or the mean of the two middle values. Sorts values. */
double weft_median_of(double *values, int32_t n);

/* decides whether one arm learns more than another, from losses on the same validation
 * micro-batches.
 *
 * The difference of two training runs is D = (sum of targets d) / (sum of targets), where d is a micro-batch's
 * difference of loss per target. D equals the difference of their evaluation losses. On one kind of text the
 * differences vary little between micro-batches, because the arms' losses are correlated. The pairs therefore detect
 * much smaller differences than the two losses would.
 *
 * One seed: the micro-batches are a sample of text, and D is their mean weighted by targets. Its variance is the
 * jackknife's, (n - 1) / n sum (D without micro-batch i - D)^2 (Efron and Tibshirani, An Introduction to the Bootstrap,
 * chapter 11), and the interval is D -+ t sqrt(variance). The degrees of freedom are (sum of targets)^2 / (sum of
 * targets^2) - 1, the effective number of micro-batches minus one. It is valid for these two training runs.
 *
 * Several seeds: each has its D, and the interval is Student's, mean -+ t(seeds - 1) s / sqrt(seeds). It is valid for
 * the settings: the expected difference of two runs with another seed. */

enum { WEFT_AB_MOST_SEEDS = 64, WEFT_AB_FEWEST_MICRO_BATCHES = 5 };

/* Difference of loss per target; negative: the arm has learned more. */
typedef struct weft_paired_loss {
    double mean, low, high; /* infinite low and high if bounded is false */
    bool bounded;
} weft_paired_loss;

/* a, b: [n], loss sums over a micro-batch's targets. Micro-batches without targets are ignored. */
weft_paired_loss weft_paired_loss_of_micro_batches(const double *a, const double *b, const int64_t *targets, int64_t n);
/* means: [n], D of each seed. */
weft_paired_loss weft_paired_loss_of_seeds(const double *means, int32_t n);

/* Returns the 97.5 % quantile of Student's t with `freedom` degrees of freedom. */
double weft_student_t(int64_t freedom);

enum { WEFT_AB_MOST_ARMS = 8, WEFT_AB_MOST_ROUNDS = 1024, WEFT_AB_FIRST_LOOK = 8 };

#define WEFT_AB_NOISE_ALPHA 0.32

typedef enum weft_ab_answer {
    WEFT_AB_UNDECIDED = 0, /* too few rounds */
    WEFT_AB_FASTER = 1,    /* than the first */
    WEFT_AB_SLOWER = 2,
    WEFT_AB_NO_DIFFERENCE = 3 /* larger than `bound` */
} weft_ab_answer;

/* Log ratios; exp(x) - 1 is the relative difference. */
typedef struct weft_ab_verdict {
    weft_ab_answer answer;
    weft_median_interval ratio, noise; /* arm to first; first to itself, at WEFT_AB_NOISE_ALPHA */
    double noise_bound;                /* the end of `noise` farther from zero */
    double bound;                      /* upper bound of the difference */
    int32_t rounds;
} weft_ab_verdict;

/* Times of blocks, in any unit: [arms + 1][WEFT_AB_MOST_ROUNDS]. The first arm's second blocks are the last row. */
typedef struct weft_ab_times {
    int32_t arms, rounds;
    double (*of)[WEFT_AB_MOST_ROUNDS];
} weft_ab_times;

/* Returns j, from 1, if the j-th look is due after these rounds; 0: no look is due. */
int32_t weft_ab_look(int32_t rounds);

/* Evaluates arm 1 ... arms - 1 at look j. */
weft_ab_verdict weft_ab_check(const weft_ab_times *times, int32_t arm, int32_t look);

/* Predicts the relative difference that these rounds detect with 50 % probability. noise: log(A' / A) of some rounds of
 * the first arm, [n]; overwritten.
 *
 * If log(A' / A) has the deviation s, log(B / sqrt(A A')) has sqrt(3) / 2 s. A median over the rounds has (1.2533 /
 * sqrt(rounds)) of either (its efficiency is 2 / pi). s is estimated as 1.4826 times the median absolute deviation. The
 * interval at the last look must clear the noise, which is itself the far end of an interval. With a known s the
 * probability would be four in five; s is estimated, and simulated timings show one in two (tests/ab). NaN: too few
 * rounds. */
double weft_ab_told(double *noise, int32_t n, int32_t rounds);

/* Returns the order of blocks in a round: order[i] is the i-th block's arm, and `arms` is the first arm's second block.
 * Every second round reverses the one before it, so that over two rounds no arm has a fixed index. */
void weft_ab_order(int32_t *order, int32_t arms, int32_t round, uint64_t seed);

/* decides which of two arms is better, from their times, their numbers and their learning.
 *
 * Time decides if an arm computes the same numbers as the first, or differs only in rounding. If it learns differently,
 * its loss after the same steps counts, too: an arm is better if one of both is better and the other is no worse.
 * Faster with a worse loss is a trade-off. Arms of unknown learning are never comparable. A diverged arm is worse than
 * one that did not diverge. */

/* Largest possible effect on numbers of the keys that differ. */
typedef enum weft_ab_change {
    WEFT_AB_SPREADS = 0, /* bit-identical by contract: strategy, policy, communicator, checkpointing */
    WEFT_AB_ROUNDS = 1,  /* same sums in another order: micro_batch, reduce */
    WEFT_AB_LEARNS = 2   /* all other keys */
} weft_ab_change;

weft_ab_change weft_ab_change_of(const char *key); /* "strategy.plugin" */

typedef enum weft_ab_learning {
    WEFT_AB_NOT_LEARNED = 0, /* not measured */
    WEFT_AB_LEARNS_MORE = 1,
    WEFT_AB_LEARNS_LESS = 2,
    WEFT_AB_LEARNS_ALIKE = 3,
    WEFT_AB_LEARNING_UNKNOWN = 4 /* too few micro-batches or seeds */
} weft_ab_learning;

typedef enum weft_ab_outcome {
    WEFT_AB_UNKNOWN = 0, /* too few rounds */
    WEFT_AB_BETTER = 1,  /* than the first */
    WEFT_AB_WORSE = 2,
    WEFT_AB_EQUAL = 3, /* no detectable difference */
    WEFT_AB_NOT_COMPARABLE = 4
} weft_ab_outcome;

typedef struct weft_ab_evidence {
    weft_ab_answer time;
    bool same_bits; /* of all compared values */
    weft_ab_change change;
    bool covered; /* both arms are deterministic across ranks */
    weft_ab_learning learning;
    bool loose;                    /* no difference in time detected, and a relevant one could have been missed */
    bool diverged, first_diverged; /* during timing */
} weft_ab_evidence;

weft_ab_outcome weft_ab_outcome_of(const weft_ab_evidence *evidence);

/* True if the results differ although bit equality is guaranteed (a bug). */
bool weft_ab_is_defect(const weft_ab_evidence *evidence);

#endif
