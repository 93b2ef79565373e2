/* host/tools/prove/verification_run.c: see verification_run.h. */
#include "tools/prove/verification_run.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/plan.h"
#include "tools/common/checksums.h"

#include <stdlib.h>

void weft_verification_run_create(weft_verification_run *out, const weft_session *session, int64_t steps) {
    out->n_checksums = weft_checksums_count(session->engine);
    out->checksums = weft_alloc((steps + 1) * out->n_checksums, sizeof *out->checksums);
    out->losses = weft_alloc(steps, sizeof *out->losses);
}

void weft_verification_run_free(weft_verification_run *self) {
    free(self->checksums);
    free(self->losses);
    memset(self, 0, sizeof *self);
}

const char **weft_verification_run_overrides(size_t *n, const weft_verification_run_spec *spec, const weft_cell *cell) {
    const char **all = weft_alloc(spec->n_overrides + WEFT_CELL_OVERRIDES, sizeof *all);
    *n = 0;
    for (size_t i = 0; i < spec->n_overrides; i++) all[(*n)++] = spec->overrides[i];
    for (int32_t i = 0; i < cell->keys.n; i++) all[(*n)++] = cell->keys.text[i];
    return all;
}

weft_status weft_verification_run_open(weft_session **out, const weft_verification_run_spec *spec,
                                       const weft_cell *cell, const weft_rank_span *rank_span, weft_error *err) {
    const weft_session_place place = {*rank_span, spec->plugin_lookup};
    size_t n = 0;
    const char **all = weft_verification_run_overrides(&n, spec, cell);
    const weft_status status = weft_session_open(out, spec->path, all, n, WEFT_SESSION_STEPS, &place, err);
    free((void *)all);
    return status;
}

typedef struct runner {
    weft_session *session;
    weft_verification_run *verification_run;
    bool keep;
    uint64_t *now; /* [n_checksums] */
    double *losses;
    weft_verification_run_end *out;
} runner;

static void note_difference(runner *self, int64_t step, int32_t checksum, int32_t copy) {
    if (self->out->step >= 0) return;
    self->out->step = (int32_t)step;
    self->out->checksum = checksum;
    self->out->copy = copy;
}

/* Compares the state after a step. A copy that differs from the other ranks' copies is always a difference. */
static weft_status compare_after_step(runner *self, int64_t step, weft_error *err) {
    const size_t n = (size_t)self->verification_run->n_checksums;
    uint64_t *then = self->verification_run->checksums + (size_t)step * n;
    weft_checksums_odd odd;
    size_t i = 0;
    const weft_status status = weft_checksums_take(self->now, &odd, self->session->engine, err);
    if (status != WEFT_OK) return status;
    if (self->keep) memcpy(then, self->now, n * sizeof *then);
    while (i < n && then[i] == self->now[i]) i++;
    if (i < n) note_difference(self, step, (int32_t)i, -1);
    if (odd.rank >= 0) note_difference(self, step, odd.checksum, odd.rank);
    if (step > 0 && self->keep) self->verification_run->losses[step - 1] = self->losses[step - 1];
    if (step > 0 && memcmp(&self->verification_run->losses[step - 1], &self->losses[step - 1], sizeof(double)) != 0)
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

void weft_verification_run_note(weft_cell *out, const weft_session *session) {
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

/* Checks that the programs equal those of the rank that compiled the cell for all. A cell is compiled as if it ran on
 * the first ranks; on the same number of nodes its programs do not depend on the actual ranks. */
static weft_status check_programs(const weft_session *session, const weft_cell *cell, const weft_rank_span *rank_span,
                                  weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    const int32_t part = weft_answers_part(&plan->answers, &cell->answers);
    char by[64];
    weft_status status = WEFT_OK;
    if (part == WEFT_N_ANSWERS ||
        weft_process_context_nodes(rank_span->process_context, rank_span->base, rank_span->world) !=
            weft_process_context_nodes(rank_span->process_context, 0, rank_span->world))
        return WEFT_OK;
    status = check_file(plugin_of(session, WEFT_PART_POLICY), cell->policy_file, cell->by, err);
    if (status == WEFT_OK)
        status = check_file(plugin_of(session, WEFT_PART_STRATEGY), cell->strategy_file, cell->by, err);
    if (status != WEFT_OK) return status;
    (void)snprintf(by, sizeof by, "on rank %d, which compiled the cell for all", (int)cell->by);
    return weft_answers_report_difference(plan, part, "on this rank", &plan->answers, by, &cell->answers, err);
}

weft_status weft_verification_run_run(weft_verification_run_end *out, double *losses,
                                      weft_verification_run *verification_run, bool keep,
                                      const weft_verification_run_spec *spec, const weft_cell *cell,
                                      const weft_rank_span *rank_span, weft_error *err) {
    const double begin = weft_clock_seconds();
    runner self = {.verification_run = verification_run, .keep = keep, .losses = losses, .out = out};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->step = out->checksum = out->copy = -1;
    self.now = weft_alloc(verification_run->n_checksums, sizeof *self.now);
    status = weft_verification_run_open(&self.session, spec, cell, rank_span, err);
    if (status == WEFT_OK) status = check_programs(self.session, cell, rank_span, err);
    if (status == WEFT_OK) status = train_steps(&self, spec->steps, err);
    out->seconds = weft_clock_seconds() - begin;
    weft_session_close(self.session);
    free(self.now);
    return status;
}
