/* host/tools/ab/comparison_words.h: what an experiment came to in sentences, which the table and the page share. */
#ifndef WEFT_HOST_TOOLS_AB_COMPARISON_WORDS_H
#define WEFT_HOST_TOOLS_AB_COMPARISON_WORDS_H

#include "tools/ab/experiment.h"

enum { WEFT_AB_SENTENCE = 1600 };

char weft_ab_letter(int32_t arm);       /* 'A' */
double weft_ab_share(double log_ratio); /* 0.1: a tenth more */
/* Of arm i's time beside A's: "faster"; "undecided" also where no difference is seen and one that counts may be
 * there. */
const char *weft_ab_time_name(const weft_ab_experiment *experiment, int32_t i);
const char *weft_ab_outcome_name(int32_t outcome); /* "better" */
const char *weft_ab_learning_name(int32_t answer); /* "learns more" */

/* "-25.2 % (-42.1 to -11.2)" */
void weft_ab_say_interval(char *text, size_t size, const weft_median_interval *at);
/* "45.10 ms" */
void weft_ab_say_seconds(char *text, size_t size, double seconds);
/* Of arm i: "B has the bits of A after each of 3 steps". */
void weft_ab_say_numbers(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* "B learns more than A: -0.0123 (-0.0150 to -0.0096) a target of validation after 100 steps" */
void weft_ab_say_learning(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* "B is faster than A: a step takes 25.2 % less time" */
void weft_ab_say_time(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* What follows for arm i; "": what time says, and no more. */
void weft_ab_say_outcome(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* "A against itself ..." */
void weft_ab_say_noise(char *text, size_t size, const weft_ab_experiment *experiment);
void weft_ab_say_alone(char *text, size_t size, const weft_ab_experiment *experiment);
/* "targets/s +33.7 % (+12.6 to +72.7), exchange ..., memory +13.4 %, sent -20.4 %, instructions -52.7 %" */
void weft_ab_say_beside(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);

#endif
