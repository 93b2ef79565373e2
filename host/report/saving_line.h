/* host/report/saving_line.h: prints whether the checkpoints before the last step are saved asynchronously or
 * synchronously, and why (program/save_place.h). Empty if no such checkpoint is due. */
#ifndef WEFT_HOST_REPORT_SAVING_LINE_H
#define WEFT_HOST_REPORT_SAVING_LINE_H

#include "program/plan.h"

#include <jansson.h>
#include <stdio.h>

/* Prints a line, with its value from column `indent` on. */
void weft_saving_print(const weft_plan *plan, int indent, FILE *to);
/* Returns {"beside", "why", "bytes", "of_total"}. why: null if it is as requested; bytes: the size of this rank's copy,
 * or its required size. NULL: no checkpoint is due. */
json_t *weft_saving_object(const weft_plan *plan);

#endif
