/* host/report/chosen.h: what devices have chosen for all ranks (run/choices.h): nothing where a device chooses
 * nothing. */
#ifndef WEFT_HOST_REPORT_CHOSEN_H
#define WEFT_HOST_REPORT_CHOSEN_H

#include "run/choices.h"

#include <jansson.h>
#include <stdio.h>

/* How many, from column `indent` on, and a line for each. */
void weft_chosen_print(const weft_choices *choices, int indent, FILE *to);
/* [{"for", "choice", "value"}] */
json_t *weft_chosen_array(const weft_choices *choices);

#endif
