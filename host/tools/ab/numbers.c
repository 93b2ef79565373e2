/* host/tools/ab/numbers.c: see numbers.h. */
#include "tools/ab/numbers.h"

#include "tools/ab/open_arms.h"
#include "base/sizes.h"
#include "base/words.h"
#include "plugin/enter.h"
#include "run/marks.h"
#include "run/values.h"

#include <stdlib.h>

enum { PIECE = 1 << 16 };

/* A leaf's gradient of a parameter. Under stages a tied one is formed in parts on several ranks: `parts` tells. */
typedef struct gradient_mark {
    uint64_t sum, parts;
} gradient_mark;

struct weft_ab_course {
    weft_ab_contest *contest;
    weft_ab_arm *arm; /* that is compared */
    int32_t n, leaves, parameters;
    bool keep, same_leaves;
    uint64_t *marks, *now;               /* [1 + WEFT_AB_COMPARED][n], [n] */
    double *losses;                      /* [WEFT_AB_COMPARED][leaves] */
    gradient_mark *gradients, *of_ranks; /* [WEFT_AB_COMPARED][leaves][parameters], [world][leaves][parameters] */
    unsigned char *staging;
    weft_value_sink sink;
};

/* ---- what is told while a step runs ---- */

static gradient_mark *own_marks(const weft_ab_course *self) {
    const size_t rank = (size_t)weft_platform_rank(self->contest->meeting.platform);
    return self->of_ranks + rank * (size_t)self->leaves * (size_t)self->parameters;
}

static weft_status note_gradient(void *context, int32_t leaf, int32_t parameter, weft_ref ref, weft_error *err) {
    weft_ab_course *self = context;
    const weft_engine *engine = self->arm->session->engine;
    const int64_t numel = engine->plan.declared->parameters[parameter].numel;
    gradient_mark *mark = &own_marks(self)[(size_t)leaf * (size_t)self->parameters + (size_t)parameter];
    weft_status status = WEFT_OK;
    *mark = (gradient_mark){0, 1};
    for (int64_t at = 0; at < numel && status == WEFT_OK; at += PIECE) {
        const int64_t n = numel - at < PIECE ? numel - at : PIECE;
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, self->staging,
                         weft_ref_at(ref, weft_f32_bytes(at)), weft_f32_bytes(n));
        if (status == WEFT_OK) mark->sum += weft_mark_of(self->staging, weft_f32_bytes(1), n, at);
    }
    return status;
}

/* ---- what has parted ---- */

static const char *unit_of(const weft_ab_course *self, int32_t parameter) {
    const weft_plan *plan = &self->contest->arms[0].session->engine->plan;
    return plan->layout->units[plan->declared->parameters[parameter].unit].name;
}

static const char *name_of(const weft_ab_course *self, int32_t parameter) {
    return self->contest->arms[0].session->engine->plan.declared->parameters[parameter].name;
}

static void part_with_loss(weft_ab_course *self, int32_t step, int32_t leaf) {
    weft_ab_numbers *numbers = &self->arm->numbers;
    numbers->step = step;
    numbers->leaf = leaf;
    (void)snprintf(numbers->what, sizeof numbers->what, "its loss");
}

static void part_with_gradient(weft_ab_course *self, int32_t step, int32_t leaf, int32_t parameter) {
    weft_ab_numbers *numbers = &self->arm->numbers;
    numbers->step = step;
    numbers->leaf = leaf;
    (void)snprintf(numbers->unit, sizeof numbers->unit, "%s", unit_of(self, parameter));
    (void)snprintf(numbers->what, sizeof numbers->what, "the gradient of %s", name_of(self, parameter));
}

static void part_with_mark(weft_ab_course *self, int32_t step, int32_t mark) {
    const weft_plan *plan = &self->contest->arms[0].session->engine->plan;
    weft_ab_numbers *numbers = &self->arm->numbers;
    const int32_t parameter = mark % self->parameters;
    numbers->step = step;
    (void)snprintf(numbers->unit, sizeof numbers->unit, "%s", unit_of(self, parameter));
    *numbers->what = '\0';
    if (mark >= self->parameters)
        weft_words_append(numbers->what, sizeof numbers->what, "%s of ",
                          plan->states[mark / self->parameters - 1].name);
    weft_words_append(numbers->what, sizeof numbers->what, "%s", name_of(self, parameter));
    if (step > 0 && self->same_leaves)
        weft_words_append(numbers->what, sizeof numbers->what, ", after equal gradients of all leaves");
}

/* ---- a step ---- */

/* One mark of all ranks'; rank 0's. A leaf's gradient is formed on one rank, or in parts. */
static weft_status bring_gradients(weft_ab_course *self, weft_error *err) {
    const size_t n = (size_t)self->leaves * (size_t)self->parameters;
    const int32_t world = weft_platform_size(self->contest->meeting.platform);
    weft_status status = WEFT_OK;
    if (world == 1) return WEFT_OK;
    status =
        weft_peers_bring(&self->contest->meeting.peers, self->of_ranks, (int64_t)(n * sizeof *self->of_ranks), err);
    if (status != WEFT_OK || weft_platform_rank(self->contest->meeting.platform) != 0) return status;
    for (int32_t rank = 1; rank < world; rank++)
        for (size_t i = 0; i < n; i++) {
            self->of_ranks[i].sum += self->of_ranks[(size_t)rank * n + i].sum;
            self->of_ranks[i].parts += self->of_ranks[(size_t)rank * n + i].parts;
        }
    return WEFT_OK;
}

/* Rank 0's: a leaf's loss, then its gradients as backward forms them. */
static void compare_leaves(weft_ab_course *self, int32_t step) {
    const size_t n = (size_t)self->leaves * (size_t)self->parameters;
    double *losses = self->losses + (size_t)(step - 1) * (size_t)self->leaves;
    gradient_mark *then = self->gradients + (size_t)(step - 1) * n;
    for (int32_t m = 0; m < self->leaves; m++) {
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

static weft_status compare_marks(weft_ab_course *self, int32_t step, weft_error *err) {
    uint64_t *then = self->marks + (size_t)step * (size_t)self->n;
    weft_marks_odd odd;
    const weft_status status = weft_marks_take(self->now, &odd, self->arm->session->engine, err);
    if (status != WEFT_OK) return status;
    if (self->keep) memcpy(then, self->now, (size_t)self->n * sizeof *then);
    for (int32_t i = 0; i < self->n && self->arm->numbers.step < 0; i++)
        if (then[i] != self->now[i]) part_with_mark(self, step, i);
    return WEFT_OK;
}

weft_status weft_ab_course_begin(weft_ab_course *self, int32_t i, weft_error *err) {
    weft_ab_arm *first = &self->contest->arms[0], *arm = &self->contest->arms[i];
    const weft_plan_spec *a = &first->session->engine->plan.spec, *b = &arm->session->engine->plan.spec;
    self->arm = arm;
    self->keep = i == 0;
    arm->numbers = (weft_ab_numbers){.comparable = weft_ab_alike(first->session, arm->session), .step = -1, .leaf = -1};
    self->same_leaves = a->leaves == b->leaves && a->rows == b->rows && weft_ab_same_batches(self->contest, i);
    if (!arm->numbers.comparable) return WEFT_OK;
    if (self->same_leaves) arm->session->stepper->values = &self->sink;
    return compare_marks(self, 0, err);
}

weft_status weft_ab_course_step(weft_ab_course *self, int32_t step, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!self->arm->numbers.comparable) return WEFT_OK;
    if (self->same_leaves) {
        status = bring_gradients(self, err);
        if (status == WEFT_OK && weft_platform_rank(self->contest->meeting.platform) == 0) compare_leaves(self, step);
        memset(own_marks(self), 0, (size_t)self->leaves * (size_t)self->parameters * sizeof *self->of_ranks);
    }
    return status == WEFT_OK ? compare_marks(self, step, err) : status;
}

void weft_ab_course_end(weft_ab_course *self) {
    self->arm->session->stepper->values = NULL;
}

/* ---- its memory ---- */

weft_status weft_ab_course_create(weft_ab_course **out, weft_ab_contest *contest, weft_error *err) {
    const weft_engine *engine = contest->arms[0].session->engine;
    const size_t world = (size_t)weft_platform_size(contest->meeting.platform);
    weft_ab_course *self = calloc(1, sizeof *self);
    size_t n = 0;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to compare numbers");
    *out = self;
    self->contest = contest;
    self->n = weft_marks_count(engine);
    self->parameters = engine->plan.declared->n_parameters;
    self->leaves = engine->plan.spec.leaves;
    self->sink = (weft_value_sink){.context = self, .gradient = note_gradient};
    n = (size_t)self->leaves * (size_t)self->parameters;
    self->marks = calloc((size_t)(1 + WEFT_AB_COMPARED) * (size_t)self->n + 1, sizeof *self->marks);
    self->now = calloc((size_t)self->n + 1, sizeof *self->now);
    self->losses = calloc((size_t)WEFT_AB_COMPARED * (size_t)self->leaves, sizeof *self->losses);
    self->gradients = calloc(WEFT_AB_COMPARED * n, sizeof *self->gradients);
    self->of_ranks = calloc(world * n, sizeof *self->of_ranks);
    self->staging = malloc((size_t)weft_f32_bytes(PIECE));
    if (self->marks != NULL && self->now != NULL && self->losses != NULL && self->gradients != NULL &&
        self->of_ranks != NULL && self->staging != NULL)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the marks of %zu gradients", world * n);
}

void weft_ab_course_destroy(weft_ab_course *self) {
    if (self == NULL) return;
    free(self->marks);
    free(self->now);
    free(self->losses);
    free(self->gradients);
    free(self->of_ranks);
    free(self->staging);
    free(self);
}
