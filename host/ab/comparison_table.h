/* host/ab/comparison_table.h: what a contest came to, for people and for programs. */
#ifndef WEFT_HOST_AB_COMPARISON_TABLE_H
#define WEFT_HOST_AB_COMPARISON_TABLE_H

#include "ab/arms.h"

void weft_ab_print(const weft_ab_contest *contest, FILE *to);
weft_status weft_ab_print_json(const weft_ab_contest *contest, FILE *to, weft_error *err);

/* The arm that is faster than all others by its verdict beside the first: the fastest of those that are faster; the
 * first where all others are slower. -1: none. */
int32_t weft_ab_winner(const weft_ab_contest *contest);

#endif
