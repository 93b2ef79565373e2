/* host/report/rater.h: what the files that measure rates share: a piece of work, timed beside others and alone.
 *
 *     rate_all.c       the driver: machine, names, what lies between sizes
 *     rater.c          time
 *     rate_segments.c  the segments of the model
 *     rate_elements.c  what is done element by element
 *     rate_exchanges.c exchanges */
#ifndef WEFT_HOST_REPORT_RATER_H
#define WEFT_HOST_REPORT_RATER_H

#include "report/rates.h"

typedef weft_status weft_rated_fn(void *context, weft_error *err);

/* Seconds of one call of the work by all ranks at once, the mean over ranks of each one's median; and by rank 0 alone.
 * [collective] */
weft_status weft_rater_time(weft_engine *engine, weft_work *out, weft_rated_fn *work, void *context, weft_error *err);

/* The same of an exchange: by all at once, as rank 0 saw it. [collective] */
weft_status weft_rater_time_exchange(weft_engine *engine, double *out, weft_rated_fn *work, void *context,
                                     weft_error *err);

/* Device memory of the measuring's own, filled with small numbers that are such in fp32 and in bf16. */
weft_status weft_rater_take(const weft_engine *engine, weft_buffer **out, int64_t bytes, weft_error *err);
void weft_rater_give(const weft_engine *engine, weft_buffer *buffer); /* NULL is fine */

weft_status weft_rate_segments(weft_rates *out, weft_engine *engine, weft_error *err);
weft_status weft_rate_elements(weft_rates *out, weft_engine *engine, weft_error *err);
weft_status weft_rate_exchanges(weft_rates *out, weft_engine *engine, weft_error *err);

#endif
