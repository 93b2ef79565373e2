/* host/tools/ab/numbers.c: see numbers.h. */
#include "tools/ab/numbers.h"

#include "tools/ab/open_arms.h"
#include "base/sizes.h"
#include "base/words.h"
#include "plugin/enter.h"
#include "run/checksums.h"
#include "run/values.h"

#include <stdlib.h>

enum { PIECE = 1 << 16 };

/* A micro-batch's gradient of a parameter. Under stages a tied one is formed in parts on several ranks: `parts`
 * tells. */
typedef struct gradient_checksum {
    uint64_t sum, parts;
} gradient_checksum;

struct weft_ab_bits {
    weft_ab_experiment *experiment;
    weft_ab_arm *arm; /* that is compared */
    int32_t n, micro_batches, parameters;
    bool keep, same_micro_batches;
    uint64_t *checksums, *now; /* [1 + WEFT_AB_COMPARED][n], [n] */
    double *losses;            /* [WEFT_AB_COMPARED][micro-batches] */
    /* [WEFT_AB_COMPARED][micro-batches][parameters], [world][micro-batches][parameters] */
    gradient_checksum *gradients, *of_ranks;
    unsigned char *staging;
    weft_value_sink sink;
};

/* ---- what is told while a step runs ---- */

static gradient_checksum *own_checksums(const weft_ab_bits *self) {
    const size_t rank = (size_t)weft_process_context_rank(self->experiment->meeting.process_context);
    return self->of_ranks + rank * (size_t)self->micro_batches * (size_t)self->parameters;
}

static weft_status note_gradient(void *context, int32_t micro_batch, int32_t parameter, weft_ref ref, weft_error *err) {
    weft_ab_bits *self = context;
    const weft_engine *engine = self->arm->session->engine;
    const int64_t numel = engine->plan.declared->parameters[parameter].numel;
    gradient_checksum *checksum =
        &own_checksums(self)[(size_t)micro_batch * (size_t)self->parameters + (size_t)parameter];
    weft_status status = WEFT_OK;
    *checksum = (gradient_checksum){0, 1};
    for (int64_t at = 0; at < numel && status == WEFT_OK; at += PIECE) {
        const int64_t n = numel - at < PIECE ? numel - at : PIECE;
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, self->staging,
                         weft_ref_at(ref, weft_f32_bytes(at)), weft_f32_bytes(n));
        if (status == WEFT_OK) checksum->sum += weft_checksum_of(self->staging, weft_f32_bytes(1), n, at);
    }
    return status;
}

/* ---- what has parted ---- */

static const char *unit_of(const weft_ab_bits *self, int32_t parameter) {
    const weft_plan *plan = &self->experiment->arms[0].session->engine->plan;
    return plan->layout->units[plan->declared->parameters[parameter].unit].name;
}

static const char *name_of(const weft_ab_bits *self, int32_t parameter) {
    return self->experiment->arms[0].session->engine->plan.declared->parameters[parameter].name;
}

static void part_with_loss(weft_ab_bits *self, int32_t step, int32_t micro_batch) {
    weft_ab_numbers *numbers = &self->arm->numbers;
    numbers->step = step;
    numbers->micro_batch = micro_batch;
    (void)snprintf(numbers->what, sizeof numbers->what, "its loss");
}

static void part_with_gradient(weft_ab_bits *self, int32_t step, int32_t micro_batch, int32_t parameter) {
    weft_ab_numbers *numbers = &self->arm->numbers;
    numbers->step = step;
    numbers->micro_batch = micro_batch;
    (void)snprintf(numbers->unit, sizeof numbers->unit, "%s", unit_of(self, parameter));
    (void)snprintf(numbers->what, sizeof numbers->what, "the gradient of %s", name_of(self, parameter));
}

static void part_with_checksum(weft_ab_bits *self, int32_t step, int32_t checksum) {
    const weft_plan *plan = &self->experiment->arms[0].session->engine->plan;
    weft_ab_numbers *numbers = &self->arm->numbers;
    const int32_t parameter = checksum % self->parameters;
    numbers->step = step;
    (void)snprintf(numbers->unit, sizeof numbers->unit, "%s", unit_of(self, parameter));
    *numbers->what = '\0';
    if (checksum >= self->parameters)
        weft_words_append(numbers->what, sizeof numbers->what, "%s of ",
                          plan->states[checksum / self->parameters - 1].name);
    weft_words_append(numbers->what, sizeof numbers->what, "%s", name_of(self, parameter));
    if (step > 0 && self->same_micro_batches)
        weft_words_append(numbers->what, sizeof numbers->what, ", after equal gradients of all micro-batches");
}

/* ---- a step ---- */

/* One checksum of all ranks'; rank 0's. A micro-batch's gradient is formed on one rank, or in parts. */
static weft_status bring_gradients(weft_ab_bits *self, weft_error *err) {
    const size_t n = (size_t)self->micro_batches * (size_t)self->parameters;
    const int32_t world = weft_process_context_size(self->experiment->meeting.process_context);
    weft_status status = WEFT_OK;
    if (world == 1) return WEFT_OK;
    status = weft_process_group_gather(&self->experiment->meeting.peers, self->of_ranks,
                                       (int64_t)(n * sizeof *self->of_ranks), err);
    if (status != WEFT_OK || weft_process_context_rank(self->experiment->meeting.process_context) != 0) return status;
    for (int32_t rank = 1; rank < world; rank++)
        for (size_t i = 0; i < n; i++) {
            self->of_ranks[i].sum += self->of_ranks[(size_t)rank * n + i].sum;
            self->of_ranks[i].parts += self->of_ranks[(size_t)rank * n + i].parts;
        }
    return WEFT_OK;
}

/* Rank 0's: a micro-batch's loss, then its gradients as backward forms them. */
static void compare_micro_batches(weft_ab_bits *self, int32_t step) {
    const size_t n = (size_t)self->micro_batches * (size_t)self->parameters;
    double *losses = self->losses + (size_t)(step - 1) * (size_t)self->micro_batches;
    gradient_checksum *then = self->gradients + (size_t)(step - 1) * n;
    for (int32_t m = 0; m < self->micro_batches; m++) {
        const double loss = weft_step_loss(self->arm->session->stepper, m);
        if (self->keep) losses[m] = loss;
        if (self->arm->numbers.step >= 0) continue;
        if (memcmp(&losses[m], &loss, sizeof loss) != 0) part_with_loss(self, step, m);
        for (int32_t p = self->parameters - 1; p >= 0 && self->arm->numbers.step < 0 && !self->keep; p--) {
            const size_t at = (size_t)m * (size_t)self->parameters + (size_t)p;
            if (then[at].parts == self->of_ranks[at].parts && then[at].sum != self->of_ranks[at].sum)
                part_with_gradient(self, step, m, p);
        }
    }
    if (self->keep) memcpy(then, self->of_ranks, n * sizeof *then);
}

static weft_status compare_checksums(weft_ab_bits *self, int32_t step, weft_error *err) {
    uint64_t *then = self->checksums + (size_t)step * (size_t)self->n;
    weft_checksums_odd odd;
    const weft_status status = weft_checksums_take(self->now, &odd, self->arm->session->engine, err);
    if (status != WEFT_OK) return status;
    if (self->keep) memcpy(then, self->now, (size_t)self->n * sizeof *then);
    for (int32_t i = 0; i < self->n && self->arm->numbers.step < 0; i++)
        if (then[i] != self->now[i]) part_with_checksum(self, step, i);
    return WEFT_OK;
}

weft_status weft_ab_bits_begin(weft_ab_bits *self, int32_t i, weft_error *err) {
    weft_ab_arm *first = &self->experiment->arms[0], *arm = &self->experiment->arms[i];
    const weft_plan_spec *a = &first->session->engine->plan.spec, *b = &arm->session->engine->plan.spec;
    self->arm = arm;
    self->keep = i == 0;
    arm->numbers =
        (weft_ab_numbers){.comparable = weft_ab_alike(first->session, arm->session), .step = -1, .micro_batch = -1};
    self->same_micro_batches = a->micro_batches == b->micro_batches && a->rows == b->rows &&
                               weft_ab_same_batches(self->experiment, i);
    if (!arm->numbers.comparable) return WEFT_OK;
    if (self->same_micro_batches) arm->session->stepper->values = &self->sink;
    return compare_checksums(self, 0, err);
}

weft_status weft_ab_bits_step(weft_ab_bits *self, int32_t step, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!self->arm->numbers.comparable) return WEFT_OK;
    if (self->same_micro_batches) {
        status = bring_gradients(self, err);
        if (status == WEFT_OK && weft_process_context_rank(self->experiment->meeting.process_context) == 0)
            compare_micro_batches(self, step);
        memset(own_checksums(self), 0, (size_t)self->micro_batches * (size_t)self->parameters * sizeof *self->of_ranks);
    }
    return status == WEFT_OK ? compare_checksums(self, step, err) : status;
}

void weft_ab_bits_end(weft_ab_bits *self) {
    self->arm->session->stepper->values = NULL;
}

/* ---- its memory ---- */

weft_status weft_ab_bits_create(weft_ab_bits **out, weft_ab_experiment *experiment, weft_error *err) {
    const weft_engine *engine = experiment->arms[0].session->engine;
    const size_t world = (size_t)weft_process_context_size(experiment->meeting.process_context);
    weft_ab_bits *self = calloc(1, sizeof *self);
    size_t n = 0;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to compare numbers");
    *out = self;
    self->experiment = experiment;
    self->n = weft_checksums_count(engine);
    self->parameters = engine->plan.declared->n_parameters;
    self->micro_batches = engine->plan.spec.micro_batches;
    self->sink = (weft_value_sink){.context = self, .gradient = note_gradient};
    n = (size_t)self->micro_batches * (size_t)self->parameters;
    self->checksums = calloc((size_t)(1 + WEFT_AB_COMPARED) * (size_t)self->n + 1, sizeof *self->checksums);
    self->now = calloc((size_t)self->n + 1, sizeof *self->now);
    self->losses = calloc((size_t)WEFT_AB_COMPARED * (size_t)self->micro_batches, sizeof *self->losses);
    self->gradients = calloc(WEFT_AB_COMPARED * n, sizeof *self->gradients);
    self->of_ranks = calloc(world * n, sizeof *self->of_ranks);
    self->staging = malloc((size_t)weft_f32_bytes(PIECE));
    if (self->checksums != NULL && self->now != NULL && self->losses != NULL && self->gradients != NULL &&
        self->of_ranks != NULL && self->staging != NULL)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the checksums of %zu gradients", world * n);
}

void weft_ab_bits_destroy(weft_ab_bits *self) {
    if (self == NULL) return;
    free(self->checksums);
    free(self->now);
    free(self->losses);
    free(self->gradients);
    free(self->of_ranks);
    free(self->staging);
    free(self);
}
