/* host/report/precision.h: whether products of the run's 16 bits are slower on this device than fp32's: where the
 * processor widens them, or has instructions for them that are slower than those of fp32. Told, and nothing else: bits
 * hang on the instruction set, which a measurement may not choose. */
#ifndef WEFT_HOST_REPORT_PRECISION_H
#define WEFT_HOST_REPORT_PRECISION_H

#include "run/state.h"

/* Operations per second of one product. */
typedef struct weft_precision_speeds {
    double f32, half; /* 0: not measured */
} weft_precision_speeds;

/* Takes some milliseconds and 3 MB, and nothing where it need not be asked: the run is in fp32, or the device is no
 * processor of this machine. The engine is prepared for training and not allocated. */
weft_status weft_precision_compare(weft_precision_speeds *out, weft_engine *engine, weft_error *err);

/* By more than what such a measurement is off by. */
bool weft_precision_is_slower(const weft_precision_speeds *self);

#endif
