/* host/report/rate_table.h: what was measured of a machine, as an object: written by one plan, read by another. */
#ifndef WEFT_HOST_REPORT_RATE_TABLE_H
#define WEFT_HOST_REPORT_RATE_TABLE_H

#include "report/rates.h"

#include <jansson.h>

json_t *weft_rates_object(const weft_rates *rates); /* NULL: no memory */

/* The object `rates` of a file that `weft plan --time --json` has written. What was measured of another model, leaf,
 * precision, optimizer, trainable or number of threads than the engine's is refused. To be freed also after a
 * failure. */
weft_status weft_rates_read(weft_rates *out, const char *path, const weft_engine *engine, weft_error *err);

#endif
