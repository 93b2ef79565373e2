/* tests/common/graph_chain.c: connected segments: execution, and gradient checks with finite differences. See
 * graph_rig.h. */
#include "graph_rig.h"

#include "model/convert.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static bool reads_trained(const rig *r, weft_graph *graph) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(graph, &n);
    for (int32_t i = 0; i < n; i++)
        if (r->parameters[reads[i].parameter].trainable) return true;
    return false;
}

static void record(rig_chain *chain) {
    weft_error err = WEFT_ERROR_INIT;
    weft_graph_spec spec = {.mode = chain->mode,
                            .dtype = chain->r->dtype,
                            .rows = chain->r->rows,
                            .length = chain->r->length,
                            .seed = 77,
                            .carry_gradient = chain->first > 0 && chain->mode == WEFT_MODE_TRAIN,
                            .kernels = chain->r->kernels,
                            .device = chain->r->device};
    bool written[RIG_WEIGHTS] = {false};
    for (int32_t s = chain->first; s <= chain->last; s++) {
        rig_ok(weft_graph_record(&chain->runs[s].graph, &chain->r->declared, s, &spec, &err), &err);
        spec.carry_gradient = spec.carry_gradient || reads_trained(chain->r, chain->runs[s].graph);
    }
    for (int32_t s = chain->last; s >= chain->first; s--) {
        int32_t n = 0;
        weft_graph_read *reads = weft_graph_reads(chain->runs[s].graph, &n);
        for (int32_t i = 0; i < n; i++) {
            reads[i].adds = written[reads[i].parameter];
            written[reads[i].parameter] = true;
        }
        weft_graph_plan(chain->runs[s].graph);
        chain->runs[s].sizes = weft_graph_size(chain->runs[s].graph);
    }
}

static void bind(rig_chain *chain, int32_t s) {
    rig *r = chain->r;
    rig_run *run = &chain->runs[s];
    weft_graph_binding *b = &run->binding;
    const int64_t numbers = (int64_t)r->rows * r->length * r->model->carry_width;
    const int64_t carry = (numbers * weft_dtype_bytes(r->dtype) + 3) / 4 * 4;
    const int64_t forward = run->sizes->forward_work, backward = run->sizes->backward_work;
    b->parameters = r->reads;
    b->gradients = r->gradients;
    b->tables = r->tables;
    b->ids = r->ids;
    b->targets = r->targets;
    b->weights = r->weights_of_targets;
    b->starts = r->starts;
    b->positions = r->positions;
    b->first = r->first;
    b->tape = rig_slot(r, run->sizes->tape);
    b->work = rig_slot(r, forward > backward ? forward : backward);
    b->loss = chain->loss.ref;
    if (s > 0) b->carry_in = s == chain->first ? rig_slot(r, carry) : chain->runs[s - 1].binding.carry_out;
    if (s > 0) b->d_carry_in = rig_slot(r, carry);
    b->carry_out = rig_slot(r, run->sizes->carry);
    if (s == chain->last) b->d_carry_out = rig_slot(r, run->sizes->carry);
    if (s > chain->first) chain->runs[s - 1].binding.d_carry_out = b->d_carry_in;
}

/* Fills a slot with random numbers of this magnitude. Returns them in fp32, as stored. */
static float *fill_end(rig *r, weft_slot_ref slot, int64_t n, double size) {
    float *values = calloc((size_t)n + 1, sizeof *values);
    void *stored = calloc((size_t)n + 1, sizeof *values);
    ck_assert(values != NULL && stored != NULL);
    for (int64_t i = 0; i < n; i++) values[i] = (float)(size * rig_uniform(r));
    ck_assert(weft_convert(stored, r->dtype, values, WEFT_F32, n));
    ck_assert(weft_convert(values, WEFT_F32, stored, r->dtype, n));
    if (slot.ref.buffer != NULL) rig_write(r, slot.ref, stored, n * weft_dtype_bytes(r->dtype));
    free(stored);
    return values;
}

static void fill_ends(rig_chain *chain) {
    rig *r = chain->r;
    const weft_slot_ref below = chain->runs[chain->first].binding.carry_in,
                        above = chain->runs[chain->last].binding.d_carry_out;
    const int64_t n = (int64_t)r->rows * r->length * r->model->carry_width;
    free(fill_end(r, below, n, 1.5));
    chain->above = fill_end(r, above, n, 1.0);
    chain->n_above = above.ref.buffer != NULL ? n : 0;
}

void rig_chain_open(rig_chain *chain, rig *r, int32_t mode, int32_t first, int32_t last) {
    memset(chain, 0, sizeof *chain);
    chain->r = r;
    chain->mode = mode;
    chain->first = first;
    chain->last = last;
    chain->loss = rig_slot(r, 8);
    record(chain);
    for (int32_t s = first; s <= last; s++) bind(chain, s);
    fill_ends(chain);
}

void rig_chain_close(rig_chain *chain) {
    for (int32_t s = chain->first; s <= chain->last; s++) weft_graph_destroy(chain->runs[s].graph);
    free(chain->above);
}

void rig_chain_forward(const rig_chain *chain) {
    weft_error err = WEFT_ERROR_INIT;
    for (int32_t s = chain->first; s <= chain->last; s++)
        rig_ok(weft_graph_forward(chain->runs[s].graph, &chain->runs[s].binding, false, &err), &err);
}

void rig_chain_backward(const rig_chain *chain) {
    weft_error err = WEFT_ERROR_INIT;
    for (int32_t s = chain->last; s >= chain->first; s--)
        if (chain->runs[s].sizes->has_backward)
            rig_ok(weft_graph_backward(chain->runs[s].graph, &chain->runs[s].binding, &err), &err);
}

double rig_chain_objective(const rig_chain *chain) {
    const rig_run *top = &chain->runs[chain->last];
    double sum = 0.0;
    rig_chain_forward(chain);
    if (top->sizes->carry == 0) {
        if (chain->mode == WEFT_MODE_TRAIN) rig_chain_backward(chain);
        rig_read(chain->r, &sum, chain->loss.ref, 8);
    } else {
        float *carry = rig_numbers(chain->r, top->binding.carry_out.ref, chain->n_above);
        for (int64_t i = 0; i < chain->n_above; i++) sum += (double)carry[i] * (double)chain->above[i];
        free(carry);
    }
    return sum;
}

typedef struct tensor {
    const char *name;
    weft_ref values;
    float *gradient; /* result of backward */
    int64_t n;
} tensor;

/* Returns the objective with `values` moved by `step` along the unit vector `direction`. Adds the change predicted by
 * the gradient, for the move as rounded, to *slope. */
static double moved(const rig_chain *chain, const tensor *t, const float *from, const double *direction, double step,
                    double *slope) {
    float *to = calloc((size_t)t->n + 1, sizeof *to);
    double objective = 0.0;
    ck_assert_ptr_nonnull(to);
    for (int64_t i = 0; i < t->n; i++) {
        to[i] = (float)((double)from[i] + step * direction[i]);
        *slope += ((double)to[i] - (double)from[i]) * (double)t->gradient[i] * (step > 0.0 ? 1.0 : -1.0);
    }
    rig_write(chain->r, t->values, to, t->n * 4);
    objective = rig_chain_objective(chain);
    rig_write(chain->r, t->values, from, t->n * 4);
    free(to);
    return objective;
}

static double norm(const float *values, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* Richardson extrapolation of two central differences; the remaining error is rounding. */
static void check_along(const rig_chain *chain, const tensor *t, const float *from, const double *direction,
                        const char *what) {
    const double wide = 0.04, size = norm(t->gradient, t->n);
    double error[2] = {0.0, 0.0};
    for (int i = 0; i < 2; i++) {
        const double step = i == 0 ? wide : wide / 2.0;
        double slope = 0.0;
        const double up = moved(chain, t, from, direction, step, &slope);
        const double down = moved(chain, t, from, direction, -step, &slope);
        error[i] = (up - down - slope) / (2.0 * step);
    }
    error[0] = fabs(4.0 * error[1] - error[0]) / 3.0;
    ck_assert_msg(error[0] <= 1e-3 * size + 1e-5,
                  "%s, %s, along %s: the difference is off by %g; the gradient's norm is %g", chain->r->model->name,
                  t->name, what, error[0], size);
}

static void random_direction(rig *r, double *out, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = rig_uniform(r);
        sum += out[i] * out[i];
    }
    for (int64_t i = 0; i < n; i++) out[i] /= sqrt(sum);
}

static void check_tensor(const rig_chain *chain, const tensor *t) {
    float *from = rig_floats(chain->r, t->values, t->n);
    double *direction = calloc((size_t)t->n + 1, sizeof *direction);
    const double size = norm(t->gradient, t->n);
    ck_assert_ptr_nonnull(direction);
    ck_assert_msg(isfinite(size), "%s, %s: the gradient is not finite", chain->r->model->name, t->name);
    for (int64_t i = 0; i < t->n && size > 0.0; i++) direction[i] = (double)t->gradient[i] / size;
    check_along(chain, t, from, direction, "the gradient");
    for (int i = 0; i < 3; i++) {
        random_direction(chain->r, direction, t->n);
        check_along(chain, t, from, direction, "a random direction");
    }
    free(from);
    free(direction);
}

bool rig_chain_reads(const rig_chain *chain, int32_t parameter) {
    for (int32_t s = chain->first; s <= chain->last; s++) {
        int32_t n = 0;
        const weft_graph_read *reads = weft_graph_reads(chain->runs[s].graph, &n);
        for (int32_t i = 0; i < n; i++)
            if (reads[i].parameter == parameter) return true;
    }
    return false;
}

/* Checks that the incoming gradient was not modified. */
static void check_above(const rig_chain *chain) {
    float *now = NULL;
    if (chain->n_above == 0) return;
    now = rig_numbers(chain->r, chain->runs[chain->last].binding.d_carry_out.ref, chain->n_above);
    ck_assert_msg(memcmp(now, chain->above, (size_t)chain->n_above * sizeof *now) == 0,
                  "%s: backward wrote onto the gradient from above", chain->r->model->name);
    free(now);
}

void rig_chain_check_gradients(const rig_chain *chain) {
    const rig *r = chain->r;
    const weft_graph_binding *bottom = &chain->runs[chain->first].binding;
    tensor tensors[RIG_WEIGHTS + 1] = {{0}};
    int n = 0;
    rig_chain_forward(chain);
    rig_chain_backward(chain);
    check_above(chain);
    for (int32_t i = 0; i < r->declared.n_parameters; i++) {
        const weft_parameter *p = &r->parameters[i];
        const tensor t = {p->name, r->values[i], NULL, p->numel};
        if (!p->trainable || !rig_chain_reads(chain, i)) continue;
        tensors[n] = t;
        tensors[n++].gradient = rig_floats(r, r->gradients[i].ref, p->numel);
    }
    if (chain->first > 0) {
        const tensor t = {"carry", bottom->carry_in.ref, NULL, bottom->carry_in.bytes / 4};
        tensors[n] = t;
        tensors[n++].gradient = rig_floats(r, bottom->d_carry_in.ref, t.n);
    }
    for (int i = 0; i < n; i++) check_tensor(chain, &tensors[i]);
    for (int i = 0; i < n; i++) free(tensors[i].gradient);
}
