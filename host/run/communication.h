/* host/run/communication.h: the instructions that travel: GATHER and RELEASE of parameters, REDUCE of gradients and
 * GATHER of their sums, REFRESH, SEND and RECV. */
#ifndef WEFT_HOST_RUN_COMMUNICATION_H
#define WEFT_HOST_RUN_COMMUNICATION_H

#include "run/stepper.h"

/* On which lane an instruction of SEND, RECV or REFRESH goes between two ranks (weft/comm.h). */
int32_t weft_communication_lane(const weft_instruction *instruction);

/* The sums stand as the instructions before `first` leave them, none of which is under way; behind
 * weft_in_flight_begin. */
void weft_communication_pass_over(weft_stepper *self, int32_t first);

/* Puts its functions into the table; context is the stepper. */
void weft_communication_table(weft_exec_table *table);

#endif
