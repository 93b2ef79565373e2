/* host/report/fit_table.h: whether a plan fits and what would make it fit: as lines, as an object, as a sentence. */
#ifndef WEFT_HOST_REPORT_FIT_TABLE_H
#define WEFT_HOST_REPORT_FIT_TABLE_H

#include "fit/judge_fit.h"

#include <jansson.h>

/* width: of the word in front. */
void weft_fit_print(const weft_fit *fit, int width, FILE *to);

json_t *weft_fit_object(const weft_fit *fit);

/* Of one that does not fit. Returns WEFT_E_MEMORY. */
weft_status weft_fit_refuse(const weft_fit *fit, weft_error *err);

/* What can be known to go wrong though it fits: what others hold now is taken from them. */
void weft_fit_warn(const weft_fit *fit, const weft_host *host);

#endif
