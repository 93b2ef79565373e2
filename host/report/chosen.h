/* host/report/chosen.h: prints the kernel algorithms that devices have selected for all ranks (run/choices.h). Empty
 * for a device without such choices. */
#ifndef WEFT_HOST_REPORT_CHOSEN_H
#define WEFT_HOST_REPORT_CHOSEN_H

#include "run/choices.h"

#include <jansson.h>
#include <stdio.h>

/* Prints their number, from column `indent` on, and a line for each. */
void weft_chosen_print(const weft_choices *choices, int indent, FILE *to);
/* Returns [{"for", "choice", "value"}]. */
json_t *weft_chosen_array(const weft_choices *choices);

#endif
