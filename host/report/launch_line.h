/* host/report/launch_line.h: prints the device launches of a training step (report/launches.h); empty if the device
 * cannot count them. */
#ifndef WEFT_HOST_REPORT_LAUNCH_LINE_H
#define WEFT_HOST_REPORT_LAUNCH_LINE_H

#include "report/launches.h"

#include <jansson.h>
#include <stdio.h>

/* Prints a line, with its value from column `indent` on. */
void weft_launches_print(const weft_launches *launches, int indent, FILE *to);
/* Returns {"kernels", "products", "copies"}. */
json_t *weft_launches_object(const weft_launches *launches);

#endif
