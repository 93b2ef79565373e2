/* host/run/values.c: see values.h. */
#include "run/values.h"

#include "model/convert.h"
#include "plugin/enter.h"

#include <weft/blocks.h>
#include <weft/dynamic8.h>

/* What is told of the instruction that has run; each value fills in its own part. */
static weft_value_row row_of(const weft_stepper *self, const weft_instruction *instruction, char text[256]) {
    const weft_value_row row = {.step = self->step, .instruction = text, .name = "", .part = ""};
    weft_instruction_describe(text, 256, instruction, &self->mode_plan->job->spec);
    return row;
}

static bool is_silent(const weft_stepper *self) {
    return self->values == NULL || self->values->tell == NULL || self->step == 0 || self->find_culprit;
}

/* The first numbers, or the block that they lie in. */
typedef union stored_values {
    double doubles[WEFT_VALUES_TOLD];
    weft_i8x64 int8;
    weft_dyn8x256 dynamic8;
} stored_values;

/* False: of packed weights nothing is told. */
static bool to_numbers(float *out, const stored_values *stored, int32_t dtype, int64_t n) {
    weft_dynamic8 map;
    if (dtype != WEFT_DYN8X256 && dtype != WEFT_UDYN8X256) return weft_convert(out, WEFT_F32, stored, dtype, n);
    weft_dynamic8_fill(&map, dtype);
    weft_dynamic8_unpack(out, &map, &stored->dynamic8, (int)n);
    return true;
}

/* row->n numbers of dtype begin at ref; what is told is divided by `over`. */
static weft_status tell_over(const weft_stepper *self, weft_value_row *row, weft_ref ref, int32_t dtype, double over,
                             weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t n = row->n < WEFT_VALUES_TOLD ? row->n : WEFT_VALUES_TOLD;
    stored_values stored; /* as the device has them, of whatever type */
    float numbers[WEFT_VALUES_TOLD] = {0};
    weft_status status = WEFT_OK;
    memset(&stored, 0, sizeof stored);
    WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, &stored, ref, weft_dtype_span(dtype, n));
    if (status != WEFT_OK) return status;
    if (dtype != WEFT_F64 && !to_numbers(numbers, &stored, dtype, n)) return WEFT_OK;
    for (int64_t i = 0; i < n; i++)
        row->numbers[i] = (dtype == WEFT_F64 ? stored.doubles[i] : (double)numbers[i]) / over;
    self->values->tell(self->values->context, row);
    return WEFT_OK;
}

static weft_status tell(const weft_stepper *self, weft_value_row *row, weft_ref ref, int32_t dtype, weft_error *err) {
    return tell_over(self, row, ref, dtype, 1.0, err);
}

/* Of gradients: without the loss scale, as they would be without it. */
static double seed_of(const weft_stepper *self) {
    const float *seed = (const float *)(const void *)(self->count_out + 1);
    return weft_plan_scales(&self->engine->plan) ? (double)*seed : 1.0;
}

static weft_status tell_carry(const weft_stepper *self, weft_value_row *row, weft_ref ref, double over,
                              weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    if (ref.buffer == NULL) return WEFT_OK;
    row->name = "carry";
    row->n = (int64_t)self->micro_batch.rows * self->micro_batch.length * plan->declared->carry_width;
    return tell_over(self, row, ref, plan->dtype, over, err);
}

weft_status weft_values_forward(const weft_stepper *self, const weft_instruction *instruction,
                                const weft_graph_binding *binding, weft_error *err) {
    const weft_declared *declared = self->engine->plan.declared;
    char text[256];
    weft_value_row row;
    int32_t n = 0;
    const weft_graph_read *reads = NULL;
    weft_status status = WEFT_OK;
    if (is_silent(self)) return WEFT_OK;
    row = row_of(self, instruction, text);
    reads = weft_graph_set_reads(self->mode_plan->graphs, instruction->segment, &n);
    row.part = "weight";
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        const int32_t p = reads[i].parameter;
        row.name = declared->parameters[p].name;
        row.n = declared->parameters[p].numel;
        status = tell(self, &row, binding->parameters[p], binding->dtypes[p], err);
    }
    row.part = "";
    return status == WEFT_OK ? tell_carry(self, &row, binding->carry_out.ref, 1.0, err) : status;
}

static weft_status show_gradients(const weft_stepper *self, const weft_instruction *instruction,
                                  const weft_graph_binding *binding, weft_error *err) {
    int32_t n = 0;
    const weft_graph_read *reads = NULL;
    weft_status status = WEFT_OK;
    if (self->values == NULL || self->values->gradient == NULL || self->step == 0) return WEFT_OK;
    reads = weft_graph_set_reads(self->mode_plan->graphs, instruction->segment, &n);
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        const int32_t p = reads[i].parameter;
        if (binding->gradients[p].ref.buffer == NULL) continue;
        status =
            self->values->gradient(self->values->context, instruction->micro_batch, p, binding->gradients[p].ref, err);
    }
    return status;
}

static weft_status tell_backward(const weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err) {
    const weft_declared *declared = self->engine->plan.declared;
    char text[256];
    weft_value_row row;
    int32_t n = 0;
    const weft_graph_read *reads = NULL;
    weft_status status = WEFT_OK;
    if (is_silent(self)) return WEFT_OK;
    row = row_of(self, instruction, text);
    reads = weft_graph_set_reads(self->mode_plan->graphs, instruction->segment, &n);
    if (instruction->segment == declared->n_segments - 1) {
        row.name = "loss";
        row.n = 1;
        status = tell(self, &row, binding->loss, WEFT_F64, err);
    }
    row.part = "gradient";
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        const int32_t p = reads[i].parameter;
        if (binding->gradients[p].ref.buffer == NULL) continue;
        row.name = declared->parameters[p].name;
        row.n = declared->parameters[p].numel;
        status = tell_over(self, &row, binding->gradients[p].ref, WEFT_F32, seed_of(self), err);
    }
    return status == WEFT_OK ? tell_carry(self, &row, binding->d_carry_in.ref, seed_of(self), err) : status;
}

weft_status weft_values_backward(const weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err) {
    const weft_status status = show_gradients(self, instruction, binding, err);
    return status == WEFT_OK ? tell_backward(self, instruction, binding, err) : status;
}

weft_status weft_values_norm(const weft_stepper *self, const weft_instruction *instruction, weft_error *err) {
    const weft_scalars *scalars = &self->engine->scalars;
    char text[256];
    weft_value_row row;
    weft_status status = WEFT_OK;
    if (is_silent(self)) return WEFT_OK;
    row = row_of(self, instruction, text);
    row.n = 1;
    row.name = "targets";
    status = tell(self, &row, scalars->count, WEFT_F64, err);
    row.name = "norm";
    if (status == WEFT_OK) status = tell(self, &row, scalars->norm, WEFT_F64, err);
    row.name = "coefficient";
    return status == WEFT_OK ? tell(self, &row, scalars->coefficient, WEFT_F32, err) : status;
}

/* What the update has read and left of one parameter. */
static weft_status tell_update(const weft_stepper *self, weft_value_row *row, int32_t parameter, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_parameter *p = &engine->plan.declared->parameters[parameter];
    const weft_span *gradients = &engine->plan.holds[WEFT_HOLD_GRADIENTS]->spans[p->group];
    weft_status status = WEFT_OK;
    row->part = "sum of gradients";
    status = tell_over(self, row, weft_ref_at(engine->gradients.ref, weft_span_at(gradients, p->offset)), WEFT_F32,
                       seed_of(self), err);
    for (int64_t i = 0; i < engine->plan.n_states && status == WEFT_OK; i++) {
        const weft_span *span = &engine->plan.holds[WEFT_HOLD_STATES + i]->spans[p->group];
        row->part = engine->plan.states[i].name;
        status = tell(self, row, weft_ref_at(engine->state[i].ref, weft_span_at(span, p->offset)),
                      engine->plan.states[i].dtype, err);
    }
    row->part = "weight";
    return status == WEFT_OK ? tell(self, row, engine->parameter_refs[parameter], p->dtype, err) : status;
}

weft_status weft_values_step(const weft_stepper *self, const weft_instruction *instruction, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_declared *declared = engine->plan.declared;
    char text[256];
    weft_value_row row;
    weft_status status = WEFT_OK;
    if (is_silent(self) || self->count == 0) return WEFT_OK;
    row = row_of(self, instruction, text);
    for (int32_t i = 0; i < declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (!p->trainable) continue;
        row.name = p->name;
        row.n = p->numel;
        status = tell_update(self, &row, i, err);
    }
    return status;
}
