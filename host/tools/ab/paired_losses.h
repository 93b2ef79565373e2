/* host/tools/ab/paired_losses.h: whether one arm learns more than another, from what both came to on the same
 * micro-batches of validation.
 *
 * The difference of two trainings is D = (sum of targets d) / (sum of targets), with d a micro-batch's difference of
 * loss per
 * target: the difference of their evaluation losses. Micro-batches of one kind of text differ little from each other
 * while the arms' losses on one micro-batch go together, so the pairs tell far smaller differences than the two losses
 * would.
 *
 * One seed: the micro-batches are a sample of text, and D is a mean of theirs by their targets. Its variance is the
 * jackknife's, (n - 1) / n sum (D without micro-batch i - D)^2 (Efron and Tibshirani, An Introduction to the Bootstrap,
 * 11), and the interval D -+ t sqrt(variance), with as many degrees of freedom as micro-batches of one size would have
 * that weigh as much: (sum of targets)^2 / (sum of targets^2) - 1. It holds for these two trainings.
 *
 * Several seeds: each gives a D, and the interval is Student's, mean -+ t(seeds - 1) s / sqrt(seeds). It holds for the
 * settings, and is what two trainings of another seed would come to on the average. */
#ifndef WEFT_HOST_TOOLS_AB_PAIRED_LOSSES_H
#define WEFT_HOST_TOOLS_AB_PAIRED_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_AB_MOST_SEEDS = 64, WEFT_AB_FEWEST_MICRO_BATCHES = 5 };

/* Loss per target, as a difference: below 0 the arm has learned more. */
typedef struct weft_paired_loss {
    double mean, low, high; /* bounded false: low and high are infinite */
    bool bounded;
} weft_paired_loss;

/* a, b: [n] sums of loss over a micro-batch's targets; micro-batches without targets count nothing. */
weft_paired_loss weft_paired_loss_of_micro_batches(const double *a, const double *b, const int64_t *targets, int64_t n);
/* means: [n], D of each seed. */
weft_paired_loss weft_paired_loss_of_seeds(const double *means, int32_t n);

/* The value that Student's t with so many degrees of freedom exceeds with a chance of 2.5 %. */
double weft_student_t(int64_t freedom);

#endif
