/* host/tools/ab/comparison_table.h: what an experiment came to, for people (comparison_table.c) and for programs
 * (comparison_object.c). */
#ifndef WEFT_HOST_TOOLS_AB_COMPARISON_TABLE_H
#define WEFT_HOST_TOOLS_AB_COMPARISON_TABLE_H

#include "tools/ab/experiment.h"

void weft_ab_print(const weft_ab_experiment *experiment, FILE *to);
weft_status weft_ab_print_json(const weft_ab_experiment *experiment, FILE *to, weft_error *err);

#endif
