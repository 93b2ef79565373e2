/* host/report/saving_line.h: how the checkpoints of a run leave that are due before its last step: beside training or
 * in place, and why (program/save_place.h). Nothing where none is due. */
#ifndef WEFT_HOST_REPORT_SAVING_LINE_H
#define WEFT_HOST_REPORT_SAVING_LINE_H

#include "program/plan.h"

#include <jansson.h>
#include <stdio.h>

/* A line, its value from column `indent` on. */
void weft_saving_print(const weft_plan *plan, int indent, FILE *to);
/* {"beside", "why", "bytes", "of_total"}; why: null where it is as asked for; bytes: of the copy that this rank takes,
 * or would. NULL: nothing is due. */
json_t *weft_saving_object(const weft_plan *plan);

#endif
