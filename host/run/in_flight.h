/* host/run/in_flight.h: exchanges that are under way in a pass, from the instruction that starts one to the one that
 * ends it, and how far each unit's sums have come. */
#ifndef WEFT_HOST_RUN_IN_FLIGHT_H
#define WEFT_HOST_RUN_IN_FLIGHT_H

#include "program/exchange.h"
#include "program/fold.h"
#include "run/stepper.h"

/* What is under way, and the sums as they stand; for the programs of the stepper's engine. */
weft_status weft_in_flight_create(weft_flights **out, const weft_engine *engine, weft_error *err);
void weft_in_flight_destroy(weft_flights *flights); /* NULL is fine */
/* Before each pass. */
void weft_in_flight_begin(weft_stepper *self);

enum { WEFT_IN_FLIGHT_EXCHANGES = 2 * WEFT_UNIT_GROUPS };

/* Before the first thing that an instruction queues: the stream of its queue, which sees all that is queued so far. */
weft_status weft_in_flight_depart(weft_stepper *self, const weft_instruction *instruction, weft_stream **out,
                                  weft_error *err);

/* What was planned of an exchange, as the ranks take it: `to`, `from`, stream and tag are the caller's. */
weft_transfer weft_in_flight_transfer(const weft_stepper *self, const weft_planned_exchange *planned);

/* Starts number `which` of an instruction's exchanges, the way that was planned, in the stream that the transfer
 * names. */
weft_status weft_in_flight_set_out(weft_stepper *self, const weft_instruction *instruction, int which, int32_t way,
                                   const weft_transfer *what, weft_error *err);

/* Queue 0 sees what all of an instruction's exchanges have brought; as a function of the table of instructions. */
weft_status weft_in_flight_finish(void *stepper, const weft_instruction *instruction,
                                  const weft_instruction_slots *slots, weft_error *err);

/* The sums of a unit's hop, as they stand. */
weft_fold *weft_in_flight_fold(const weft_stepper *self, int32_t unit, int hop);

/* True if exchanges are under way that want to be driven, and driving them: between the calls of a segment. */
bool weft_in_flight_under_way(const weft_stepper *self);
void weft_in_flight_poke(void *stepper);

#endif
