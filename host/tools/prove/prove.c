/* host/tools/prove/prove.c: see prove.h. */
#include "tools/prove/prove.h"

#include "tools/common/messages.h"

#include "base/clock.h"
#include "base/words.h"
#include "tools/prove/cell_memory.h"
#include "run/checksums.h"
#include "tools/prove/spec.h"
#include "run/coherence.h"
#include "run/facts.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- what the ranks share ---- */

/* One rank's rank span for a cell that is only compiled, or that every rank runs by itself. */
static weft_rank_span rank_span_of(const weft_proof *self, int32_t base, int32_t world) {
    const int32_t rank = weft_process_context_rank(self->meeting.process_context);
    const weft_rank_span rank_span = {self->meeting.process_context, base,
                                      rank >= base && rank < base + world ? rank - base : 0, world};
    return rank_span;
}

/* A session whose text and data all cells use; it takes no memory of the device. */
static weft_status open_plugin_lookup(weft_proof *self, const weft_prove_options *options, weft_error *err) {
    weft_cell single = {.ranks = 1};
    const weft_rank_span rank_span = rank_span_of(self, weft_process_context_rank(self->meeting.process_context), 1);
    weft_status status = WEFT_OK;
    weft_grid_say(&single.keys, "!strategy");
    weft_grid_say(&single.keys, "strategy.plugin=single");
    status = weft_verification_run_open(&self->plugin_lookup, &self->spec, &single, &rank_span, err);
    status = weft_coherence_data(&self->meeting.peers,
                                 status == WEFT_OK ? self->plugin_lookup->engine->plan.declared : NULL,
                                 status == WEFT_OK ? self->plugin_lookup->data_info.fingerprint : 0, status, err);
    status = weft_coherence_weights(&self->meeting.peers, self->meeting.run, status, err);
    if (status == WEFT_OK)
        status = weft_coherence_answers(&self->meeting.peers, self->plugin_lookup->engine, status, err);
    if (status != WEFT_OK) return status;
    self->spec.plugin_lookup = self->plugin_lookup;
    self->spec.steps = options->steps > 0 ? options->steps : WEFT_PROVE_STEPS;
    if (options->steps > self->plugin_lookup->steps)
        weft_omitted_say(&self->omitted, "steps %lld to %lld: the run has %lld of them",
                         (long long)self->plugin_lookup->steps + 1, (long long)options->steps,
                         (long long)self->plugin_lookup->steps);
    if (self->spec.steps > self->plugin_lookup->steps) self->spec.steps = self->plugin_lookup->steps;
    if (options->any_room) return WEFT_OK;
    return weft_cell_memory_find(&self->room, &self->meeting, self->plugin_lookup, options->room, err);
}

/* ---- the grid ---- */

/* *out: room for what is known of a cell once it is compiled. */
static weft_status compile_cell(weft_cell *out, const weft_proof *self, const weft_cell *cell, weft_error *err) {
    const weft_rank_span rank_span = {self->meeting.process_context, 0, 0, cell->ranks};
    weft_session *session = NULL;
    char text[400];
    weft_status status = weft_verification_run_open(&session, &self->spec, cell, &rank_span, err);
    *out = *cell;
    if (status == WEFT_OK) {
        const weft_mode_plan *mode_plan = &session->engine->plan.train;
        weft_verification_run_note(out, session);
        out->by = weft_process_context_rank(self->meeting.process_context);
        out->replicas = mode_plan->job->spec.view.replicas;
        out->micro_batches = mode_plan->job->spec.view.micro_batches;
        out->coverage = mode_plan->coverage;
        if (self->room.bytes > 0)
            status = weft_required_memory_plan(&out->need, &session->engine->plan, &self->room, err);
    }
    weft_session_close(session);
    if (status == WEFT_OK) return WEFT_OK;
    if (cell->is_own && (status == WEFT_E_USER || status == WEFT_E_UNSUPPORTED)) {
        (void)snprintf(out->refused, sizeof out->refused, "%.399s", err->text);
        weft_words_tame(out->refused);
        err->text[0] = '\0';
        return WEFT_OK;
    }
    weft_cell_describe(text, sizeof text, cell);
    return weft_error_prefix(err, "%s: ", text);
}

/* The configuration's own strategy may refuse a number of ranks, such as one that does not divide the micro-batches of
 * a step. It has to take one cell at least. */
static weft_status omit_refused(weft_proof *self, weft_error *err) {
    const int32_t all = self->grid.n;
    char ranks[160];
    bool is_whole = false;
    weft_cell *first = calloc(1, sizeof *first);
    weft_status status = WEFT_OK;
    int32_t n;
    if (first == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a cell");
    n = weft_grid_drop_refused(&self->grid, ranks, first, &is_whole);
    if (n > 0 && is_whole)
        status = weft_error_set(err, WEFT_E_USER,
                                "strategy %s refuses each of its %d cells, on %s ranks, so that nothing of it is "
                                "proved. The first reason: %s",
                                first->strategy, (int)n, ranks, first->refused);
    else if (n > 0)
        weft_omitted_say(&self->omitted, "%d of %d cells, strategy %s on %s ranks: %s", (int)n, (int)all,
                         first->strategy, ranks, first->refused);
    free(first);
    return status;
}

/* The ranks share the work: cell i is compiled by rank i % size. */
static weft_status compile_all(weft_proof *self, weft_error *err) {
    const int32_t size = weft_process_context_size(self->meeting.process_context),
                  rank = weft_process_context_rank(self->meeting.process_context);
    const int32_t rows = (self->grid.n + size - 1) / size;
    weft_cell *mine = calloc((size_t)rows + 1, sizeof *mine);
    weft_cell *all = calloc((size_t)(rows * size) + 1, sizeof *all);
    weft_status status = WEFT_OK;
    if (mine == NULL || all == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the cells");
    for (int32_t i = rank; i < self->grid.n && status == WEFT_OK; i += size)
        status = compile_cell(&mine[i / size], self, &self->grid.cells[i], err);
    status = weft_process_group_agree(&self->meeting.peers, status, err);
    if (status == WEFT_OK) status = weft_meeting_share(&self->meeting, all, mine, rows * (int64_t)sizeof *mine, err);
    for (int32_t i = 0; i < self->grid.n && status == WEFT_OK; i++)
        self->grid.cells[i] = all[i % size * rows + i / size];
    free(mine);
    free(all);
    return status;
}

static int32_t count_cells(const weft_grid *grid, const char *strategy, int32_t end) {
    int32_t n = 0;
    for (int32_t i = 0; i < end; i++) n += strcmp(grid->cells[i].strategy, strategy) == 0;
    return n;
}

/* A machine may lack a plugin that another one has. */
static weft_status compare_grids(const weft_proof *self, weft_status status, weft_error *err) {
    const weft_grid *grid = &self->grid;
    weft_facts facts = {0};
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    for (int32_t i = 0; i < grid->n && status == WEFT_OK; i++) {
        char name[96];
        (void)snprintf(name, sizeof name, "cells of %.64s", grid->cells[i].strategy);
        if (count_cells(grid, grid->cells[i].strategy, i) == 0)
            weft_facts_add(&facts, name, "%d", (int)count_cells(grid, grid->cells[i].strategy, grid->n));
    }
    status = weft_process_group_agree(&self->meeting.peers, status, err);
    if (status == WEFT_OK)
        status = weft_facts_compare(&facts, &self->meeting.peers, "their strategies or policies", err);
    weft_facts_drop(&facts);
    return status;
}

static weft_status make_grid(weft_proof *self, const weft_prove_options *options, weft_error *err) {
    weft_grid_spec *spec = calloc(1, sizeof *spec);
    weft_status status = WEFT_OK;
    if (spec == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the grid");
    if (status == WEFT_OK) {
        weft_prove_spec(spec, self->missing, sizeof self->missing, self->meeting.run, self->plugin_lookup,
                        weft_process_context_size(self->meeting.process_context));
        weft_omitted_find(&self->omitted, spec, self->missing, options->alone,
                          self->meeting.run->settings.train.micro_batch);
        status = weft_grid_create(&self->grid, spec, err);
    }
    (void)snprintf(self->reduce, sizeof self->reduce, "%s", weft_prove_reduce(self->meeting.run));
    status = compare_grids(self, status, err);
    if (status == WEFT_OK) status = compile_all(self, err);
    if (status == WEFT_OK) status = omit_refused(self, err);
    if (status != WEFT_OK) goto done;
    self->left_out = weft_grid_drop_twins(&self->grid);
    if (!options->full) status = weft_process_group_agree(&self->meeting.peers, weft_grid_cover(&self->grid, err), err);
    if (status == WEFT_OK && self->room.bytes > 0)
        status = weft_cell_memory_judge(&self->grid, &self->spec, &self->room, &self->meeting, err);
done:
    free(spec);
    return status;
}

/* ---- the cells ---- */

static weft_status run_cell(weft_proof *self, weft_verification_run_end *end, double *losses, int32_t cell,
                            int32_t base, weft_error *err) {
    const weft_rank_span rank_span = rank_span_of(self, base, self->grid.cells[cell].ranks);
    char text[400];
    const weft_status status = weft_verification_run_run(end, losses, &self->verification_run, cell == 0, &self->spec,
                                                         &self->grid.cells[cell], &rank_span, err);
    end->cell = cell;
    if (status == WEFT_OK) return WEFT_OK;
    weft_cell_describe(text, sizeof text, &self->grid.cells[cell]);
    return weft_error_prefix(err, "%s: ", text);
}

/* Brings what ranks have ended to all. mine: an end and its losses; the lowest rank of a cell speaks for it. */
static weft_status share_ends(weft_proof *self, const char *mine, weft_error *err) {
    const size_t losses = (size_t)self->spec.steps * sizeof(double), bytes = sizeof(weft_verification_run_end) + losses;
    const int32_t size = weft_process_context_size(self->meeting.process_context);
    char *all = malloc(bytes * (size_t)size);
    weft_status status = WEFT_OK;
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what cells came to");
    status = weft_meeting_share(&self->meeting, all, mine, (int64_t)bytes, err);
    for (int32_t rank = 0; rank < size && status == WEFT_OK; rank++) {
        weft_verification_run_end end;
        memcpy(&end, all + bytes * (size_t)rank, sizeof end);
        if (end.cell < 0) continue;
        self->ends[end.cell] = end;
        memcpy(self->losses + (size_t)end.cell * (size_t)self->spec.steps, all + bytes * (size_t)rank + sizeof end,
               losses);
    }
    free(all);
    return status;
}

/* Every rank by itself, so that each has what to compare with; and all must come to the same. */
static weft_status run_reference(weft_proof *self, weft_error *err) {
    const int32_t size = weft_process_context_size(self->meeting.process_context);
    char(*hashes)[72] = calloc((size_t)size, sizeof *hashes);
    weft_status status = WEFT_OK;
    if (hashes == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %d hashes", (int)size);
    if (status == WEFT_OK)
        status = weft_verification_run_create(&self->verification_run, self->plugin_lookup, self->spec.steps, err);
    if (status == WEFT_OK)
        status = run_cell(self, &self->ends[0], self->losses, 0,
                          weft_process_context_rank(self->meeting.process_context), err);
    status = weft_process_group_agree(&self->meeting.peers, status, err);
    if (status == WEFT_OK)
        status = weft_meeting_share(&self->meeting, hashes, self->ends[0].hash, (int64_t)sizeof *hashes, err);
    if (status != WEFT_OK) goto done;
    for (int32_t rank = 1; rank < size && status == WEFT_OK; rank++)
        if (strcmp(hashes[rank], hashes[0]) != 0)
            status = weft_error_set(err, WEFT_E_USER,
                                    "rank %d gets %.12s... from the reference, on one rank and by itself, and rank 0 "
                                    "%.12s...: " WEFT_PROVE_APART " (another processor, library or file, or a plugin "
                                    "whose answers depend on the process), so nothing that they do together can be "
                                    "the same",
                                    (int)rank, hashes[rank], hashes[0]);
    status = weft_process_group_agree(&self->meeting.peers, status, err);
done:
    free(hashes);
    return status;
}

enum { PLAIN_SECONDS = 10 };

static void show_progress(const weft_proof *self, const weft_prove_options *options, int32_t done, bool last) {
    static double shown; /* when */
    const double now = weft_clock_seconds();
    if (!options->progress || weft_process_context_rank(self->meeting.process_context) != 0) return;
    if (isatty(STDERR_FILENO) != 0) {
        (void)fprintf(stderr, "\r%d of %d cells%s", (int)done, (int)self->grid.n, last ? "\r\033[K" : "");
        (void)fflush(stderr);
        return;
    }
    if (done == 0) shown = now;
    if (last || now - shown < PLAIN_SECONDS) return;
    shown = now;
    (void)fprintf(stderr, "%d of %d cells\n", (int)done, (int)self->grid.n);
}

/* The cell of this rank in a wave, -1: none; and how many there are up to this wave. */
static int32_t find_cell(const weft_proof *self, const int32_t *wave, const int32_t *base, int32_t now, int32_t *done) {
    const int32_t rank = weft_process_context_rank(self->meeting.process_context);
    int32_t mine = -1;
    for (int32_t i = 1; i < self->grid.n; i++) {
        if (wave[i] != now) continue;
        ++*done;
        if (rank >= base[i] && rank < base[i] + self->grid.cells[i].ranks) mine = i;
    }
    return mine;
}

static weft_status run_waves(weft_proof *self, int32_t *wave, int32_t *base, const weft_prove_options *options,
                             weft_error *err) {
    const int32_t waves =
        weft_grid_schedule(wave, base, &self->grid, weft_process_context_size(self->meeting.process_context));
    char *mine = malloc(sizeof(weft_verification_run_end) + (size_t)self->spec.steps * sizeof(double));
    double *losses = calloc((size_t)self->spec.steps, sizeof *losses);
    weft_status status = WEFT_OK;
    int32_t done = 1;
    if (mine == NULL || losses == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a cell");
    for (int32_t w = 0; w < waves && status == WEFT_OK; w++) {
        weft_verification_run_end end = {.cell = -1};
        int32_t cell = -1;
        show_progress(self, options, done, false);
        cell = find_cell(self, wave, base, w, &done);
        if (cell >= 0) status = run_cell(self, &end, losses, cell, base[cell], err);
        if (cell >= 0 && weft_process_context_rank(self->meeting.process_context) != base[cell]) end.cell = -1;
        memcpy(mine, &end, sizeof end);
        memcpy(mine + sizeof end, losses, (size_t)self->spec.steps * sizeof *losses);
        if (status == WEFT_OK) status = share_ends(self, mine, err);
    }
    show_progress(self, options, done, true);
    free(mine);
    free(losses);
    return status;
}

static weft_status run_cells(weft_proof *self, const weft_prove_options *options, weft_error *err) {
    const size_t n = (size_t)self->grid.n;
    int32_t *wave = calloc(2 * n + 1, sizeof *wave);
    weft_status status = WEFT_OK;
    self->ends = calloc(n, sizeof *self->ends);
    self->losses = calloc(n * (size_t)self->spec.steps, sizeof *self->losses);
    if (wave == NULL || self->ends == NULL || self->losses == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what %zu cells come to", n);
    show_progress(self, options, 0, false);
    status = weft_process_group_agree(&self->meeting.peers, status, err);
    if (status == WEFT_OK) status = run_reference(self, err);
    if (status == WEFT_OK) {
        status = run_waves(self, wave, wave + n, options, err);
        self->meeting.failed = status != WEFT_OK;
    }
    for (int32_t i = 0; i < self->grid.n && status == WEFT_OK; i++) self->count[weft_proof_verdict(self, i)]++;
    free(wave);
    return status;
}

weft_status weft_prove(weft_proof *out, const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_prove_options *options, weft_error *err) {
    const double begin = weft_clock_seconds();
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->spec.path = path;
    out->spec.overrides = overrides;
    out->spec.n_overrides = n_overrides;
    status = weft_meeting_open(&out->meeting, path, overrides, n_overrides, err);
    if (status == WEFT_OK) status = open_plugin_lookup(out, options, err);
    if (status == WEFT_OK) status = make_grid(out, options, err);
    if (status == WEFT_OK) status = run_cells(out, options, err);
    out->seconds = weft_clock_seconds() - begin;
    return status;
}

void weft_proof_close(weft_proof *self) {
    weft_verification_run_free(&self->verification_run);
    weft_grid_free(&self->grid);
    free(self->ends);
    free(self->losses);
    weft_session_close(self->plugin_lookup);
    weft_meeting_close(&self->meeting);
    memset(self, 0, sizeof *self);
}

/* ---- what came of it ---- */

weft_verdict weft_proof_verdict(const weft_proof *self, int32_t cell) {
    const weft_verification_run_end *end = &self->ends[cell];
    if (end->trained == 0) return WEFT_VERDICT_IDLE;
    if (!self->grid.cells[cell].coverage.covered) return WEFT_VERDICT_NOT_COVERED;
    return end->step < 0 && strcmp(end->hash, self->ends[0].hash) == 0 ? WEFT_VERDICT_EQUAL : WEFT_VERDICT_DIFFERENT;
}

weft_status weft_proof_judge(const weft_proof *self, weft_error *err) {
    if (self->count[WEFT_VERDICT_IDLE] > 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%d of %d cells end with the hash that they began with: nothing was trained, so nothing "
                              "is proved; look at [train] steps, trainable and the learning rate",
                              (int)self->count[WEFT_VERDICT_IDLE], (int)self->grid.n);
    if (self->count[WEFT_VERDICT_DIFFERENT] > 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "%d of %d cells are covered by the contract and differ",
                              (int)self->count[WEFT_VERDICT_DIFFERENT], (int)self->grid.n);
    return WEFT_OK;
}
