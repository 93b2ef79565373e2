/* host/run/bind.h: what an instruction of the program gives to the graph of its segment: where its micro-batch, its
 * carries, its tape and its gradients lie; and, once it ran, what it touched of them. Nothing here computes. */
#ifndef WEFT_HOST_RUN_BIND_H
#define WEFT_HOST_RUN_BIND_H

#include "run/stepper.h"

/* A slot as the graphs take it, with the place where they note what they touch. */
weft_slot_ref weft_step_slot(const weft_stepper *self, int32_t index);

/* The part of the gradients' region where the sums of an exchange of this scope arrive. */
weft_ref weft_sum_ref(const weft_engine *engine, const weft_job_spec *job, int32_t unit, int32_t scope);

/* Where a unit's micro-batch gradient lies: its slot, or the sum itself where the step has one micro-batch. */
weft_slot_ref weft_step_gradient(const weft_stepper *self, int32_t unit, int32_t slot);

/* Loads the instruction's micro-batch, finds the graph of its segment and binds the slots. out borrows from self
 * until the next. */
weft_status weft_step_bind(weft_stepper *self, weft_graph_binding *out, const weft_graph **graph,
                           const weft_instruction *instruction, const weft_instruction_slots *slots, weft_error *err);

/* A micro-batch gradient is needed whole from the first BACKWARD that writes a part of it: REDUCE takes the padding
 * along. */
void weft_step_claim_gradients(const weft_stepper *self, const weft_instruction_slots *slots);

/* Tells the trace what the instruction touched. */
void weft_step_report(const weft_stepper *self, const weft_instruction_slots *slots);

#endif
