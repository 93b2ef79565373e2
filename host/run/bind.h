/* host/run/bind.h: what an event of the program gives to the graph of its segment: where its leaf, its carries, its
 * tape and its gradients lie; and, once it ran, what it touched of them. Nothing here computes. */
#ifndef WEFT_HOST_RUN_BIND_H
#define WEFT_HOST_RUN_BIND_H

#include "run/stepper.h"

/* A slot as the graphs take it, with the place where they note what they touch. */
weft_slot_ref weft_step_slot(const weft_stepper *self, int32_t index);

/* The part of the gradients' region where the sums of an exchange of this scope arrive. */
weft_ref weft_sum_ref(const weft_engine *engine, const weft_job_spec *job, int32_t unit, int32_t scope);

/* Where a unit's leaf gradient lies: its slot, or the sum itself where the step has one leaf. */
weft_slot_ref weft_step_gradient(const weft_stepper *self, int32_t unit, int32_t slot);

/* Loads the event's leaf, finds the graph of its segment and binds the slots. out borrows from self until the next. */
weft_status weft_step_bind(weft_stepper *self, weft_graph_binding *out, const weft_graph **graph,
                           const weft_event *event, const weft_event_slots *slots, weft_error *err);

/* A leaf gradient is needed whole from the first BACKWARD that writes a part of it: REDUCE takes the padding along. */
void weft_step_claim_gradients(const weft_stepper *self, const weft_event_slots *slots);

/* Tells the trace what the event touched. */
void weft_step_report(const weft_stepper *self, const weft_event_slots *slots);

#endif
