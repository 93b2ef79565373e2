/* host/tools/prove/course.c: see course.h. */
#include "tools/prove/course.h"

#include "base/clock.h"
#include "run/checkpoint.h"
#include "program/answered.h"
#include "run/marks.h"

#include <stdlib.h>

weft_status weft_course_create(weft_course *out, const weft_session *session, int64_t steps, weft_error *err) {
    out->n_marks = weft_marks_count(session->engine);
    out->marks = calloc((size_t)(steps + 1) * (size_t)out->n_marks, sizeof *out->marks);
    out->losses = calloc((size_t)steps, sizeof *out->losses);
    if (out->marks != NULL && out->losses != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the marks of %d parameters over %lld steps",
                          (int)out->n_marks, (long long)steps);
}

void weft_course_free(weft_course *self) {
    free(self->marks);
    free(self->losses);
    memset(self, 0, sizeof *self);
}

weft_status weft_course_overrides(const char ***out, size_t *n, const weft_course_spec *spec, const weft_cell *cell,
                                  weft_error *err) {
    const char **all = malloc((spec->n_overrides + WEFT_CELL_OVERRIDES) * sizeof *all);
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the settings of a cell");
    *n = 0;
    for (size_t i = 0; i < spec->n_overrides; i++) all[(*n)++] = spec->overrides[i];
    for (int32_t i = 0; i < cell->keys.n; i++) all[(*n)++] = cell->keys.text[i];
    *out = all;
    return WEFT_OK;
}

weft_status weft_course_open(weft_session **out, const weft_course_spec *spec, const weft_cell *cell,
                             const weft_seat *seat, weft_error *err) {
    const weft_session_place place = {*seat, spec->lender};
    const char **all = NULL;
    size_t n = 0;
    weft_status status = weft_course_overrides(&all, &n, spec, cell, err);
    if (status == WEFT_OK) status = weft_session_open_at(out, spec->path, all, n, WEFT_SESSION_STEPS, &place, err);
    free((void *)all);
    return status;
}

typedef struct runner {
    weft_session *session;
    weft_course *course;
    bool keep;
    uint64_t *now; /* [n_marks] */
    double *losses;
    weft_course_end *out;
} runner;

static void note_difference(runner *self, int64_t step, int32_t mark, int32_t copy) {
    if (self->out->step >= 0) return;
    self->out->step = (int32_t)step;
    self->out->mark = mark;
    self->out->copy = copy;
}

/* What is so after a step. A copy that its peers do not have is a difference whatever the reference says. */
static weft_status compare_after_step(runner *self, int64_t step, weft_error *err) {
    const size_t n = (size_t)self->course->n_marks;
    uint64_t *then = self->course->marks + (size_t)step * n;
    weft_marks_odd odd;
    size_t i = 0;
    const weft_status status = weft_marks_take(self->now, &odd, self->session->engine, err);
    if (status != WEFT_OK) return status;
    if (self->keep) memcpy(then, self->now, n * sizeof *then);
    while (i < n && then[i] == self->now[i]) i++;
    if (i < n) note_difference(self, step, (int32_t)i, -1);
    if (odd.rank >= 0) note_difference(self, step, odd.mark, odd.rank);
    if (step > 0 && self->keep) self->course->losses[step - 1] = self->losses[step - 1];
    if (step > 0 && memcmp(&self->course->losses[step - 1], &self->losses[step - 1], sizeof(double)) != 0)
        note_difference(self, step, -1, -1);
    return WEFT_OK;
}

static weft_status one_step(runner *self, int64_t step, weft_error *err) {
    weft_session *session = self->session;
    weft_step_result result = {0};
    const weft_status status = weft_stepper_train(session->stepper, &result, (uint64_t)step,
                                                  weft_session_lr(session, step), session->clip, err);
    if (status != WEFT_OK) return status;
    self->losses[step - 1] = result.n_targets > 0 ? result.loss_sum / (double)result.n_targets : 0.0;
    return compare_after_step(self, step, err);
}

static weft_status train_steps(runner *self, int64_t steps, weft_error *err) {
    char first[65] = "", last[65] = "";
    weft_engine *engine = self->session->engine;
    weft_status status = weft_session_start(self->session, err);
    if (status == WEFT_OK) status = weft_engine_load(engine, err);
    if (status == WEFT_OK) status = weft_engine_hash(first, engine, err);
    if (status == WEFT_OK) status = compare_after_step(self, 0, err);
    for (int64_t step = 1; step <= steps && status == WEFT_OK; step++) status = one_step(self, step, err);
    if (status == WEFT_OK) status = weft_engine_hash(last, engine, err);
    self->out->trained = strcmp(first, last) != 0;
    (void)snprintf(self->out->hash, sizeof self->out->hash, "%s", last);
    return status;
}

static const weft_loaded *plugin_of(const weft_session *session, int32_t part) {
    return session->run->parts[part].loaded;
}

void weft_course_note(weft_cell *out, const weft_session *session) {
    (void)snprintf(out->policy_file, sizeof out->policy_file, "%s", plugin_of(session, WEFT_PART_POLICY)->sha256);
    (void)snprintf(out->strategy_file, sizeof out->strategy_file, "%s", plugin_of(session, WEFT_PART_STRATEGY)->sha256);
    out->answers = session->engine->plan.answers;
    out->identity = session->engine->plan.train.identity;
}

static weft_status check_file(const weft_loaded *mine, const char *theirs, int32_t by, weft_error *err) {
    if (strcmp(mine->sha256, theirs) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER,
                          "%s:%s (%s) is another file on this rank (sha256 %.12s...) than on rank %d, which compiled "
                          "the cell for all (sha256 %.12s...)",
                          mine->plugin->kind, mine->plugin->id, mine->path, mine->sha256, (int)by, theirs);
}

/* A cell was compiled by one rank for all, as if it ran on the first ranks: over as many machines the programs are the
 * same wherever it runs. */
static weft_status check_programs(const weft_session *session, const weft_cell *cell, const weft_seat *seat,
                                  weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    const int32_t part = weft_answers_part(&plan->answers, &cell->answers);
    char by[64];
    weft_status status = WEFT_OK;
    if (part == WEFT_N_ANSWERS || weft_platform_nodes(seat->platform, seat->base, seat->world) !=
                                      weft_platform_nodes(seat->platform, 0, seat->world))
        return WEFT_OK;
    status = check_file(plugin_of(session, WEFT_PART_POLICY), cell->policy_file, cell->by, err);
    if (status == WEFT_OK)
        status = check_file(plugin_of(session, WEFT_PART_STRATEGY), cell->strategy_file, cell->by, err);
    if (status != WEFT_OK) return status;
    (void)snprintf(by, sizeof by, "on rank %d, which compiled the cell for all", (int)cell->by);
    return weft_answers_blame(plan, part, "on this rank", &plan->answers, by, &cell->answers, err);
}

weft_status weft_course_run(weft_course_end *out, double *losses, weft_course *course, bool keep,
                            const weft_course_spec *spec, const weft_cell *cell, const weft_seat *seat,
                            weft_error *err) {
    const double begin = weft_clock_seconds();
    runner self = {.course = course, .keep = keep, .losses = losses, .out = out};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->step = out->mark = out->copy = -1;
    self.now = calloc((size_t)course->n_marks + 1, sizeof *self.now);
    if (self.now == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %d marks", (int)course->n_marks);
    status = weft_course_open(&self.session, spec, cell, seat, err);
    if (status == WEFT_OK) status = check_programs(self.session, cell, seat, err);
    if (status == WEFT_OK) status = train_steps(&self, spec->steps, err);
    out->seconds = weft_clock_seconds() - begin;
    weft_session_close(self.session);
    free(self.now);
    return status;
}
