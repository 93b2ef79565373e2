/* host/report/fit_table.h: prints whether a plan fits and which changes would make it fit, as lines and as an object.
 */
#ifndef WEFT_HOST_REPORT_FIT_TABLE_H
#define WEFT_HOST_REPORT_FIT_TABLE_H

#include "report/check_fit.h"

#include <jansson.h>

/* width: of the label. */
void weft_fit_print(const weft_fit *fit, int width, FILE *to);

json_t *weft_fit_object(const weft_fit *fit);

#endif
