/* host/run/blame.c: see blame.h. */
#include "run/blame.h"

#include "model/convert.h"
#include "plugin/enter.h"

#include <math.h>
#include <stdlib.h>

static weft_status look_at_carry(weft_stepper *self, const weft_event *event, const weft_graph_binding *binding,
                                 weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t n = (int64_t)self->leaf.rows * self->leaf.length * engine->plan.declared->carry_width;
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
                                    engine->plan.declared->segments[event->segment].name);
    free(values);
    return status;
}

weft_status weft_blame_look(weft_stepper *self, const weft_event *event, const weft_graph_binding *binding,
                            weft_error *err) {
    const weft_program *program = self->stage->program;
    char name[256];
    weft_status status = WEFT_OK;
    if (weft_peers_alone(&self->engine->peers)) return look_at_carry(self, event, binding, err);
    if (self->culprit.code != WEFT_OK) return WEFT_OK;
    status = look_at_carry(self, event, binding, &self->culprit);
    if (status == WEFT_OK) return WEFT_OK;
    weft_event_describe(name, sizeof name, event, &self->stage->job->spec);
    (void)weft_error_prefix(&self->culprit, "step %llu, event %d, %s: ", (unsigned long long)self->step,
                            (int)(event - program->events), name);
    return WEFT_OK;
}

/* The leaf whose loss is not finite; 0 where only their sum is not. */
static int32_t bad_leaf(const weft_stepper *self) {
    for (int32_t m = 0; m < self->stage->program->leaves; m++) {
        if (!isfinite(weft_step_loss(self, m))) return m;
    }
    return 0;
}

weft_status weft_blame_head(const weft_stepper *self, weft_error *err) {
    const weft_program *program = self->stage->program;
    const int32_t head = self->engine->plan.declared->n_segments - 1, leaf = bad_leaf(self);
    const int32_t kind = self->step == 0 ? WEFT_EVENT_FORWARD : WEFT_EVENT_BACKWARD; /* which forms the loss */
    char name[256] = "";
    int32_t i = 0;
    while (i < program->n_events &&
           (program->events[i].kind != kind || program->events[i].segment != head || program->events[i].leaf != leaf))
        i++;
    if (i == program->n_events && !weft_peers_alone(&self->engine->peers)) return WEFT_OK;
    if (i < program->n_events) weft_event_describe(name, sizeof name, &program->events[i], &self->stage->job->spec);
    return weft_error_set(err, WEFT_E_NUMERIC,
                          "step %llu, event %d, %s: the loss of %s is the first number that is not finite",
                          (unsigned long long)self->step, (int)i, name,
                          self->engine->plan.declared->segments[head].name);
}

weft_status weft_blame_gradient(weft_stepper *self, weft_error *err) {
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
