/* host/run/nonfinite.h: where the first number that is not finite came from. */
#ifndef WEFT_HOST_RUN_NONFINITE_H
#define WEFT_HOST_RUN_NONFINITE_H

#include "run/stepper.h"

/* Looks at what the segment of a FORWARD handed on. WEFT_E_NUMERIC: something in it is not finite. A rank among several
 * keeps that as its culprit and goes on. */
weft_status weft_nonfinite_look(weft_stepper *self, const weft_instruction *instruction,
                                const weft_graph_binding *binding, weft_error *err);

/* After a loss that is not finite though every carry is. WEFT_E_NUMERIC: names the instruction that formed it;
 * WEFT_OK: that was another rank's. */
weft_status weft_nonfinite_head(const weft_stepper *self, weft_error *err);

/* After a norm that is not finite. Always WEFT_E_NUMERIC: names the parameter of the highest segment whose gradient is
 * not, since backward came from there. */
weft_status weft_nonfinite_gradient(weft_stepper *self, weft_error *err);

#endif
