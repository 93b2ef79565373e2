/* host/report/launch_line.h: what a training step starts on the device (report/launches.h); nothing where a device
 * cannot say. */
#ifndef WEFT_HOST_REPORT_LAUNCH_LINE_H
#define WEFT_HOST_REPORT_LAUNCH_LINE_H

#include "report/launches.h"

#include <jansson.h>
#include <stdio.h>

/* A line, its value from column `indent` on. */
void weft_launches_print(const weft_launches *launches, int indent, FILE *to);
/* {"kernels", "products", "copies"} */
json_t *weft_launches_object(const weft_launches *launches);

#endif
