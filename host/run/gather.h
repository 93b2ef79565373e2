/* host/run/gather.h: parameters that lie on several ranks, present here in the type that is computed in. How a slot is
 * laid out: program/gathered.h. */
#ifndef WEFT_HOST_RUN_GATHER_H
#define WEFT_HOST_RUN_GATHER_H

#include "run/stepper.h"

/* slot: of the program. */
weft_status weft_gather_start(weft_stepper *self, const weft_instruction *instruction, int32_t slot, weft_error *err);
/* Once all has come: the segments find the parameters in the slot. */
weft_status weft_gather_finish(weft_stepper *self, const weft_instruction *instruction, int32_t slot, weft_error *err);
/* The segments find them no more. */
void weft_gather_forget(weft_stepper *self, const weft_instruction *instruction);

#endif
