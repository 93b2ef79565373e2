/* host/run/nonfinite.c: see nonfinite.h. */
#include "run/nonfinite.h"

#include "model/convert.h"
#include "plugin/enter.h"

#include <math.h>
#include <stdlib.h>

static weft_status look_at_carry(weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t n = (int64_t)self->micro_batch.rows * self->micro_batch.length * engine->plan.declared->carry_width;
    const int64_t size = weft_dtype_bytes(engine->plan.dtype);
    float *values = NULL;
    void *stored = NULL; /* as the carry has them */
    weft_status status = WEFT_OK;
    if (binding->carry_out.ref.buffer == NULL) return WEFT_OK;
    values = malloc((size_t)(n * ((int64_t)sizeof *values + size)));
    if (values == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to look for the first bad number");
    stored = values + n;
    WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, stored, binding->carry_out.ref,
                     n * size);
    if (status == WEFT_OK) (void)weft_convert(values, WEFT_F32, stored, engine->plan.dtype, n);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (!isfinite(values[i]))
            status = weft_error_set(err, WEFT_E_NUMERIC,
                                    "the forward of %s is the first to give a number that is not finite",
                                    engine->plan.declared->segments[instruction->segment].name);
    free(values);
    return status;
}

weft_status weft_nonfinite_look(weft_stepper *self, const weft_instruction *instruction,
                                const weft_graph_binding *binding, weft_error *err) {
    const weft_program *program = self->mode_plan->program;
    char name[256];
    weft_status status = WEFT_OK;
    if (weft_process_group_is_single(&self->engine->peers)) return look_at_carry(self, instruction, binding, err);
    if (self->culprit.code != WEFT_OK) return WEFT_OK;
    status = look_at_carry(self, instruction, binding, &self->culprit);
    if (status == WEFT_OK) return WEFT_OK;
    weft_instruction_describe(name, sizeof name, instruction, &self->mode_plan->job->spec);
    (void)weft_error_prefix(&self->culprit, "step %llu, instruction %d, %s: ", (unsigned long long)self->step,
                            (int)(instruction - program->instructions), name);
    return WEFT_OK;
}

/* The micro-batch whose loss is not finite; 0 where only their sum is not. */
static int32_t bad_micro_batch(const weft_stepper *self) {
    for (int32_t m = 0; m < self->mode_plan->program->micro_batches; m++) {
        if (!isfinite(weft_step_loss(self, m))) return m;
    }
    return 0;
}

weft_status weft_nonfinite_head(const weft_stepper *self, weft_error *err) {
    const weft_program *program = self->mode_plan->program;
    const int32_t head = self->engine->plan.declared->n_segments - 1, micro_batch = bad_micro_batch(self);
    /* which forms the loss */
    const int32_t kind = self->step == 0 ? WEFT_INSTRUCTION_FORWARD : WEFT_INSTRUCTION_BACKWARD;
    char name[256] = "";
    int32_t i = 0;
    while (i < program->n_instructions &&
           (program->instructions[i].kind != kind || program->instructions[i].segment != head ||
            program->instructions[i].micro_batch != micro_batch))
        i++;
    if (i == program->n_instructions && !weft_process_group_is_single(&self->engine->peers)) return WEFT_OK;
    if (i < program->n_instructions)
        weft_instruction_describe(name, sizeof name, &program->instructions[i], &self->mode_plan->job->spec);
    return weft_error_set(err, WEFT_E_NUMERIC,
                          "step %llu, instruction %d, %s: the loss of %s is the first number that is not finite",
                          (unsigned long long)self->step, (int)i, name,
                          self->engine->plan.declared->segments[head].name);
}

weft_status weft_nonfinite_gradient(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    int64_t at = 0;
    weft_status status = WEFT_OK;
    const char *name = "the gradient norm";
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        double sum = 0.0;
        if (!engine->plan.declared->parameters[i].trainable) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, &sum,
                         weft_ref_at(engine->scalars.square_sums, weft_f64_bytes(at++)), weft_f64_bytes(1));
        if (status == WEFT_OK && !isfinite(sum)) name = engine->plan.declared->parameters[i].name;
    }
    return weft_error_set(err, WEFT_E_NUMERIC,
                          "step %llu: the gradient of %s is not finite (loss %.6g): lower the learning rate, or set "
                          "[train] clip",
                          (unsigned long long)self->step, name, self->result.loss_sum / (double)self->count);
}
