/* host/run/travel.h: the events that travel: GATHER and RELEASE of parameters, REDUCE of gradients and GATHER of
 * their sums, REFRESH, SEND and RECV. */
#ifndef WEFT_HOST_RUN_TRAVEL_H
#define WEFT_HOST_RUN_TRAVEL_H

#include "run/stepper.h"

/* On which lane an event of SEND, RECV or REFRESH goes between two ranks (weft/comm.h). */
int32_t weft_travel_lane(const weft_event *event);

/* The sums stand as the events before `first` leave them, none of which is under way; behind weft_flight_begin. */
void weft_travel_pass_over(weft_stepper *self, int32_t first);

/* Puts its functions into the table; context is the stepper. */
void weft_travel_table(weft_exec_table *table);

#endif
