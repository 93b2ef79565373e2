/* host/run/bind.c: see bind.h. */
#include "run/bind.h"

#include "program/sums.h"
#include "run/micro_batch.h"

weft_slot_ref weft_step_slot(const weft_stepper *self, int32_t index) {
    weft_slot_ref out = weft_engine_slot(self->engine, self->mode_plan->program, index);
    if (index >= 0) out.used = &self->used[index];
    return out;
}

weft_ref weft_sum_ref(const weft_engine *engine, const weft_job_spec *job, int32_t unit, int32_t scope) {
    return weft_ref_at(engine->gradients.ref, weft_sums_target(&engine->plan, job, unit, scope));
}

weft_slot_ref weft_step_gradient(const weft_stepper *self, int32_t unit, int32_t slot) {
    weft_slot_ref out = weft_step_slot(self, slot);
    if (self->mode_plan->program->slots[slot].offset >= 0) return out;
    out.ref = weft_sum_ref(self->engine, &self->mode_plan->job->spec, unit, WEFT_SCOPE_RANK);
    out.bytes = weft_f32_bytes(weft_layout_trained(self->engine->plan.layout, unit)->numel);
    return out;
}

static void bind_gradients(weft_stepper *self, const weft_instruction_slots *slots) {
    const weft_declared *declared = self->engine->plan.declared;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        const weft_slot_ref none = {0};
        const int32_t slot = slots->gradients != NULL ? slots->gradients[p->unit] : -1;
        self->gradients[i] = none;
        if (!p->trainable || slot < 0) continue;
        self->gradients[i] = weft_step_gradient(self, p->unit, slot);
        self->gradients[i].start = weft_f32_bytes(p->offset);
        self->gradients[i].ref = weft_ref_at(self->gradients[i].ref, self->gradients[i].start);
        self->gradients[i].bytes -= self->gradients[i].start;
    }
}

/* Nothing where nobody asks for it. */
static weft_slot_ref first_of_micro_batch(const weft_stepper *self, int32_t micro_batch) {
    const int64_t each = weft_dtype_bytes(WEFT_I64);
    weft_slot_ref out = {0};
    if (self->mode_plan != &self->engine->plan.train || !self->engine->plan.draws) return out;
    out.ref = weft_ref_at(self->engine->scalars.first, each * micro_batch);
    out.bytes = each;
    return out;
}

weft_status weft_step_bind(weft_stepper *self, weft_graph_binding *out, const weft_graph **graph,
                           const weft_instruction *instruction, const weft_instruction_slots *slots, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_slot_ref micro_batch = weft_step_slot(self, slots->micro_batch);
    const weft_graph_binding empty = {0};
    weft_status status = weft_step_load_micro_batch(self, instruction->micro_batch, micro_batch, err);
    if (status != WEFT_OK) return status;
    *graph = weft_graph_set_at(self->mode_plan->graphs, self->micro_batch.length, instruction->segment);
    if (*graph == NULL)
        return weft_error_set(err, WEFT_E_HOST, "no graph was made for micro-batches of %d places",
                              self->micro_batch.length);
    *out = empty;
    out->parameters = engine->compute_refs;
    out->dtypes = engine->compute_dtypes;
    out->tables = engine->tables;
    weft_micro_batch_bind(out, micro_batch, self->micro_batch.rows, self->micro_batch.length);
    out->carry_in = weft_step_slot(self, slots->carry_in);
    out->carry_out = weft_step_slot(self, slots->carry_out);
    out->d_carry_out = weft_step_slot(self, slots->d_carry_out);
    out->d_carry_in = weft_step_slot(self, slots->d_carry_in);
    out->tape = weft_step_slot(self, slots->tape);
    out->work = weft_step_slot(self, slots->work);
    out->loss =
        weft_ref_at(engine->scalars.losses, weft_f64_bytes(self->mode_plan->losses[instruction->micro_batch].position));
    out->seed = (weft_slot_ref){.ref = engine->scalars.seed, .bytes = weft_dtype_bytes(WEFT_F32)};
    out->first = first_of_micro_batch(self, instruction->micro_batch);
    out->sink = self->sink;
    bind_gradients(self, slots);
    out->gradients = self->gradients;
    return WEFT_OK;
}

static void report_slot(const weft_stepper *self, int32_t slot) {
    if (slot >= 0) weft_trace_use(self->trace, slot, self->used[slot]);
}

void weft_step_claim_gradients(const weft_stepper *self, const weft_instruction_slots *slots) {
    const weft_plan *plan = &self->engine->plan;
    for (int32_t u = 0; u < plan->layout->n_units; u++)
        if (slots->gradients[u] >= 0)
            weft_trace_use(self->trace, slots->gradients[u],
                           weft_f32_bytes(weft_layout_trained(plan->layout, u)->numel));
}

void weft_step_report(const weft_stepper *self, const weft_instruction_slots *slots) {
    report_slot(self, slots->micro_batch);
    report_slot(self, slots->carry_in);
    report_slot(self, slots->carry_out);
    report_slot(self, slots->tape);
    report_slot(self, slots->work);
    report_slot(self, slots->d_carry_out);
    report_slot(self, slots->d_carry_in);
    for (int32_t u = 0; slots->gradients != NULL && u < self->engine->plan.layout->n_units; u++)
        report_slot(self, slots->gradients[u]);
}
