/* host/step/travel.h: the events that travel: GATHER and RELEASE of parameters, REDUCE of gradients and GATHER of
 * their sums, REFRESH, SEND and RECV. */
#ifndef WEFT_HOST_STEP_TRAVEL_H
#define WEFT_HOST_STEP_TRAVEL_H

#include "step/stepper.h"

/* Puts its functions into the table; context is the stepper. */
void weft_travel_table(weft_exec_table *table);

#endif
