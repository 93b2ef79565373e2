/* host/run/values.c: see values.h. */
#include "run/values.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "model/convert.h"

#include <math.h>
#include <stdlib.h>
#include <weft/blocks.h>
#include <weft/dynamic8.h>

static weft_status check_carry(weft_stepper *self, const weft_instruction *instruction,
                               const weft_graph_binding *binding, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t n = (int64_t)self->micro_batch.rows * self->micro_batch.length * engine->plan.declared->carry_width;
    const int64_t size = weft_dtype_bytes(engine->plan.dtype);
    float *values = NULL;
    void *stored = NULL; /* in the carry's type */
    weft_status status = WEFT_OK;
    if (binding->carry_out.ref.buffer == NULL) return WEFT_OK;
    values = malloc((size_t)(n * ((int64_t)sizeof *values + size)));
    if (values == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to find the number that is not finite");
    stored = values + n;
    status = weft_engine_read(engine, stored, binding->carry_out.ref, n * size, err);
    if (status == WEFT_OK) (void)weft_convert(values, WEFT_F32, stored, engine->plan.dtype, n);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (!isfinite(values[i]))
            status = weft_error_set(err, WEFT_E_NUMERIC,
                                    "the forward of %s computes the first number that is not finite",
                                    engine->plan.declared->segments[instruction->segment].name);
    free(values);
    return status;
}

weft_status weft_nonfinite_check(weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err) {
    char name[256];
    if (weft_process_group_is_single(&self->engine->peers)) return check_carry(self, instruction, binding, err);
    if (self->culprit.code != WEFT_OK || check_carry(self, instruction, binding, &self->culprit) == WEFT_OK)
        return WEFT_OK;
    weft_instruction_describe(name, sizeof name, instruction, &self->mode_plan->job->spec);
    (void)weft_error_prefix(&self->culprit, "step %llu, instruction %d, %s: ", (unsigned long long)self->step,
                            (int)(instruction - self->mode_plan->program->instructions), name);
    return WEFT_OK;
}

weft_status weft_nonfinite_head(const weft_stepper *self, weft_error *err) {
    const weft_program *program = self->mode_plan->program;
    const int32_t head = self->engine->plan.declared->n_segments - 1;
    /* the kind that computes the loss */
    const int32_t kind = self->step == 0 ? WEFT_INSTRUCTION_FORWARD : WEFT_INSTRUCTION_BACKWARD;
    char name[256] = "";
    int32_t i = 0, micro_batch = 0; /* 0 also if only the sum of losses is not finite */
    while (micro_batch < program->micro_batches && isfinite(weft_step_loss(self, micro_batch))) micro_batch++;
    if (micro_batch == program->micro_batches) micro_batch = 0;
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
        status = weft_engine_read(engine, &sum, weft_ref_at(engine->scalars.square_sums, weft_f64_bytes(at++)),
                                  weft_f64_bytes(1), err);
        if (status == WEFT_OK && !isfinite(sum)) name = engine->plan.declared->parameters[i].name;
    }
    return weft_error_set(err, WEFT_E_NUMERIC,
                          "step %llu: the gradient of %s is not finite (loss %.6g): lower the learning rate, or set "
                          "[train] clip",
                          (unsigned long long)self->step, name, self->result.loss_sum / (double)self->count);
}

/* Begins the row of an instruction that has run; false: there is no listener. */
static bool begin_row(weft_value_row *row, const weft_stepper *self, const weft_instruction *instruction) {
    static char text[256];
    if (self->values == NULL || self->values->report == NULL || self->step == 0 || self->find_culprit) return false;
    *row = (weft_value_row){.step = self->step, .instruction = text, .name = "", .part = ""};
    weft_instruction_describe(text, sizeof text, instruction, &self->mode_plan->job->spec);
    return true;
}

/* The first numbers, or the block that contains them, in the device's type. */
typedef union stored_values {
    double doubles[WEFT_VALUES_SHOWN];
    weft_i8x64 int8;
    weft_dyn8x256 dynamic8;
} stored_values;

/* Reports the first of row->n numbers of dtype at ref, divided by `over`. Packed weights are not reported. */
static weft_status report(const weft_stepper *self, weft_value_row *row, weft_ref ref, int32_t dtype, double over,
                          weft_error *err) {
    const int64_t n = row->n < WEFT_VALUES_SHOWN ? row->n : WEFT_VALUES_SHOWN;
    stored_values stored;
    weft_dynamic8 map;
    float numbers[WEFT_VALUES_SHOWN] = {0};
    weft_status status = WEFT_OK;
    memset(&stored, 0, sizeof stored);
    status = weft_engine_read(self->engine, &stored, ref, weft_dtype_span(dtype, n), err);
    if (status != WEFT_OK) return status;
    if (dtype == WEFT_DYN8X256 || dtype == WEFT_UDYN8X256) {
        weft_dynamic8_fill(&map, dtype);
        weft_dynamic8_unpack(numbers, &map, &stored.dynamic8, (int)n);
    } else if (dtype != WEFT_F64 && !weft_convert(numbers, WEFT_F32, &stored, dtype, n)) return WEFT_OK;
    for (int64_t i = 0; i < n; i++)
        row->numbers[i] = (dtype == WEFT_F64 ? stored.doubles[i] : (double)numbers[i]) / over;
    self->values->report(self->values->context, row);
    return WEFT_OK;
}

/* The loss scale, by which reported gradients are divided. */
static double seed_of(const weft_stepper *self) {
    const float *seed = (const float *)(const void *)(self->count_out + 1);
    return weft_plan_scales(&self->engine->plan) ? (double)*seed : 1.0;
}

static weft_status report_carry(const weft_stepper *self, weft_value_row *row, weft_ref ref, double over,
                                weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    if (ref.buffer == NULL) return WEFT_OK;
    row->name = "carry";
    row->n = (int64_t)self->micro_batch.rows * self->micro_batch.length * plan->declared->carry_width;
    return report(self, row, ref, plan->dtype, over, err);
}

static void name_parameter(weft_value_row *row, const weft_stepper *self, int32_t parameter) {
    row->name = self->engine->plan.declared->parameters[parameter].name;
    row->n = self->engine->plan.declared->parameters[parameter].numel;
}

weft_status weft_values_forward(const weft_stepper *self, const weft_instruction *instruction,
                                const weft_graph_binding *binding, weft_error *err) {
    weft_value_row row;
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(self->mode_plan->graphs->graphs[instruction->segment], &n);
    weft_status status = WEFT_OK;
    if (!begin_row(&row, self, instruction)) return WEFT_OK;
    row.part = "weight";
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        const int32_t p = reads[i].parameter;
        name_parameter(&row, self, p);
        status = report(self, &row, binding->parameters[p], binding->dtypes[p], 1.0, err);
    }
    row.part = "";
    return status == WEFT_OK ? report_carry(self, &row, binding->carry_out.ref, 1.0, err) : status;
}

weft_status weft_values_backward(const weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err) {
    const weft_value_sink *sink = self->values;
    weft_value_row row;
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(self->mode_plan->graphs->graphs[instruction->segment], &n);
    weft_status status = WEFT_OK;
    for (int32_t i = 0; sink != NULL && sink->gradient != NULL && self->step > 0 && i < n && status == WEFT_OK; i++) {
        const weft_ref gradient = binding->gradients[reads[i].parameter].ref;
        if (gradient.buffer != NULL)
            status = sink->gradient(sink->context, instruction->micro_batch, reads[i].parameter, gradient, err);
    }
    if (status != WEFT_OK || !begin_row(&row, self, instruction)) return status;
    if (instruction->segment == self->engine->plan.declared->n_segments - 1) {
        row.name = "loss";
        row.n = 1;
        status = report(self, &row, binding->loss, WEFT_F64, 1.0, err);
    }
    row.part = "gradient";
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        const int32_t p = reads[i].parameter;
        if (binding->gradients[p].ref.buffer == NULL) continue;
        name_parameter(&row, self, p);
        status = report(self, &row, binding->gradients[p].ref, WEFT_F32, seed_of(self), err);
    }
    return status == WEFT_OK ? report_carry(self, &row, binding->d_carry_in.ref, seed_of(self), err) : status;
}

weft_status weft_values_norm(const weft_stepper *self, const weft_instruction *instruction, weft_error *err) {
    const weft_scalars *scalars = &self->engine->scalars;
    weft_value_row row;
    weft_status status = WEFT_OK;
    if (!begin_row(&row, self, instruction)) return WEFT_OK;
    row.n = 1;
    row.name = "targets";
    status = report(self, &row, scalars->count, WEFT_F64, 1.0, err);
    row.name = "norm";
    if (status == WEFT_OK) status = report(self, &row, scalars->norm, WEFT_F64, 1.0, err);
    row.name = "coefficient";
    return status == WEFT_OK ? report(self, &row, scalars->coefficient, WEFT_F32, 1.0, err) : status;
}

/* Reports the update's inputs and outputs of each parameter. */
weft_status weft_values_step(const weft_stepper *self, const weft_instruction *instruction, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_plan *plan = &engine->plan;
    weft_value_row row;
    weft_status status = WEFT_OK;
    if (self->count == 0 || !begin_row(&row, self, instruction)) return WEFT_OK;
    for (int32_t i = 0; i < plan->declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (!p->trainable) continue;
        name_parameter(&row, self, i);
        row.part = "sum of gradients";
        status = report(self, &row,
                        weft_ref_at(engine->gradients.ref,
                                    weft_span_at(&plan->holds[WEFT_HOLD_GRADIENTS]->spans[p->group], p->offset)),
                        WEFT_F32, seed_of(self), err);
        for (int64_t k = 0; k < plan->n_states && status == WEFT_OK; k++) {
            const weft_span *span = &plan->holds[WEFT_HOLD_STATES + k]->spans[p->group];
            row.part = plan->states[k].name;
            status = report(self, &row, weft_ref_at(engine->state[k].ref, weft_span_at(span, p->offset)),
                            plan->states[k].dtype, 1.0, err);
        }
        row.part = "weight";
        if (status == WEFT_OK) status = report(self, &row, engine->parameter_refs[i], p->dtype, 1.0, err);
    }
    return status;
}

/* ---- mean hidden states ---- */

enum { MOST_AT_ONCE = 1 << 18 }; /* numbers of a download, at least those of a position */

static int64_t doubles_of_rank(const weft_hidden *self) {
    return self->engine->plan.evaluate.most_losses * self->width;
}

weft_hidden *weft_hidden_create(const weft_engine *engine) {
    const size_t size = (size_t)weft_dtype_bytes(engine->plan.dtype);
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t longest = spec->lengths[spec->n_lengths - 1];
    weft_hidden *self = weft_alloc(1, sizeof *self);
    self->engine = engine;
    self->width = weft_graph_hidden_width(
        weft_graph_set_at(engine->plan.evaluate.graphs, longest, engine->plan.declared->n_segments - 1));
    self->at_once = weft_larger(MOST_AT_ONCE / self->width, 1);
    self->micro_batches = weft_alloc(doubles_of_rank(self) * engine->ranks.world, sizeof *self->micro_batches);
    self->sum = weft_alloc(self->width, sizeof *self->sum);
    self->weights = weft_alloc((int64_t)spec->evaluate_rows * longest, sizeof *self->weights);
    self->numbers = weft_alloc(self->at_once * self->width, sizeof *self->numbers);
    self->stored = weft_alloc(self->at_once * self->width, size);
    return self;
}

void weft_hidden_destroy(weft_hidden *self) {
    if (self == NULL) return;
    free(self->micro_batches);
    free(self->sum);
    free(self->weights);
    free(self->numbers);
    free(self->stored);
    free(self);
}

void weft_hidden_begin(weft_hidden *self) {
    if (self == NULL) return;
    memset(self->sum, 0, (size_t)self->width * sizeof *self->sum);
    self->targets = 0;
}

/* Adds the states of n positions from `first` on to `to`, if they have a target. */
static weft_status add_places(weft_hidden *self, double *to, weft_ref states, int64_t first, int64_t n,
                              weft_error *err) {
    const int32_t dtype = self->engine->plan.dtype;
    const int64_t bytes = weft_dtype_bytes(dtype) * self->width;
    const weft_status status =
        weft_engine_read(self->engine, self->stored, weft_ref_at(states, first * bytes), n * bytes, err);
    if (status != WEFT_OK) return status;
    (void)weft_convert(self->numbers, WEFT_F32, self->stored, dtype, n * self->width);
    for (int64_t p = 0; p < n; p++) {
        const float *place = self->numbers + p * self->width;
        for (int64_t i = 0; self->weights[first + p] != 0.0F && i < self->width; i++) to[i] += (double)place[i];
    }
    return WEFT_OK;
}

weft_status weft_hidden_add(weft_hidden *self, const weft_stepper *stepper, const weft_instruction *instruction,
                            const weft_graph *graph, const weft_graph_binding *binding, weft_error *err) {
    const int64_t places = (int64_t)stepper->micro_batch.rows * stepper->micro_batch.length;
    const weft_loss_place *at = &stepper->mode_plan->losses[instruction->micro_batch];
    double *to = self->micro_batches + at->rank * doubles_of_rank(self) + at->position * self->width;
    weft_slot_ref states = {0};
    weft_status status = WEFT_OK;
    if (weft_graph_hidden_width(graph) == 0) return WEFT_OK;
    states = weft_graph_hidden(graph, binding);
    memset(to, 0, (size_t)self->width * sizeof *to);
    status = weft_engine_read(self->engine, self->weights, binding->weights.ref, places * WEFT_PLACE_BYTES, err);
    for (int64_t first = 0; first < places && status == WEFT_OK; first += self->at_once)
        status = add_places(self, to, states.ref, first, weft_smaller(places - first, self->at_once), err);
    return status;
}

weft_status weft_hidden_end_pass(weft_hidden *self, int64_t targets, weft_error *err) {
    const weft_mode_plan *mode_plan = &self->engine->plan.evaluate;
    const weft_process_group *peers = &self->engine->peers;
    weft_status status = WEFT_OK;
    if (!weft_process_group_is_single(peers))
        status = weft_process_group_gather(peers, self->micro_batches,
                                           doubles_of_rank(self) * (int64_t)sizeof *self->micro_batches, err);
    if (status != WEFT_OK) return status;
    self->targets += targets;
    for (int32_t m = 0; m < mode_plan->program->micro_batches; m++) {
        const weft_loss_place *at = &mode_plan->losses[m];
        const double *micro_batch = self->micro_batches + at->rank * doubles_of_rank(self) + at->position * self->width;
        for (int64_t i = 0; i < self->width; i++) self->sum[i] += micro_batch[i];
    }
    return WEFT_OK;
}

void weft_hidden_mean(const weft_hidden *self, double *out) {
    for (int64_t i = 0; i < self->width; i++) out[i] = self->sum[i] / (double)self->targets;
}

/* ---- similarity ---- */

double weft_similarity_of(const double *a, const double *b, int64_t n) {
    double aa = 0.0, bb = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    if (!(aa > 0.0) || !(bb > 0.0)) return (double)NAN;
    for (int64_t i = 0; i < n; i++) {
        const double apart = a[i] / sqrt(aa) - b[i] / sqrt(bb);
        sum += apart * apart;
    }
    return sum / 2.0;
}

static weft_status save_before(const weft_similarity *self, weft_error *err) {
    json_t *mean = json_array(), *object = json_pack("{s:o}", "mean_last_hidden_state", mean);
    weft_file file;
    FILE *to = weft_file_begin(&file, self->path, err);
    for (int64_t i = 0; i < self->hidden->width; i++) (void)json_array_append_new(mean, json_real(self->before[i]));
    if (to != NULL) (void)json_dumpf(object, to, JSON_REAL_PRECISION(17)); /* commit detects a failure */
    json_decref(object);
    return to == NULL ? WEFT_E_SYSTEM : weft_file_commit(&file, err);
}

/* Reads the initial mean into `before`; false: the file is missing, or belongs to another run. */
static bool read_before(weft_similarity *self) {
    json_t *object = NULL;
    const int64_t n = self->hidden->width;
    bool good = weft_json_read(&object, self->path, 0, NULL) == WEFT_OK;
    const json_t *mean = json_object_get(object, "mean_last_hidden_state");
    good = good && (int64_t)json_array_size(mean) == n;
    for (int64_t i = 0; i < n && good; i++) {
        const json_t *number = json_array_get(mean, (size_t)i);
        good = json_is_number(number);
        self->before[i] = json_number_value(number);
    }
    json_decref(object);
    return good;
}

weft_status weft_similarity_open(weft_similarity *self, weft_stepper *stepper, const char *path, bool resumed,
                                 weft_error *err) {
    const weft_engine *engine = stepper->engine;
    const weft_run *run = engine->plan.run;
    const weft_process_group *peers = &engine->peers;
    weft_status status = WEFT_OK;
    if (run->settings.run.similarity == 0 || engine->plan.evaluate.program == NULL) return WEFT_OK;
    *self = (weft_similarity){.stepper = stepper, .path = path, .hidden = weft_hidden_create(engine)};
    self->before = weft_alloc(self->hidden->width, sizeof *self->before);
    self->now = weft_alloc(self->hidden->width, sizeof *self->now);
    if (resumed && weft_process_group_is_rank_0(peers)) {
        self->known = read_before(self);
        if (!self->known)
            weft_log(
                run->host, WEFT_LOG_WARN,
                "[run] similarity: %s does not contain the mean hidden state at step 0, which similarity = yes stores: "
                "this run reports no similarity",
                path);
    }
    if (resumed) status = weft_process_group_broadcast(peers, &self->known, (int64_t)sizeof self->known, err);
    if (status == WEFT_OK && (!resumed || self->known)) stepper->hidden = self->hidden;
    return status;
}

void weft_similarity_close(weft_similarity *self) {
    if (self->stepper != NULL) self->stepper->hidden = NULL;
    weft_hidden_destroy(self->hidden);
    free(self->before);
    free(self->now);
}

weft_status weft_similarity_note(weft_similarity *self, double *out, uint64_t step, weft_error *err) {
    const weft_process_group *peers = self->stepper == NULL ? NULL : &self->stepper->engine->peers;
    double *mean = step == 0 ? self->before : self->now;
    weft_status status = WEFT_OK;
    if (peers == NULL || (!self->known && step > 0)) return WEFT_OK;
    if (weft_process_group_is_rank_0(peers)) {
        weft_hidden_mean(self->hidden, mean);
        *out = weft_similarity_of(self->before, mean, self->hidden->width);
    }
    self->known = true;
    status = weft_process_group_broadcast(peers, out, (int64_t)sizeof *out, err);
    return status == WEFT_OK && step == 0 && weft_process_group_is_rank_0(peers) ? save_before(self, err) : status;
}
