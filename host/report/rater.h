/* host/report/rater.h: shared by the files that measure rates: times a function on all ranks at once and on rank 0
 * only.
 *
 *     rate_all.c       the driver: machine, names, interpolation between sizes
 *     rater.c          timing
 *     rate_segments.c  the segments of the model
 *     rate_elements.c  elementwise work
 *     rate_exchanges.c collectives
 */
#ifndef WEFT_HOST_REPORT_RATER_H
#define WEFT_HOST_REPORT_RATER_H

#include "report/rates.h"

typedef weft_status weft_rated_fn(void *context, weft_error *err);

/* Measures the seconds of one call: on all ranks at once, as the mean over ranks of each median; and on rank 0 only.
 * [collective] */
weft_status weft_rater_time(weft_engine *engine, weft_work *out, weft_rated_fn *work, void *context, weft_error *err);

/* Times a collective on all ranks at once, as measured by rank 0. [collective] */
weft_status weft_rater_time_exchange(weft_engine *engine, double *out, weft_rated_fn *work, void *context,
                                     weft_error *err);

/* Allocates device memory for the measurement, filled with numbers that are small in both fp32 and bf16. */
weft_status weft_rater_take(const weft_engine *engine, weft_buffer **out, int64_t bytes, weft_error *err);
void weft_rater_give(const weft_engine *engine, weft_buffer *buffer); /* NULL is fine */

weft_status weft_rate_segments(weft_rates *out, weft_engine *engine, weft_error *err);
weft_status weft_rate_elements(weft_rates *out, weft_engine *engine, weft_error *err);
weft_status weft_rate_exchanges(weft_rates *out, weft_engine *engine, weft_error *err);

#endif
