/* host/step/travel.h: the events that travel: GATHER and RELEASE of parameters, REDUCE of gradients and GATHER of
 * their sums, REFRESH, SEND and RECV. */
#ifndef WEFT_HOST_STEP_TRAVEL_H
#define WEFT_HOST_STEP_TRAVEL_H

#include "step/step.h"

/* What is under way, and the sums as they stand; for the programs of the stepper's engine. */
weft_status weft_travel_create(weft_travel **out, const weft_engine *engine, weft_error *err);
void weft_travel_destroy(weft_travel *travel); /* NULL is fine */
/* Before each pass. */
void weft_travel_begin(weft_stepper *self);

enum { WEFT_TRAVEL_EXCHANGES = 4 };

/* Starts number `which` of an event's exchanges. */
weft_status weft_travel_set_out(weft_stepper *self, const weft_event *event, int which, weft_exchange_fn *how,
                                const char *name, const weft_transfer *what, weft_error *err);

/* True if exchanges are under way that want to be driven, and driving them: between the calls of a segment. */
bool weft_travel_under_way(const weft_stepper *self);
void weft_travel_poke(void *stepper);

/* Puts its functions into the table; context is the stepper. */
void weft_travel_table(weft_exec_table *table);

#endif
