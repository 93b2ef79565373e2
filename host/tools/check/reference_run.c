/* host/tools/check/reference_run.c: see reference_run.h. */
#include "tools/check/reference_run.h"

#include "base/alloc.h"
#include "base/units.h"
#include "model/region.h"
#include "plugin/enter.h"
#include "graph/record.h"

#include <math.h>
#include <stdlib.h>
#include <weft/random.h>

enum { MOST_ELEMENTS = 1 << 22, NAN_BITS = 0x7fc00000, PARTS = 5 };

/* ---- drawn numbers ---- */

enum { SEED = 8501 };

/* Returns a value in [-1, 1). */
static double draw(uint64_t of, uint64_t i) {
    return 2.0 * (double)weft_random_uniform(weft_random(SEED, WEFT_RANDOM_SAMPLE, of, i).v[0]) - 1.0;
}

static int32_t draw_below(uint64_t of, uint64_t i, int64_t n) {
    return (int32_t)((int64_t)weft_random(SEED, WEFT_RANDOM_SAMPLE, of, i).v[1] % n);
}

/* True for padding ids, which get no gradient in a lookup. */
static bool is_padding(const weft_declared *declared, int32_t id) {
    for (int32_t i = 0; i < declared->n_weights; i++)
        if (declared->weights[i]->has_padding != 0 && declared->weights[i]->padding == id) return true;
    return false;
}

static int32_t draw_id(const weft_declared *declared, uint64_t of, uint64_t i) {
    const int64_t vocabulary = declared->info.vocab_size;
    int32_t id = draw_below(of, i, vocabulary);
    if (is_padding(declared, id)) id = (int32_t)((id + 1) % vocabulary);
    return id;
}

/* Returns the weight object of a parameter, which determines its distribution. */
static const weft_weight *weight_of(const weft_declared *declared, int32_t parameter) {
    for (int32_t i = 0; i < declared->n_weights; i++)
        if (declared->weights[i]->parameter == parameter || declared->weights[i]->bias == parameter)
            return declared->weights[i];
    return NULL;
}

/* Chooses the distribution of a parameter. Matrices preserve the magnitude of activations, gains are around one, biases
 * around zero. A constant initial value replaces that center. */
static void spread_of(const weft_declared *declared, int32_t parameter, double *middle, double *size) {
    const weft_parameter *p = &declared->parameters[parameter];
    const weft_weight *weight = weight_of(declared, parameter);
    const bool is_gain = p->role == WEFT_WEIGHT_GAIN && !p->is_bias;
    *size = p->rank == 1                       ? 0.3
            : p->role == WEFT_WEIGHT_EMBEDDING ? 1.0
                                               : 1.7 / sqrt(weight == NULL ? 1.0 : (double)weight->in);
    *middle = is_gain && (weight == NULL || weight->gain_from_one == 0) ? 1.0 : 0.0;
    if (p->init_form == WEFT_INIT_CONSTANT && !p->is_bias) *middle = p->init_std;
}

static weft_status give_numbers(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype, void *out,
                                weft_error *err) {
    const weft_reference_run *self = context;
    (void)dtype;
    (void)err;
    memcpy(out, self->values[parameter] + first, (size_t)n * sizeof(float));
    return WEFT_OK;
}

/* ---- memory ---- */

static weft_status take(weft_reference_run *self, weft_slot_ref *out, int64_t bytes, weft_error *err) {
    weft_buffer *buffer = NULL;
    weft_status status = WEFT_OK;
    *out = (weft_slot_ref){.bytes = bytes};
    if (bytes == 0) return WEFT_OK;
    self->buffers = weft_grow(self->buffers, self->n_buffers);
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &buffer, weft_round_up(bytes, WEFT_WORD));
    if (status != WEFT_OK) return status;
    self->buffers[self->n_buffers++] = buffer;
    out->ref.buffer = buffer;
    return WEFT_OK;
}

static weft_status write_bytes(const weft_reference_run *self, weft_ref to, const void *from, int64_t bytes,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, to, from, bytes);
    return status;
}

static weft_status fill_with_nan(const weft_reference_run *self, const weft_slot_ref *slot, weft_error *err) {
    weft_status status = WEFT_OK;
    if (slot->ref.buffer == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, fill, err, self->device, NULL, slot->ref, NAN_BITS,
                     slot->bytes / WEFT_WORD);
    return status;
}

/* ---- parameters and tables ---- */

static weft_status write_packed(const weft_reference_run *self, int32_t parameter, weft_error *err) {
    const weft_parameter *p = &self->declared->parameters[parameter];
    const int64_t bytes = weft_dtype_span(p->dtype, p->numel);
    weft_packing packing = {0};
    void *blocks = weft_alloc(bytes, 1);
    weft_status status =
        weft_packing_open(&packing, self->declared, parameter, give_numbers, (void *)(uintptr_t)self, err);
    if (status == WEFT_OK) {
        weft_packing_put(&packing, blocks, self->values[parameter], 0, p->numel);
        status = write_bytes(self, self->parameters[parameter], blocks, bytes, err);
    }
    free(packing.scales);
    free(blocks);
    return status;
}

weft_status weft_reference_run_put(const weft_reference_run *self, int32_t parameter, const float *numbers,
                                   weft_error *err) {
    const int64_t n = self->declared->parameters[parameter].numel;
    return write_bytes(self, self->parameters[parameter], numbers, n * (int64_t)sizeof *numbers, err);
}

static weft_status make_parameter(weft_reference_run *self, int32_t parameter, double size, weft_error *err) {
    const weft_parameter *p = &self->declared->parameters[parameter];
    const bool is_packed = weft_parameter_is_packed(p);
    double middle = 0, spread = 0;
    weft_slot_ref slot;
    weft_status status = take(self, &slot, weft_dtype_span(is_packed ? p->dtype : WEFT_F32, p->numel), err);
    if (status != WEFT_OK) return status;
    self->parameters[parameter] = slot.ref;
    self->values[parameter] = weft_alloc(p->numel, sizeof(float));
    spread_of(self->declared, parameter, &middle, &spread);
    for (int64_t i = 0; i < p->numel; i++)
        self->values[parameter][i] = (float)(middle + size * spread * draw((uint64_t)parameter, (uint64_t)i));
    status = is_packed ? write_packed(self, parameter, err)
                       : weft_reference_run_put(self, parameter, self->values[parameter], err);
    if (status == WEFT_OK && p->trainable) status = take(self, &self->gradients[parameter], slot.bytes, err);
    return status;
}

static weft_status make_table(weft_reference_run *self, int32_t index, int64_t rows, weft_error *err) {
    const weft_table *table = self->declared->tables[index];
    const int64_t bytes = rows * table->width * (int64_t)sizeof(float);
    float *values = weft_alloc(bytes, 1);
    weft_status status = take(self, &self->tables[index], bytes, err);
    if (status == WEFT_OK) {
        const weft_call_record before = weft_plugin_enter(self->declared->plugin, "fill");
        status = weft_plugin_leave(before, table->fill(self->declared->model, table->name, rows, values, err), err);
    }
    if (status == WEFT_OK) status = write_bytes(self, self->tables[index].ref, values, bytes, err);
    free(values);
    return status;
}

static weft_status fill_model(weft_reference_run *self, double size, weft_error *err) {
    int64_t rows = self->length;
    weft_status status = WEFT_OK;
    for (int32_t s = 0; s < self->declared->n_segments; s++) {
        const int64_t more = weft_graph_size(self->graphs[s])->table_rows;
        rows = more > rows ? more : rows;
    }
    for (int32_t i = 0; i < self->declared->n_parameters && status == WEFT_OK; i++)
        status = make_parameter(self, i, size, err);
    for (int32_t i = 0; i < self->declared->n_tables && status == WEFT_OK; i++) status = make_table(self, i, rows, err);
    return status;
}

/* ---- segments ---- */

/* Records the reads of segment s. Returns true if one of them is trained. */
static bool note_reads(weft_reference_run *self, int32_t s) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(self->graphs[s], &n);
    bool trains = false;
    for (int32_t i = 0; i < n; i++) {
        self->is_read[reads[i].parameter] = true;
        trains = trains || self->declared->parameters[reads[i].parameter].trainable;
    }
    return trains;
}

static weft_status record(weft_reference_run *self, weft_error *err) {
    weft_graph_spec spec = {.mode = WEFT_MODE_TRAIN,
                            .dtype = WEFT_F32,
                            .rows = self->rows,
                            .length = self->length,
                            .seed = SEED,
                            .kernels = self->kernels,
                            .device = self->device};
    for (int32_t s = 0; s < self->declared->n_segments; s++) {
        const weft_status status = weft_graph_record(&self->graphs[s], self->declared, s, &spec, err);
        if (status != WEFT_OK) return status;
        spec.carry_gradient = note_reads(self, s) || spec.carry_gradient;
    }
    return WEFT_OK;
}

/* Plans gradient writes from the last segment to the first; further writes of a gradient accumulate. */
static void plan(weft_reference_run *self) {
    bool *is_written = weft_alloc(self->declared->n_parameters, sizeof *is_written);
    for (int32_t s = self->declared->n_segments - 1; s >= 0; s--) {
        int32_t n = 0;
        weft_graph_read *reads = weft_graph_reads(self->graphs[s], &n);
        for (int32_t i = 0; i < n; i++) {
            reads[i].adds = is_written[reads[i].parameter];
            is_written[reads[i].parameter] = true;
        }
        weft_graph_plan(self->graphs[s]);
    }
    free(is_written);
}

static weft_status take_scratch(weft_reference_run *self, weft_slot_ref *out, int64_t bytes, weft_error *err) {
    const weft_status status = take(self, out, bytes, err);
    self->scratch[self->n_scratch++] = *out;
    return status;
}

enum { SCRATCH = 4 }; /* per segment: tape, scratch, carry, gradient of the carry */

static weft_status bind(weft_reference_run *self, int32_t s, weft_error *err) {
    const weft_graph_sizes *sizes = weft_graph_size(self->graphs[s]);
    const int64_t work = sizes->forward_work > sizes->backward_work ? sizes->forward_work : sizes->backward_work;
    const int64_t untaped = sizes->forward_work_untaped;
    weft_graph_binding *b = &self->bindings[s];
    weft_status status = take_scratch(self, &b->tape, sizes->tape, err);
    b->parameters = self->parameters;
    b->gradients = self->gradients;
    b->tables = self->tables;
    b->ids = self->micro_batch[0];
    b->targets = self->micro_batch[1];
    b->weights = self->micro_batch[2];
    b->starts = self->micro_batch[3];
    b->positions = self->micro_batch[4];
    b->loss = self->loss.ref;
    if (status == WEFT_OK) status = take_scratch(self, &b->work, untaped > work ? untaped : work, err);
    if (status == WEFT_OK) status = take_scratch(self, &b->carry_out, sizes->carry, err);
    if (status == WEFT_OK) status = take_scratch(self, &b->d_carry_out, sizes->carry, err);
    if (s > 0) b->carry_in = self->bindings[s - 1].carry_out;
    if (s > 0) b->d_carry_in = self->bindings[s - 1].d_carry_out;
    return status;
}

static weft_status bind_all(weft_reference_run *self, weft_error *err) {
    const int64_t first = 3; /* sequence number in the stream, for dropout */
    weft_slot_ref first_row;
    weft_status status = take(self, &self->loss, (int64_t)sizeof(double), err);
    if (status == WEFT_OK) status = take(self, &first_row, (int64_t)sizeof first, err);
    if (status == WEFT_OK) status = write_bytes(self, first_row.ref, &first, (int64_t)sizeof first, err);
    for (int32_t i = 0; i < PARTS && status == WEFT_OK; i++)
        status = take(self, &self->micro_batch[i], (int64_t)self->rows * self->length * WEFT_PLACE_BYTES, err);
    for (int32_t s = 0; s < self->declared->n_segments && status == WEFT_OK; s++) {
        self->bindings[s].first = first_row;
        status = bind(self, s, err);
    }
    return status;
}

/* ---- complete model ---- */

static void make_room(weft_reference_run *self) {
    const int32_t segments = self->declared->n_segments, parameters = self->declared->n_parameters;
    self->graphs = weft_alloc(segments, sizeof(weft_graph *));
    self->bindings = weft_alloc(segments, sizeof *self->bindings);
    self->scratch = weft_alloc(segments * SCRATCH, sizeof *self->scratch);
    self->parameters = weft_alloc(parameters, sizeof *self->parameters);
    self->gradients = weft_alloc(parameters, sizeof *self->gradients);
    self->values = weft_alloc(parameters, sizeof(float *));
    self->is_read = weft_alloc(parameters, sizeof *self->is_read);
    self->tables = weft_alloc(self->declared->n_tables, sizeof *self->tables);
}

static weft_status check_size(const weft_declared *declared, weft_error *err) {
    const int64_t n = weft_declared_numel(declared, false);
    if (n <= MOST_ELEMENTS) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "the model of this config.json has %lld weights. Allowed: at most %d. Fix: set --directory to a smaller model",
        (long long)n, MOST_ELEMENTS);
}

weft_status weft_reference_run_create(weft_reference_run **out, const weft_declared *declared,
                                      const weft_device_plugin *kernels, weft_device *device, double size,
                                      bool is_small, weft_error *err) {
    weft_status status = check_size(declared, err);
    weft_reference_run *self = NULL;
    *out = NULL;
    if (status != WEFT_OK) return status;
    *out = self = weft_alloc(1, sizeof *self);
    self->declared = declared;
    self->kernels = kernels;
    self->device = device;
    self->length = declared->info.max_context < WEFT_PLAY_LENGTH ? (int32_t)declared->info.max_context
                                                                 : WEFT_PLAY_LENGTH;
    self->rows = is_small ? 1 : WEFT_PLAY_ROWS;
    if (is_small) self->length = (self->length + 2) / 2;
    make_room(self);
    status = record(self, err);
    if (status == WEFT_OK) plan(self);
    if (status == WEFT_OK) status = fill_model(self, size, err);
    return status == WEFT_OK ? bind_all(self, err) : status;
}

void weft_reference_run_destroy(weft_reference_run *self) {
    if (self == NULL) return;
    for (int32_t s = 0; s < self->declared->n_segments; s++) weft_graph_destroy(self->graphs[s]);
    for (int32_t i = 0; i < self->declared->n_parameters; i++) free(self->values[i]);
    for (int32_t i = 0; i < self->n_buffers; i++) self->kernels->release(self->device, self->buffers[i]);
    free(self->buffers);
    free(self->tables);
    free(self->is_read);
    free((void *)self->values);
    free(self->gradients);
    free(self->parameters);
    free(self->scratch);
    free(self->bindings);
    free((void *)self->graphs);
    free(self);
}

/* ---- micro-batches ---- */

void weft_reference_run_draw(const weft_reference_run *self, int32_t number, weft_reference_micro_batch *out) {
    const int64_t vocabulary = self->declared->info.vocab_size;
    const uint64_t of = (uint64_t)1 << 32 | (uint64_t)number;
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < self->rows * self->length; i++) {
        const int32_t row = i / self->length, place = i % self->length;
        const int32_t cut = row == 0 ? self->length : (self->length + row) / 3 + row - 1;
        out->ids[i] = draw_id(self->declared, of, (uint64_t)i);
        out->targets[i] = draw_below(of, (uint64_t)(WEFT_PLAY_PLACES + i), vocabulary);
        out->weights[i] = (float)(0.75 + 0.25 * draw(of, (uint64_t)i));
        out->starts[i] = place >= cut ? cut : 0;
        out->positions[i] = place - out->starts[i];
    }
}

static weft_status write_micro_batch(const weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                     weft_error *err) {
    const void *const parts[PARTS] = {micro_batch->ids, micro_batch->targets, micro_batch->weights, micro_batch->starts,
                                      micro_batch->positions};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < PARTS && status == WEFT_OK; i++)
        status = write_bytes(self, self->micro_batch[i].ref, parts[i], self->micro_batch[i].bytes, err);
    return status;
}

/* ---- passes ---- */

static weft_status run_forward(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                               weft_error *err) {
    weft_status status = write_micro_batch(self, micro_batch, err);
    for (int32_t s = 0; s < self->declared->n_segments && status == WEFT_OK; s++)
        status = weft_graph_forward(self->graphs[s], &self->bindings[s], false, err);
    return status;
}

static weft_status read_loss(weft_reference_run *self, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, &self->loss_sum, self->loss.ref,
                     (int64_t)sizeof self->loss_sum);
    return status;
}

weft_status weft_reference_run_forward(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                       weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n_scratch && status == WEFT_OK; i++)
        status = fill_with_nan(self, &self->scratch[i], err);
    return status == WEFT_OK ? run_forward(self, micro_batch, err) : status;
}

weft_status weft_reference_run_backward(weft_reference_run *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->declared->n_parameters && status == WEFT_OK; i++)
        status = fill_with_nan(self, &self->gradients[i], err);
    for (int32_t s = 0; s < self->declared->n_segments && status == WEFT_OK; s++) {
        status = fill_with_nan(self, &self->bindings[s].work, err);
        if (status == WEFT_OK) status = fill_with_nan(self, &self->bindings[s].d_carry_out, err);
    }
    for (int32_t s = self->declared->n_segments - 1; s >= 0 && status == WEFT_OK; s--)
        if (weft_graph_size(self->graphs[s])->has_backward)
            status = weft_graph_backward(self->graphs[s], &self->bindings[s], err);
    return status == WEFT_OK ? read_loss(self, err) : status;
}

/* Runs the head's backward, because it computes the loss. */
weft_status weft_reference_run_loss(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                    double *out, weft_error *err) {
    const int32_t last = self->declared->n_segments - 1;
    weft_status status = run_forward(self, micro_batch, err);
    if (status == WEFT_OK) status = weft_graph_backward(self->graphs[last], &self->bindings[last], err);
    if (status == WEFT_OK) status = read_loss(self, err);
    *out = self->loss_sum;
    return status;
}

weft_status weft_reference_run_gradient(const weft_reference_run *self, int32_t parameter, float *out,
                                        weft_error *err) {
    const int64_t n = self->declared->parameters[parameter].numel;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, out, self->gradients[parameter].ref,
                     n * (int64_t)sizeof *out);
    return status;
}

const char *weft_reference_run_own_operator(const weft_reference_run *self) {
    for (int32_t s = 0; s < self->declared->n_segments; s++)
        for (int32_t i = 0; i < self->graphs[s]->n_nodes; i++)
            if (self->graphs[s]->nodes[i].custom != NULL) return self->graphs[s]->nodes[i].custom->name;
    return NULL;
}
