/* host/report/rate_table.h: measured rates of a machine as a JSON object, written by one plan and read by another. */
#ifndef WEFT_HOST_REPORT_RATE_TABLE_H
#define WEFT_HOST_REPORT_RATE_TABLE_H

#include "report/rates.h"

#include <jansson.h>

json_t *weft_rates_object(const weft_rates *rates); /* NULL: no memory */

/* Reads the object `rates` from a file of `weft plan --time --json`. Rejects rates of another model, micro-batch,
 * precision, optimizer, trainable or number of threads than the engine's. Free out also after a failure. */
weft_status weft_rates_read(weft_rates *out, const char *path, const weft_engine *engine, weft_error *err);

#endif
