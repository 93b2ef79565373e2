/* host/report/precision.h: measures whether GEMMs in the run's 16-bit type are slower on this device than in fp32,
 * because the processor widens the operands or has slow instructions for them. The result is only reported: bits depend
 * on the instruction set, so a measurement must not select it. */
#ifndef WEFT_HOST_REPORT_PRECISION_H
#define WEFT_HOST_REPORT_PRECISION_H

#include "run/state.h"

/* Operations per second of one GEMM. */
typedef struct weft_precision_speeds {
    double f32, half; /* 0: not measured */
} weft_precision_speeds;

/* Measures for some milliseconds with 3 MB. Skips the measurement if the run is in fp32, or the device is not a
 * processor of this machine. The engine is prepared for training and not allocated. */
weft_status weft_precision_compare(weft_precision_speeds *out, weft_engine *engine, weft_error *err);

/* Returns true if the difference exceeds the measurement error. */
bool weft_precision_is_slower(const weft_precision_speeds *self);

#endif
