/* host/tools/ab/comparison_table.h: results as a table, and as JSON (comparison_table.c). */
#ifndef WEFT_HOST_TOOLS_AB_COMPARISON_TABLE_H
#define WEFT_HOST_TOOLS_AB_COMPARISON_TABLE_H

#include "tools/ab/experiment.h"

/* ---- texts shared by the table and the page ---- */

enum { WEFT_AB_SENTENCE = 1600 };

char weft_ab_letter(int32_t arm);       /* 'A' */
double weft_ab_share(double log_ratio); /* 0.1: 10 % more */
/* Returns the result of arm i's time relative to A: "faster". "undecided" also covers an interval without a difference
 * that exceeds the equivalence margin. */
const char *weft_ab_time_name(const weft_ab_experiment *experiment, int32_t i);
const char *weft_ab_outcome_name(int32_t outcome); /* "better" */

/* Example: "B has the bits of A after each of 3 steps". */
void weft_ab_print_numbers(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* "B learns more than A: -0.0123 (-0.0150 to -0.0096) a target of validation after 100 steps" */
void weft_ab_print_learning(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* "B is faster than A: a step takes 25.2 % less time" */
void weft_ab_print_time(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* Writes the conclusion for arm i; "": the time is the only result. */
void weft_ab_print_outcome(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);
/* "A against itself ..." */
void weft_ab_print_noise(char *text, size_t size, const weft_ab_experiment *experiment);
void weft_ab_print_alone(char *text, size_t size, const weft_ab_experiment *experiment);
/* "targets/s +33.7 % (+12.6 to +72.7), exchange ..., memory +13.4 %, sent -20.4 %, instructions -52.7 %" */
void weft_ab_print_beside(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);

void weft_ab_print(const weft_ab_experiment *experiment, FILE *to);
weft_status weft_ab_print_json(const weft_ab_experiment *experiment, FILE *to, weft_error *err);

/* Writes the results as one self-contained HTML page. Replaces the file at `path` atomically (comparison_page.c). */
weft_status weft_ab_page_save(const weft_ab_experiment *experiment, const char *path, weft_error *err);

#endif
