/* host/tools/prove/prove.c: see prove.h. */
#include "tools/prove/prove.h"

#include "base/alloc.h"
#include "base/units.h"
#include "base/text.h"
#include "train/fit.h"
#include "run/coherence.h"
#include "run/session.h"
#include "tools/common/messages.h"

#include <stdlib.h>
#include <unistd.h>

enum { SHOWN_RANKS = 8 };

static void weft_omitted_print(weft_omitted *self, const char *format, ...) {
    va_list args;
    if (self->n == WEFT_MOST_OMITTED) return;
    va_start(args, format);
    (void)vsnprintf(self->text[self->n++], WEFT_OMITTED_SIZE, format, args);
    va_end(args);
}

/* Lists the given strategies: "mp, ddp, fsdp"; "": empty list. */
static void list_strategies(char text[32], bool mp, bool ddp, bool fsdp) {
    (void)snprintf(text, 32, "%s%s%s%s%s", mp ? "mp" : "", mp && (ddp || fsdp) ? ", " : "", ddp ? "ddp" : "",
                   ddp && fsdp ? ", " : "", fsdp ? "fsdp" : "");
}

/* Lists the rank counts that do not pass: "3, 4"; "": all pass. */
static void list_ranks(char text[160], const weft_grid_spec *spec,
                       bool (*passes)(const weft_grid_spec *spec, int32_t ranks)) {
    size_t n = 0;
    int32_t found = 0;
    text[0] = '\0';
    for (int32_t ranks = 2; ranks <= spec->world; ranks++) {
        if (passes(spec, ranks)) continue;
        if (found++ < SHOWN_RANKS) n += (size_t)snprintf(text + n, 160 - n, "%s%d", n == 0 ? "" : ", ", (int)ranks);
    }
    if (found > SHOWN_RANKS) (void)snprintf(text + n, 160 - n, " and %d more", (int)(found - SHOWN_RANKS));
}

static bool has_segments(const weft_grid_spec *spec, int32_t ranks) {
    return ranks <= spec->segments;
}

static bool is_short_or_whole(const weft_grid_spec *spec, int32_t ranks) {
    return ranks > spec->segments || weft_grid_takes_stages(spec, ranks);
}

static void find_stages(weft_omitted *out, const weft_grid_spec *spec) {
    char ranks[160];
    if (!spec->has_mp) return;
    list_ranks(ranks, spec, has_segments);
    if (ranks[0] != '\0')
        weft_omitted_print(out, "mp on %s ranks: the model has %d segment%s, and each rank runs one at least", ranks,
                           (int)spec->segments, spec->segments == 1 ? "" : "s");
    list_ranks(ranks, spec, is_short_or_whole);
    if (ranks[0] != '\0')
        weft_omitted_print(out, "mp on %s ranks: of its longer pipelines only that of all ranks is tested", ranks);
}

static bool has_map(const weft_grid_spec *spec, int32_t ranks) {
    return !weft_grid_takes_stages(spec, ranks) || weft_grid_takes_map(spec, ranks);
}

static void find_map(weft_omitted *out, const weft_grid_spec *spec) {
    char ranks[160];
    if (!spec->has_mp || spec->map_ranks == 0) return;
    list_ranks(ranks, spec, has_map);
    if (spec->device_map[0] == '\0')
        weft_omitted_print(out, "the configuration's device_map, which has more than %d letters: mp runs with auto",
                           WEFT_GRID_MAP - 1);
    else if (ranks[0] != '\0')
        weft_omitted_print(out, "the configuration's device_map on %s ranks: it is for %d; mp runs with auto there",
                           ranks, (int)spec->map_ranks);
    if (spec->device_map[0] != '\0' && !spec->map_1f1b && spec->map_ranks <= spec->world)
        weft_omitted_print(
            out, "the configuration's device_map under 1f1b, which it is not set for: mp runs with auto there");
}

static void find_replicas(weft_omitted *out, const weft_grid_spec *spec, int64_t micro_batch) {
    char ranks[160], names[32];
    list_ranks(ranks, spec, weft_grid_takes_replicas);
    list_strategies(names, false, spec->has_ddp, spec->has_fsdp);
    if (names[0] == '\0' || ranks[0] == '\0') return;
    weft_omitted_print(out,
                       "%s on %s ranks: %d %s a step cannot be shared evenly by so many; for N ranks set [train] "
                       "global_batch to a multiple of N x micro_batch, which is %lld",
                       names, ranks, (int)spec->micro_batches,
                       spec->micro_batches == 1 ? "micro-batch" : "micro-batches", (long long)micro_batch);
}

/* missing: strategies without a plugin. alone: why there is one rank, or "". micro_batch: its sequences. */
static void weft_omitted_find(weft_omitted *out, const weft_grid_spec *spec, const char *missing, const char *alone,
                              int64_t micro_batch) {
    char names[32];
    list_strategies(names, spec->has_mp, spec->has_ddp, spec->has_fsdp);
    if (missing[0] != '\0') weft_omitted_print(out, "strategy %s, which there is no plugin of", missing);
    if (spec->world == 1 && names[0] != '\0')
        weft_omitted_print(out, "%s: %s", names,
                           alone[0] != '\0' ? alone : "they need several ranks, and the run has one; set --ranks 4");
    find_stages(out, spec);
    find_map(out, spec);
    find_replicas(out, spec, micro_batch);
}

/* Memory savings that a proof cannot suggest, because it varies them itself or writes no checkpoint. */
enum { STAYS = 1u << WEFT_FIT_SAVING | 1u << WEFT_FIT_CHECKPOINTING | 1u << WEFT_FIT_SHARDING | 1u << WEFT_FIT_MORE };

/* Returns the smallest available memory of all ranks. said: given by the user; 0: queried. [collective] */
static weft_status weft_cell_memory_find(weft_available_memory *out, weft_meeting *meeting, const weft_session *session,
                                         int64_t said, weft_error *err) {
    const int32_t size = meeting->process_context->comm_info.size;
    weft_available_memory *all = weft_alloc(size, sizeof *all);
    const weft_available_memory mine = weft_available_memory_find(said, &session->engine->device_info);
    const weft_status status = weft_meeting_share(meeting, all, &mine, (int64_t)sizeof mine, err);
    *out = mine;
    for (int32_t rank = 0; rank < size && status == WEFT_OK; rank++)
        if (rank == 0 || (all[rank].bytes > 0 && (out->bytes == 0 || all[rank].bytes < out->bytes))) *out = all[rank];
    free(all);
    return status;
}

static const weft_cell *fullest_cell(const weft_grid *grid) {
    const weft_cell *out = &grid->cells[0];
    for (int32_t i = 1; i < grid->n; i++)
        if (weft_required_memory_bytes(&grid->cells[i].need) > weft_required_memory_bytes(&out->need))
            out = &grid->cells[i];
    return out;
}

/* Checks one cell; one rank's session represents all of its ranks. */
static weft_status check_session(const weft_session *session, const weft_fit_question *question, weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_fit fit;
    weft_status status = plan->world > 1 ? weft_all_rank_plan_create(&all_rank_plan, plan, err) : WEFT_OK;
    if (status != WEFT_OK) return status;
    weft_fit_check(&fit, question, all_rank_plan);
    weft_all_rank_plan_destroy(all_rank_plan);
    weft_fit_warn(&fit, session->run->host);
    return fit.fits ? WEFT_OK : weft_fit_refuse(&fit, err);
}

static weft_status check_cell(const weft_cell *cell, const weft_verification_run_spec *spec,
                              const weft_available_memory *room, const weft_rank_span *rank_span, weft_error *err) {
    weft_fit_question question = {.path = spec->path, .room = *room, .stays = STAYS};
    const char **overrides = weft_verification_run_overrides(&question.n_overrides, spec, cell);
    weft_session *session = NULL;
    char text[400];
    weft_status status = weft_verification_run_open(&session, spec, cell, rank_span, err);
    question.overrides = overrides;
    question.session = session;
    if (status == WEFT_OK) status = check_session(session, &question, err);
    weft_session_close(session);
    free((void *)overrides);
    if (status == WEFT_OK) return WEFT_OK;
    weft_cell_describe(text, sizeof text, cell);
    return weft_error_prefix(err, "%s: ", text);
}

/* Fails if the largest cell does not fit. The cells must be compiled. The error is that of a run that does not fit: the
 * largest consumers, and changes that a proof does not vary. [collective] */
static weft_status weft_cell_memory_check(const weft_grid *grid, const weft_verification_run_spec *spec,
                                          const weft_available_memory *room, const weft_meeting *meeting,
                                          weft_error *err) {
    const weft_cell *cell = fullest_cell(grid);
    const weft_rank_span rank_span = {meeting->process_context, 0, 0, cell->ranks};
    weft_status status = WEFT_OK;
    if (weft_process_group_is_rank_0(&meeting->peers)) status = check_cell(cell, spec, room, &rank_span, err);
    return weft_process_group_agree(&meeting->peers, status, err);
}

/* ---- policies ---- */

static weft_grid_policy *add_policy(weft_grid_spec *out, const char *label) {
    weft_grid_policy *policy = &out->policies[out->n_policies++];
    (void)snprintf(policy->label, sizeof policy->label, "%s", label);
    return policy;
}

static void add_plugin(weft_grid_spec *out, const char *label, const char *plugin, const char *key) {
    weft_grid_policy *policy = NULL;
    if (out->n_policies == WEFT_GRID_POLICIES) return;
    policy = add_policy(out, label);
    weft_grid_print(&policy->keys, "!policy");
    weft_grid_print(&policy->keys, "policy.plugin=%s", plugin);
    if (key != NULL) weft_grid_print(&policy->keys, "%s", key);
}

/* Returns the number of modules of this class with parameters of their own; 0: this is not the first of them. */
static int32_t count_class(const weft_declared *declared, int32_t module) {
    const char *name = declared->modules[module]->class_name;
    int32_t n = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        int32_t p = 0;
        if (strcmp(declared->modules[m]->class_name, name) != 0) continue;
        if (m < module) return 0;
        while (p < declared->n_parameters && declared->parameters[p].module != m) p++;
        n += p < declared->n_parameters;
    }
    return n;
}

/* Returns the class with the most modules that have parameters of their own: the finest units that one name selects. */
static const char *commonest_class(const weft_declared *declared) {
    const char *best = "";
    int32_t most = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const int32_t n = count_class(declared, m);
        if (n > most) best = declared->modules[m]->class_name;
        if (n > most) most = n;
    }
    return best;
}

/* Chooses policies: the configuration's own first, then others from coarse to fine, up to the limit. */
static void choose_policies(weft_grid_spec *out, const weft_run *run, const weft_declared *declared) {
    const char *own = run->parts[WEFT_PART_POLICY].loaded->plugin->id, *name = commonest_class(declared);
    char label[160], key[200];
    const int64_t size = weft_declared_numel(declared, false) / 3 + 1;
    (void)add_policy(out, own);
    if (strcmp(own, "block") != 0) add_plugin(out, "block", "block", NULL);
    if (strcmp(own, "whole") != 0) add_plugin(out, "whole", "whole", NULL);
    (void)snprintf(label, sizeof label, "size %lld", (long long)size);
    (void)snprintf(key, sizeof key, "policy.size=%lld", (long long)size);
    if (strcmp(own, "size") != 0) add_plugin(out, label, "size", key);
    (void)snprintf(label, sizeof label, "class %s", name);
    (void)snprintf(key, sizeof key, "policy.classes=%s", name);
    if (strcmp(own, "class") != 0 && name[0] != '\0') add_plugin(out, label, "class", key);
}

/* ---- strategies ---- */

/* Returns the resolved value of a key of [strategy]; NULL: the strategy has no such key. */
static const char *strategy_setting(const weft_run *run, const char *key) {
    return weft_config_shown(run->config, "strategy", key);
}

static bool has_strategy(const weft_run *run, const char *id, char *missing, size_t size) {
    const weft_loaded *loaded = NULL;
    const size_t n = strlen(missing);
    weft_error why = WEFT_ERROR_INIT;
    if (weft_plugins_get(run->plugins, &loaded, "strategy", id, &why) == WEFT_OK) return true;
    (void)snprintf(missing + n, size - n, "%s%s", n > 0 ? ", " : "", id);
    return false;
}

/* Returns "ordered", "tree" or "fast". */
static const char *weft_prove_reduce(const weft_run *run) {
    return strategy_setting(run, "reduce");
}

/* Passes a value of the configuration on. */
static void hand_on(weft_grid_keys *to, const weft_run *run, const char *key) {
    weft_grid_print(to, "strategy.%s=%s", key, strategy_setting(run, key));
}

static bool is_known(const char *id) {
    return strcmp(id, "single") == 0 || strcmp(id, "mp") == 0 || strcmp(id, "ddp") == 0 || strcmp(id, "fsdp") == 0;
}

/* Returns the ranks of "embed,layers.0-12 = 0; layers.13-21,head = 1": the highest plus one. 0: no map. */
static int32_t ranks_of_map(const char *map) {
    int32_t ranks = 0;
    for (const char *at = strchr(map, '='); at != NULL; at = strchr(at + 1, '=')) {
        const long rank = strtol(at + 1, NULL, 10);
        if (rank >= ranks && rank < INT32_MAX) ranks = (int32_t)rank + 1;
    }
    return ranks;
}

static void choose_map(weft_grid_spec *out, const weft_run *run) {
    const char *map = strategy_setting(run, "device_map");
    if (strcmp(map, "auto") == 0) return;
    out->map_ranks = ranks_of_map(map);
    out->map_1f1b = out->map_ranks == 0 || strcmp(strategy_setting(run, "schedule"), "1f1b") == 0;
    if (strlen(map) < sizeof out->device_map) (void)snprintf(out->device_map, sizeof out->device_map, "%s", map);
}

static void choose_strategies(weft_grid_spec *out, char *missing, size_t size, const weft_run *run) {
    const char *id = weft_run_id(run, WEFT_PART_STRATEGY), *at = strategy_setting(run, "reduce_at");
    out->has_mp = has_strategy(run, "mp", missing, size);
    out->has_ddp = has_strategy(run, "ddp", missing, size);
    out->has_fsdp = has_strategy(run, "fsdp", missing, size);
    if (!is_known(id)) out->own = id;
    out->at_last = strcmp(weft_prove_reduce(run), "ordered") != 0;
    hand_on(&out->common, run, "reduce");
    hand_on(&out->common, run, "reduce_dtype");
    if (strcmp(id, "fsdp") == 0) hand_on(&out->fsdp, run, "root");
    if (strcmp(id, "fsdp") == 0) hand_on(&out->fsdp, run, "reshard_after_forward");
    if (strcmp(id, "mp") == 0) choose_map(out, run);
    (void)snprintf(out->reduce_at, sizeof out->reduce_at, "%s", at == NULL ? "each" : at);
}

/* missing: known strategies without a plugin. run: the unmodified configuration; session: of one rank. */
static void weft_prove_spec(weft_grid_spec *out, char *missing, size_t size, const weft_run *run,
                            const weft_session *session, int32_t world) {
    const weft_engine *engine = session->engine;
    memset(out, 0, sizeof *out);
    missing[0] = '\0';
    out->world = world;
    out->micro_batches = engine->plan.spec.micro_batches;
    out->segments = engine->plan.declared->n_segments;
    choose_policies(out, run, engine->plan.declared);
    choose_strategies(out, missing, size, run);
}

/* ---- shared state of the ranks ---- */

/* Returns a one-rank process context, for a cell that is only compiled or that every rank runs on its own. */
static weft_rank_span rank_span_of(const weft_proof *self, int32_t base, int32_t world) {
    const int32_t rank = self->meeting.process_context->comm_info.rank;
    const weft_rank_span rank_span = {self->meeting.process_context, base,
                                      rank >= base && rank < base + world ? rank - base : 0, world};
    return rank_span;
}

/* Opens the session that shares its text and data with all cells. It allocates no device memory. */
static weft_status open_plugin_lookup(weft_proof *self, const weft_prove_options *options, weft_error *err) {
    weft_cell single = {.ranks = 1};
    const weft_rank_span rank_span = rank_span_of(self, self->meeting.process_context->comm_info.rank, 1);
    weft_status status = WEFT_OK;
    weft_grid_print(&single.keys, "!strategy");
    weft_grid_print(&single.keys, "strategy.plugin=single");
    status = weft_verification_run_open(&self->plugin_lookup, &self->spec, &single, &rank_span, err);
    status = weft_coherence_data(&self->meeting.peers,
                                 status == WEFT_OK ? self->plugin_lookup->engine->plan.declared : NULL,
                                 status == WEFT_OK ? self->plugin_lookup->data_info.fingerprint : 0, status, err);
    status = weft_coherence_weights(&self->meeting.peers, self->meeting.run, status, err);
    if (status == WEFT_OK)
        status = weft_coherence_answers(&self->meeting.peers, &self->plugin_lookup->engine->plan, status, err);
    if (status != WEFT_OK) return status;
    self->spec.plugin_lookup = self->plugin_lookup;
    self->spec.steps = options->steps > 0 ? options->steps : WEFT_PROVE_STEPS;
    if (options->steps > self->plugin_lookup->steps)
        weft_omitted_print(&self->omitted, "steps %lld to %lld: the run has %lld of them",
                           (long long)self->plugin_lookup->steps + 1, (long long)options->steps,
                           (long long)self->plugin_lookup->steps);
    if (self->spec.steps > self->plugin_lookup->steps) self->spec.steps = self->plugin_lookup->steps;
    if (options->any_room) return WEFT_OK;
    return weft_cell_memory_find(&self->room, &self->meeting, self->plugin_lookup, options->room, err);
}

/* ---- the grid ---- */

/* Compiles a cell. *out receives the results of compilation. */
static weft_status compile_cell(weft_cell *out, const weft_proof *self, const weft_cell *cell, weft_error *err) {
    const weft_rank_span rank_span = {self->meeting.process_context, 0, 0, cell->ranks};
    weft_session *session = NULL;
    char text[400];
    weft_status status = weft_verification_run_open(&session, &self->spec, cell, &rank_span, err);
    *out = *cell;
    if (status == WEFT_OK) {
        const weft_mode_plan *mode_plan = &session->engine->plan.train;
        weft_verification_run_note(out, session);
        out->by = self->meeting.process_context->comm_info.rank;
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
        weft_words_sanitize(out->refused);
        err->text[0] = '\0';
        return WEFT_OK;
    }
    weft_cell_describe(text, sizeof text, cell);
    return weft_error_prefix(err, "%s: ", text);
}

/* Removes cells that the configuration's own strategy rejects, such as a rank count that does not divide the
 * micro-batches of a step. Fails if none of its cells remains. */
static weft_status omit_refused(weft_proof *self, weft_error *err) {
    const int32_t all = self->grid.n;
    char ranks[160];
    bool is_whole = false;
    weft_cell *first = weft_alloc(1, sizeof *first);
    const int32_t n = weft_grid_drop_refused(&self->grid, ranks, first, &is_whole);
    weft_status status = WEFT_OK;
    if (n > 0 && is_whole)
        status = weft_error_set(
            err, WEFT_E_USER,
            "strategy %s rejects each of its %d cells, on %s ranks, so that it is not verified. The first reason: %s",
            first->strategy, (int)n, ranks, first->refused);
    else if (n > 0)
        weft_omitted_print(&self->omitted, "%d of %d cells, strategy %s on %s ranks: %s", (int)n, (int)all,
                           first->strategy, ranks, first->refused);
    free(first);
    return status;
}

/* Compiles all cells in parallel: rank i % size compiles cell i. */
static weft_status compile_all(weft_proof *self, weft_error *err) {
    const int32_t size = self->meeting.process_context->comm_info.size,
                  rank = self->meeting.process_context->comm_info.rank;
    const int32_t rows = (self->grid.n + size - 1) / size;
    weft_cell *mine = weft_alloc(rows, sizeof *mine), *all = weft_alloc(rows * size, sizeof *all);
    weft_status status = WEFT_OK;
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

/* Checks that all ranks have the same grid. A node may lack a plugin that another one has. */
static weft_status compare_grids(const weft_proof *self, weft_error *err) {
    const weft_grid *grid = &self->grid;
    char *facts = NULL;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < grid->n; i++) {
        const char *strategy = grid->cells[i].strategy;
        char name[96], value[16];
        (void)snprintf(name, sizeof name, "cells of %.64s", strategy);
        (void)snprintf(value, sizeof value, "%d", (int)count_cells(grid, strategy, grid->n));
        if (count_cells(grid, strategy, i) == 0) weft_facts_add(&facts, name, value);
    }
    status = weft_facts_compare(facts, &self->meeting.peers, "their strategies or policies", err);
    free(facts);
    return status;
}

static weft_status make_grid(weft_proof *self, const weft_prove_options *options, weft_error *err) {
    weft_grid_spec *spec = weft_alloc(1, sizeof *spec);
    weft_status status = WEFT_OK;
    weft_prove_spec(spec, self->missing, sizeof self->missing, self->meeting.run, self->plugin_lookup,
                    self->meeting.process_context->comm_info.size);
    weft_omitted_find(&self->omitted, spec, self->missing, options->alone,
                      self->meeting.run->settings.train.micro_batch);
    weft_grid_create(&self->grid, spec);
    free(spec);
    (void)snprintf(self->reduce, sizeof self->reduce, "%s", weft_prove_reduce(self->meeting.run));
    status = compare_grids(self, err);
    if (status == WEFT_OK) status = compile_all(self, err);
    if (status == WEFT_OK) status = omit_refused(self, err);
    if (status != WEFT_OK) return status;
    self->left_out = weft_grid_drop_twins(&self->grid);
    if (!options->full) weft_grid_cover(&self->grid);
    if (self->room.bytes > 0)
        status = weft_cell_memory_check(&self->grid, &self->spec, &self->room, &self->meeting, err);
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

/* All-gathers the results of finished cells. mine: result and losses; sent by the lowest rank of a cell. */
static weft_status share_ends(weft_proof *self, const char *mine, weft_error *err) {
    const size_t losses = (size_t)self->spec.steps * sizeof(double), bytes = sizeof(weft_verification_run_end) + losses;
    const int32_t size = self->meeting.process_context->comm_info.size;
    char *all = weft_alloc(size, bytes);
    const weft_status status = weft_meeting_share(&self->meeting, all, mine, (int64_t)bytes, err);
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

/* Runs the reference on every rank independently, so that each can compare. All ranks must have the same result. */
static weft_status run_reference(weft_proof *self, weft_error *err) {
    const int32_t size = self->meeting.process_context->comm_info.size;
    char(*hashes)[72] = weft_alloc(size, sizeof *hashes);
    weft_status status = WEFT_OK;
    weft_verification_run_create(&self->verification_run, self->plugin_lookup, self->spec.steps);
    status = run_cell(self, &self->ends[0], self->losses, 0, self->meeting.process_context->comm_info.rank, err);
    status = weft_process_group_agree(&self->meeting.peers, status, err);
    if (status == WEFT_OK)
        status = weft_meeting_share(&self->meeting, hashes, self->ends[0].hash, (int64_t)sizeof *hashes, err);
    if (status != WEFT_OK) goto done;
    for (int32_t rank = 1; rank < size && status == WEFT_OK; rank++)
        if (strcmp(hashes[rank], hashes[0]) != 0)
            status = weft_error_set(err, WEFT_E_USER,
                                    "rank %d gets %.12s... from the reference, on one rank and by itself, and rank 0 "
                                    "%.12s...: " WEFT_PROVE_APART
                                    " (another processor, library or file, or a plugin with results that depend on the "
                                    "process), so their joint results cannot be equal",
                                    (int)rank, hashes[rank], hashes[0]);
    status = weft_process_group_agree(&self->meeting.peers, status, err);
done:
    free(hashes);
    return status;
}

enum { PLAIN_SECONDS = 10 };

static void show_progress(const weft_proof *self, const weft_prove_options *options, int32_t done, bool last) {
    static double shown; /* time of the last output */
    const double now = weft_clock_seconds();
    if (!options->progress || self->meeting.process_context->comm_info.rank != 0) return;
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

/* Returns this rank's cell in a wave (-1: no cell), and the number of cells up to this wave. */
static int32_t find_cell(const weft_proof *self, const int32_t *wave, const int32_t *base, int32_t now, int32_t *done) {
    const int32_t rank = self->meeting.process_context->comm_info.rank;
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
    const int32_t waves = weft_grid_schedule(wave, base, &self->grid, self->meeting.process_context->comm_info.size);
    char *mine = weft_alloc(sizeof(weft_verification_run_end) + (size_t)self->spec.steps * sizeof(double), 1);
    double *losses = weft_alloc(self->spec.steps, sizeof *losses);
    weft_status status = WEFT_OK;
    int32_t done = 1;
    for (int32_t w = 0; w < waves && status == WEFT_OK; w++) {
        weft_verification_run_end end = {.cell = -1};
        int32_t cell = -1;
        show_progress(self, options, done, false);
        cell = find_cell(self, wave, base, w, &done);
        if (cell >= 0) status = run_cell(self, &end, losses, cell, base[cell], err);
        if (cell >= 0 && self->meeting.process_context->comm_info.rank != base[cell]) end.cell = -1;
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
    int32_t *wave = weft_alloc(2 * n, sizeof *wave);
    weft_status status = WEFT_OK;
    self->ends = weft_alloc(n, sizeof *self->ends);
    self->losses = weft_alloc(n * (size_t)self->spec.steps, sizeof *self->losses);
    show_progress(self, options, 0, false);
    status = run_reference(self, err);
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

/* ---- results ---- */

weft_verdict weft_proof_verdict(const weft_proof *self, int32_t cell) {
    const weft_verification_run_end *end = &self->ends[cell];
    if (end->trained == 0) return WEFT_VERDICT_IDLE;
    if (!self->grid.cells[cell].coverage.covered) return WEFT_VERDICT_NOT_COVERED;
    return end->step < 0 && strcmp(end->hash, self->ends[0].hash) == 0 ? WEFT_VERDICT_EQUAL : WEFT_VERDICT_DIFFERENT;
}

weft_status weft_proof_check(const weft_proof *self, weft_error *err) {
    if (self->count[WEFT_VERDICT_IDLE] > 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%d of %d cells end with the hash of their start: no parameter was trained, so the "
                              "result is empty. Check [train] steps, trainable and the learning rate",
                              (int)self->count[WEFT_VERDICT_IDLE], (int)self->grid.n);
    if (self->count[WEFT_VERDICT_DIFFERENT] > 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "%d of %d cells are deterministic across ranks and differ",
                              (int)self->count[WEFT_VERDICT_DIFFERENT], (int)self->grid.n);
    return WEFT_OK;
}
