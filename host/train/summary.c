/* host/train/summary.c: see summary.h. */
#include "train/summary.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/units.h"
#include "program/budget.h"
#include "program/sections.h"
#include "train/tables.h"

#include <math.h>
#include <stdlib.h>

json_t *weft_bytes_object(const int64_t *bytes, int first, int n, const char *(*name)(int32_t index)) {
    json_t *object = json_object();
    for (int i = first; i < n; i++) (void)json_object_set_new(object, name(i), json_integer(bytes[i]));
    return object;
}

static weft_memory_snapshot memory_now(const weft_session *session) {
    const weft_engine *engine = session->engine;
    weft_memory_snapshot out = {.planned = engine->plan.bytes.total,
                                .taken = engine->account.most,
                                .live = session->stepper == NULL ? 0 : session->stepper->trace->high_water,
                                .apart = weft_account_held(&engine->account),
                                .resident = weft_resident_now(),
                                .resident_peak = weft_resident_peak(),
                                .libraries = weft_library_bytes()};
    memcpy(out.line, engine->account.taken, sizeof out.line);
    return out;
}

weft_status weft_memory_snapshots_collect(weft_memory_snapshot **out, const weft_session *session, weft_error *err) {
    const weft_memory_snapshot own = memory_now(session);
    void *all = NULL;
    const weft_status status = weft_engine_gather(session->engine, &all, &own, sizeof own, err);
    *out = all;
    return status;
}

/* Prints the planned memory: on rank 0 the maximum with its rank, on any other rank its own. */
static void print_planned(const weft_memory_snapshot *moments, const weft_session *session, FILE *to) {
    const weft_ranks *ranks = &session->engine->ranks;
    int32_t most = ranks->rank;
    bool alike = ranks->rank == 0;
    char text[WEFT_UNIT_SIZE];
    for (int32_t r = 1; ranks->rank == 0 && r < ranks->world; r++) {
        alike = alike && moments[r].planned == moments[0].planned;
        if (moments[r].planned > moments[most].planned) most = r;
    }
    (void)fprintf(to, "memory     %s planned", weft_unit_bytes(text, moments[most].planned));
    if (ranks->world > 1 && alike) (void)fprintf(to, " on each rank");
    else if (ranks->world > 1)
        (void)fprintf(to, " on rank %d%s", (int)most, ranks->rank == 0 ? ", which takes the most" : "");
    (void)fprintf(to, " (weft plan shows it)\n");
}

static double gib(int64_t bytes) {
    return (double)bytes / 1073741824.0;
}

void weft_memory_snapshots_print(const weft_memory_snapshot *moments, const weft_session *session, int64_t step,
                                 weft_progress *to) {
    const weft_ranks *ranks = &session->engine->ranks;
    const weft_memory_snapshot *own = &moments[ranks->rank], *least = moments, *most = moments, *peak = moments;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    weft_progress_line(to,
                       "Step %lld: Current memory usage: %.2f GiB, Peak memory usage: %.2f GiB, Total memory: %.2f GiB",
                       (long long)step, gib(own->resident), gib(own->resident_peak),
                       gib(session->engine->device_info.memory));
    if (ranks->world == 1 || ranks->rank > 0) return;
    for (const weft_memory_snapshot *one = moments; one < moments + ranks->world; one++) {
        if (one->resident < least->resident) least = one;
        if (one->resident > most->resident) most = one;
        if (one->resident_peak > peak->resident_peak) peak = one;
    }
    weft_progress_line(to, "memory     %s (rank %d) to %s (rank %d) resident after step %lld, %s at most (rank %d)",
                       weft_unit_bytes(a, least->resident), (int)(least - moments), weft_unit_bytes(b, most->resident),
                       (int)(most - moments), (long long)step, weft_unit_bytes(c, peak->resident_peak),
                       (int)(peak - moments));
}

/* Rounds to the microsecond: more digits would be noise. */
static json_t *seconds_json(double seconds) {
    return json_real((double)(int64_t)(seconds * 1e6 + 0.5) * 1e-6);
}

json_t *weft_rank_row_seconds(const weft_rank_row *row) {
    json_t *object = json_object();
    double data = row->data, named = row->data;
    (void)json_object_set_new(object, "data", seconds_json(row->data));
    for (int32_t phase = 0; phase < WEFT_N_PHASES; phase++) {
        /* Micro-batches are fetched when an instruction first needs them: nearly always in FORWARD. */
        const double taken = data < row->phases[phase] ? data : row->phases[phase];
        const double own = row->phases[phase] - taken;
        data -= taken;
        named += own;
        (void)json_object_set_new(object, weft_phase_name(phase), seconds_json(own));
    }
    (void)json_object_set_new(object, "rest", seconds_json(row->steps > named ? row->steps - named : 0.0));
    return object;
}

weft_status weft_rank_rows_array(json_t **out, const weft_session *session, const weft_rank_row *row, weft_error *err) {
    const weft_engine *engine = session->engine;
    weft_rank_row own = *row;
    void *memory = NULL;
    weft_status status = WEFT_OK;
    own.memory = memory_now(session);
    status = weft_engine_gather(engine, &memory, &own, sizeof own, err);
    *out = NULL;
    if (status == WEFT_OK && weft_process_group_is_rank_0(&engine->peers)) {
        *out = json_array();
        for (int32_t rank = 0; rank < engine->ranks.world; rank++) {
            const weft_rank_row *one = (const weft_rank_row *)memory + rank;
            const weft_memory_snapshot *m = &one->memory;
            (void)json_array_append_new(
                *out,
                json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "rank", (int)rank, "phases",
                          weft_rank_row_seconds(one), "taken",
                          weft_bytes_object(m->line, 0, WEFT_N_ACCOUNT_LINES, weft_account_name), "live",
                          (json_int_t)m->live, "apart", (json_int_t)m->apart, "libraries", (json_int_t)m->libraries,
                          "resident", (json_int_t)m->resident, "resident_peak", (json_int_t)m->resident_peak));
        }
    }
    free(memory);
    return status;
}

weft_status weft_planned_array(json_t **out, const weft_session *session, weft_error *err) {
    const weft_engine *engine = session->engine;
    const int32_t world = engine->ranks.world;
    void *memory = NULL;
    const weft_status status = weft_engine_gather(engine, &memory, &engine->plan.bytes, sizeof engine->plan.bytes, err);
    const weft_plan_bytes *rows = memory;
    *out = NULL;
    if (status == WEFT_OK && weft_process_group_is_rank_0(&engine->peers)) {
        *out = json_array();
        for (int32_t first = 0, last = 0; first < world; first = last + 1) {
            json_t *categories = NULL;
            for (last = first; last + 1 < world && memcmp(&rows[last + 1], &rows[first], sizeof *rows) == 0;) last++;
            categories =
                weft_bytes_object(rows[first].category, 0, WEFT_N_MEMORY_CATEGORIES, weft_memory_category_name);
            (void)json_object_set_new(categories, "gaps", json_integer(rows[first].spare));
            (void)json_array_append_new(
                *out, json_pack("{s:i, s:i, s:I, s:o, s:o}", "first", (int)first, "last", (int)last, "total",
                                (json_int_t)rows[first].total, "categories", categories, "lines",
                                weft_bytes_object(rows[first].line, 0, WEFT_N_ACCOUNT_LINES, weft_account_name)));
        }
    }
    free(memory);
    return status;
}

/* ---- overlap ---- */

int32_t weft_overlap_of(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER:
        return instruction->what == WEFT_PAYLOAD_SUM ? WEFT_OVERLAP_REDUCE : WEFT_OVERLAP_GATHER;
    case WEFT_INSTRUCTION_REDUCE: return instruction->scope == WEFT_SCOPE_RANK ? -1 : WEFT_OVERLAP_REDUCE;
    case WEFT_INSTRUCTION_REFRESH:
    case WEFT_INSTRUCTION_SEND:
    case WEFT_INSTRUCTION_RECV: return WEFT_OVERLAP_OTHER;
    default: return -1;
    }
}

void weft_overlap_add(weft_overlap *self, const weft_trace *trace, const weft_program *program) {
    const int32_t base = weft_trace_count(trace) - program->n_instructions;
    for (int32_t i = 0; i < program->n_instructions && base >= 0; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        const bool ends = instruction->kind == WEFT_INSTRUCTION_WAIT;
        const int32_t begun = ends ? instruction->waits : i, kind = weft_overlap_of(&program->instructions[begun]);
        const weft_trace_entry *start = weft_trace_entry_at(trace, base + begun);
        const weft_trace_entry *now = weft_trace_entry_at(trace, base + i);
        if (kind < 0) continue;
        self->busy[kind] += weft_trace_seconds(now);
        if (ends) self->under_way[kind] += 1e-9 * (double)(now->end_ns - start->start_ns);
        else if (instruction->queue == 0) self->under_way[kind] += weft_trace_seconds(now);
    }
}

double weft_overlap_hidden(const weft_overlap *self, int32_t kind) {
    if (self->under_way[kind] <= 0.0) return 0.0;
    return 100.0 * (1.0 - self->busy[kind] / self->under_way[kind]);
}

void weft_overlap_print(const weft_overlap *self, int32_t kind, FILE *to) {
    char text[32] = "-";
    if (self->under_way[kind] > 0.0) (void)snprintf(text, sizeof text, "%.1f %%", weft_overlap_hidden(self, kind));
    (void)fprintf(to, " %14s", text);
}

/* ---- the reports ---- */

weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_rank_notes *notes,
                               weft_error *err) {
    const weft_engine *engine = session->engine;
    const weft_traffic *sent = engine->ranks.sent;
    const size_t world = (size_t)engine->ranks.world;
    weft_rank_report own = {.memory = memory_now(session),
                            .notes = *notes,
                            .local_rank = engine->ranks.info.local_rank};
    int64_t *sent_to = weft_alloc(world, sizeof *sent_to);
    void *ranks = NULL, *to = NULL;
    weft_status status = WEFT_OK;
    memcpy(own.device, engine->device_info.name, sizeof own.device);
    if (sent != NULL) {
        own.steps = sent->steps;
        memcpy(own.sent, sent->sent, sizeof own.sent);
        memcpy(sent_to, sent->to, world * sizeof *sent_to);
    }
    status = weft_engine_gather(engine, &ranks, &own, sizeof own, err);
    if (status == WEFT_OK) status = weft_engine_gather(engine, &to, sent_to, world * sizeof *sent_to, err);
    free(sent_to);
    out->world = engine->ranks.world;
    out->ranks = ranks;
    out->to = to;
    return status;
}

void weft_ranks_report_free(weft_ranks_report *self) {
    free(self->ranks);
    free(self->to);
    memset(self, 0, sizeof *self);
}

/* ---- the table ---- */

static int64_t sent_by(const weft_rank_report *rank) {
    int64_t sum = 0;
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++) sum += rank->sent[kind];
    return sum;
}

void weft_ranks_print(const weft_ranks_report *self, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    if (self->world == 1) return;
    (void)fprintf(to, "%-10s %17s %17s %13s %13s %18s %14s %14s\n", "rank", "planned, bytes", "taken, bytes",
                  "resident now", "at most", "sent a step, bytes", "reduce hidden", "gather hidden");
    for (int32_t r = 0; r < self->world; r++) {
        const weft_rank_report *rank = &self->ranks[r];
        (void)fprintf(to, "  %-8d %17s", (int)r, weft_unit_count(text, rank->memory.planned));
        (void)fprintf(to, " %17s", weft_unit_count(text, rank->memory.taken));
        (void)fprintf(to, " %13s", weft_unit_bytes(text, rank->memory.resident));
        (void)fprintf(to, " %13s", weft_unit_bytes(text, rank->memory.resident_peak));
        (void)fprintf(to, " %18s", weft_unit_count(text, rank->steps > 0 ? sent_by(rank) / rank->steps : 0));
        weft_overlap_print(&rank->notes.overlap, WEFT_OVERLAP_REDUCE, to);
        weft_overlap_print(&rank->notes.overlap, WEFT_OVERLAP_GATHER, to);
        (void)fputc('\n', to);
    }
}

/* ---- the file ---- */

static json_t *overlap_object(const weft_overlap *overlap) {
    static const char *const names[WEFT_N_OVERLAP] = {"gather", "reduce", "other"};
    json_t *object = json_object();
    for (int32_t kind = 0; kind < WEFT_N_OVERLAP; kind++)
        (void)json_object_set_new(object, names[kind],
                                  json_pack("{s:f, s:f, s:f}", "under_way", overlap->under_way[kind], "busy",
                                            overlap->busy[kind], "hidden", weft_overlap_hidden(overlap, kind)));
    return object;
}

/* Returns the totals of all steps, the rank's identity, and its memory after the first step; null: no step. */
static json_t *rank_object(const weft_ranks_report *self, int32_t r) {
    const weft_rank_report *rank = &self->ranks[r];
    const weft_memory_snapshot *m = &rank->memory, *first = &rank->notes.first;
    json_t *sent = weft_bytes_object(rank->sent, WEFT_TRAFFIC_OTHER + 1, WEFT_N_TRAFFIC, weft_traffic_name);
    json_t *to = json_array(), *after_first = json_null();
    if (rank->notes.first_step > 0)
        after_first = json_pack("{s:I, s:I, s:I, s:I}", "step", (json_int_t)rank->notes.first_step, "taken",
                                (json_int_t)first->taken, "resident", (json_int_t)first->resident, "resident_peak",
                                (json_int_t)first->resident_peak);
    (void)json_object_set_new(sent, "total", json_integer(sent_by(rank)));
    for (int32_t i = 0; i < self->world; i++)
        (void)json_array_append_new(to, json_integer(self->to[(size_t)r * (size_t)self->world + (size_t)i]));
    return json_pack("{s:i, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:i, s:s, s:I, s:o}", "rank", (int)r,
                     "planned", (json_int_t)m->planned, "taken", (json_int_t)m->taken, "lines",
                     weft_bytes_object(m->line, 0, WEFT_N_ACCOUNT_LINES, weft_account_name), "live",
                     (json_int_t)m->live, "resident", (json_int_t)m->resident, "resident_peak",
                     (json_int_t)m->resident_peak, "steps", (json_int_t)rank->steps, "sent", sent, "sent_to", to,
                     "seconds", overlap_object(&rank->notes.overlap), "local_rank", (int)rank->local_rank, "device",
                     rank->device, "apart", (json_int_t)m->apart, "after_first_step", after_first);
}

weft_status weft_ranks_save(const weft_ranks_report *self, json_t *run, const char *path, weft_error *err) {
    json_t *ranks = json_array(), *whole = NULL;
    char *text = NULL;
    weft_status status = WEFT_OK;
    for (int32_t r = 0; r < self->world; r++) (void)json_array_append_new(ranks, rank_object(self, r));
    whole = json_pack("{s:o, s:o}", "run", run, "ranks", ranks);
    text = whole == NULL ? NULL : json_dumps(whole, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", path);
    else status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(whole);
    return status;
}

/* ---- lines ---- */

void weft_device_line_print(const weft_device_info *info, int indent, FILE *to) {
    char threads[WEFT_UNIT_SIZE];
    (void)fprintf(to, "%-*s%s, %s, %s%s%s\n", indent, "device", info->name, info->isa, info->backend,
                  info->threads > 0 ? ", " : "",
                  info->threads > 0 ? weft_unit_counted(threads, info->threads, "thread") : "");
}

/* Returns the strategy's settings with their values: its own keys, then the host keys that it offers. */
static json_t *settings_object(const weft_run *run) {
    const weft_loaded *loaded = run->parts[WEFT_PART_STRATEGY].loaded;
    const uint64_t n = loaded->plugin->n_keys;
    json_t *object = json_object();
    for (uint64_t i = 0;; i++) {
        uint32_t flag = 0;
        const weft_key *key =
            i < n ? (const weft_key *)((const char *)loaded->plugin->keys + i * loaded->plugin->key_stride)
                  : weft_capability_at(WEFT_PART_STRATEGY, (size_t)(i - n), &flag);
        const char *value = key == NULL ? NULL : weft_config_shown(run->config, "strategy", key->name);
        if (key == NULL) return object;
        if (value != NULL && (i < n || (weft_capabilities_of(loaded) & flag) != 0))
            (void)json_object_set_new(object, key->name, json_string(value));
    }
}

/* ---- the run ---- */

static const char *precision_of(const weft_session *session) {
    return weft_dtype_name(weft_precision_dtype(session->run->settings.train.precision));
}

/* Prints precision and every plugin in one line; result: of the finished run, NULL before. */
static void print_run(const weft_session *session, const weft_run_result *result, FILE *to) {
    double lr = 0.0;
    (void)fprintf(to, "run        precision %s", precision_of(session));
    if (weft_plan_scales(&session->engine->plan))
        (void)fprintf(to, " with a loss scale of %g at first", session->run->settings.train.loss_scale);
    for (int32_t part = 0; part < WEFT_N_PARTS; part++) {
        const char *id = weft_run_id(session->run, part);
        if (id != NULL) (void)fprintf(to, ", %s %s", weft_part_name(part), id);
        if (part == WEFT_PART_OPTIMIZER && weft_engine_lr(session->engine, &lr)) (void)fprintf(to, " lr %g", lr);
    }
    if (result != NULL && result->steps > 0)
        (void)fprintf(to, "; %lld step%s, loss %.4f -> %.4f in training, lr %.3g in the last", (long long)result->steps,
                      result->steps == 1 ? "" : "s", result->first_loss, result->last_loss, result->last_lr);
    (void)fputc('\n', to);
}

/* Returns null for a loss that overflowed, which JSON cannot represent. */
static json_t *loss_json(double loss) {
    return isfinite(loss) ? json_real(loss) : json_null();
}

json_t *weft_run_object(const weft_session *session, const weft_run_result *result) {
    const weft_strategy_job *job = &session->engine->plan.train.job->spec.view;
    json_t *plugins = json_object(), *object = NULL;
    char adapters[300];
    double lr = 0.0;
    for (int32_t part = 0; part < WEFT_PART_ADAPTER; part++)
        (void)json_object_set_new(plugins, weft_part_name(part), json_string(weft_run_id(session->run, part)));
    weft_adapters_print(adapters, sizeof adapters, session->run);
    if (adapters[0] != '\0') (void)json_object_set_new(plugins, "adapter", json_string(adapters));
    object = json_pack("{s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:o}", "world", (int)job->world, "nodes", (int)job->nodes,
                       "replicas", (int)job->replicas, "micro_batches", (int)job->micro_batches, "precision",
                       precision_of(session), "plugins", plugins, "strategy", settings_object(session->run), "lr",
                       weft_engine_lr(session->engine, &lr) ? json_real(lr) : json_null());
    if (result != NULL)
        (void)json_object_update_new(object, json_pack("{s:I, s:o, s:o, s:f}", "steps", (json_int_t)result->steps,
                                                       "first_loss", loss_json(result->first_loss), "last_loss",
                                                       loss_json(result->last_loss), "last_lr", result->last_lr));
    if (weft_plan_scales(&session->engine->plan))
        (void)json_object_set_new(object, "loss_scale",
                                  json_pack("{s:f, s:I}", "scale", (double)session->engine->scale.scale,
                                            "skipped_steps", (json_int_t)session->engine->scale.skipped));
    return object;
}

/* ---- the world ---- */

void weft_world_print(const weft_session *session, int width, FILE *to) {
    const weft_strategy_job *job = &session->engine->plan.train.job->spec.view;
    json_t *settings = settings_object(session->run), *value = NULL;
    const char *separator = ": ", *name = NULL;
    (void)fprintf(to, "%-*s%d rank%s", width, "world", (int)job->world, job->world == 1 ? "" : "s");
    if (job->world > 1) (void)fprintf(to, " on %d node%s", (int)job->nodes, job->nodes == 1 ? "" : "s");
    (void)fprintf(to, ", %d replica%s of %d %s; strategy %s", (int)job->replicas, job->replicas == 1 ? "" : "s",
                  (int)job->micro_batches, job->micro_batches == 1 ? "micro-batch" : "micro-batches",
                  weft_run_id(session->run, WEFT_PART_STRATEGY));
    json_object_foreach(settings, name, value) {
        (void)fprintf(to, "%s%s %s", separator, name, json_string_value(value));
        separator = ", ";
    }
    json_decref(settings);
    (void)fputc('\n', to);
}

void weft_world_log_single_rank(const weft_session *session) {
    const char *id = weft_run_id(session->run, WEFT_PART_STRATEGY), *usual = weft_part_fallback(WEFT_PART_STRATEGY);
    if (session->engine->ranks.world > 1 || strcmp(id, usual) == 0) return;
    weft_log(session->run->host, WEFT_LOG_INFO,
             "strategy %s has one rank in this run. Fix: --ranks N for N ranks, or strategy.plugin=%s", id, usual);
}

void weft_sums_print(const weft_session *session, int width, FILE *to) {
    static const char *const names[] = {"ordered", "tree", "fast"};
    const weft_mode_plan *mode_plan = &session->engine->plan.train;
    const weft_strategy_job *job = &mode_plan->job->spec.view;
    (void)fprintf(to, "%-*sof micro-batch gradients: %s, %s%s; ", width, "sums", names[job->reduce],
                  job->reduce_dtype == WEFT_F32 ? "" : "each micro-batch rounded to ",
                  weft_dtype_name(job->reduce_dtype));
    if (mode_plan->coverage.covered) (void)fprintf(to, "deterministic across ranks\n");
    else (void)fprintf(to, "not deterministic across ranks: %s\n", mode_plan->coverage.why);
}

void weft_schedule_warn(const weft_session *session) {
    if (session->schedule.warmup < session->steps) return;
    weft_log(session->run->host, WEFT_LOG_WARN,
             "the warm-up of %lld steps is not over when the run of %lld steps ends: the learning rate never gets to "
             "%g",
             (long long)session->schedule.warmup, (long long)session->steps, session->base_lr);
}

/* Prints the stages. They are omitted if they cannot be planned. */
static void print_stages(const weft_engine *engine, FILE *to) {
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_stages stages = {0};
    if (!weft_stages_exist(&engine->plan) || weft_all_rank_plan_create(&all_rank_plan, &engine->plan, NULL) != WEFT_OK)
        return;
    weft_stages_make(&stages, &engine->plan, all_rank_plan);
    weft_stages_print(&stages, to);
    weft_stages_free(&stages);
    weft_all_rank_plan_destroy(all_rank_plan);
}

static void print_model(const weft_session *session, FILE *to) {
    const weft_declared *declared = session->engine->plan.declared;
    const int64_t all = weft_declared_numel(declared, false), trained = weft_declared_numel(declared, true);
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "model      %s, %s parameters", session->run->settings.model.path, weft_unit_count(a, all));
    if (trained == all) (void)fprintf(to, ", all trained\n");
    else
        (void)fprintf(to, ", %s trained (%.4g %%)\n", weft_unit_count(b, trained),
                      100.0 * (double)trained / (double)all);
}

static void print_data(const weft_session *session, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    (void)fprintf(to, "data       %s, %s, %s an epoch",
                  weft_unit_counted(a, (int64_t)session->train_info.documents, "document"),
                  weft_unit_counted(b, (int64_t)session->train_info.rows, "sequence"),
                  weft_unit_counted(c, (int64_t)session->train_info.targets, "target"));
    if (session->validation_info.rows > 0)
        (void)fprintf(to, "; validation %s, %s",
                      weft_unit_counted(a, (int64_t)session->validation_info.documents, "document"),
                      weft_unit_counted(b, (int64_t)session->validation_info.targets, "target"));
    (void)fputc('\n', to);
}

void weft_lr_print(const weft_session *session, int width, FILE *to) {
    const weft_train_settings *train = &session->run->settings.train;
    const double scale = weft_lr_scale(train);
    if (train->lr_scaling == WEFT_LR_AS_IT_IS) return;
    (void)fprintf(to, "%-*s%g for %lld sequences, times %g for %lld (%s): %g\n", width, "lr", session->base_lr / scale,
                  (long long)train->lr_batch, scale, (long long)train->global_batch,
                  train->lr_scaling == WEFT_LR_LINEAR ? "linear" : "sqrt", session->base_lr);
}

/* Prints a default learning rate, and its scaling. */
static void print_lr(const weft_session *session, FILE *to) {
    const weft_config *config = session->run->config;
    double lr = 0;
    char own[100];
    (void)snprintf(own, sizeof own, "optimizer.%s", weft_run_id(session->run, WEFT_PART_OPTIMIZER));
    if (!weft_config_has_key(config, "optimizer", "lr") && !weft_config_has_key(config, own, "lr") &&
        weft_engine_lr(session->engine, &lr))
        (void)fprintf(to, "lr         %g is the default of %s: [optimizer] lr is not set\n", lr,
                      weft_run_id(session->run, WEFT_PART_OPTIMIZER));
    weft_lr_print(session, 11, to);
}

static void print_batch(const weft_session *session, FILE *to) {
    const weft_train_settings *train = &session->run->settings.train;
    const int32_t micro_batches = session->engine->plan.spec.micro_batches;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "batch      %s = %d %s of %lld, %s = %.3g epochs\n",
                  weft_unit_counted(a, train->global_batch, "sequence"), micro_batches,
                  micro_batches == 1 ? "micro-batch" : "micro-batches", (long long)train->micro_batch,
                  weft_unit_counted(b, session->steps, "step"),
                  (double)session->steps * (double)train->global_batch / (double)session->train_info.rows);
}

/* Prints the training method in one line: the content of the run and world lines of --verbose. */
static void print_method(const weft_session *session, FILE *to) {
    const weft_run *run = session->run;
    const int32_t world = session->engine->ranks.world;
    char a[WEFT_UNIT_SIZE];
    (void)fprintf(to, "method     %s, lr %g, %s, strategy %s", weft_run_id(run, WEFT_PART_OPTIMIZER), session->base_lr,
                  weft_dtype_name(weft_precision_dtype(run->settings.train.precision)),
                  weft_run_id(run, WEFT_PART_STRATEGY));
    if (world > 1) (void)fprintf(to, " on %s", weft_unit_counted(a, world, "rank"));
    (void)fputc('\n', to);
}

void weft_train_header_print(const weft_session *session, const weft_memory_snapshot *planned, bool verbose, FILE *to) {
    if (!verbose) {
        print_model(session, to);
        print_data(session, to);
        print_batch(session, to);
        print_method(session, to);
        print_lr(session, to);
    } else {
        const weft_plan *plan = &session->engine->plan;
        weft_wrapped wrapped = weft_wrapped_make(plan->declared, plan->layout);
        print_run(session, NULL, to);
        print_lr(session, to);
        print_model(session, to);
        weft_wrapped_print_line(&wrapped, weft_run_id(session->run, WEFT_PART_POLICY), 11, to);
        weft_wrapped_free(&wrapped);
        print_data(session, to);
        print_batch(session, to);
        weft_world_print(session, 11, to);
        weft_batches_print(session, to);
        /* a warning is printed otherwise */
        if (session->engine->plan.train.coverage.covered) weft_sums_print(session, 11, to);
    }
    weft_device_line_print(&session->engine->device_info, 11, to);
    print_planned(planned, session, to);
    if (verbose) print_stages(session->engine, to);
    (void)fflush(to);
}

static void print_times(const weft_train_summary *s, FILE *to) {
    const double whole = weft_clock_seconds() - s->begin, busy = s->compute_seconds + s->data_seconds;
    const struct {
        const char *name;
        double seconds;
    } times[] = {{"compute", s->compute_seconds},
                 {"data", s->data_seconds},
                 {"evaluation", s->evaluate_seconds},
                 {"checkpoints", s->checkpoint_seconds},
                 {"start", whole - busy - s->evaluate_seconds - s->checkpoint_seconds}};
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE], d[WEFT_UNIT_SIZE];
    (void)fprintf(to, "trained    %s on %s in %s (%s targets/s while training)\n",
                  weft_unit_counted(a, s->result.steps, "step"), weft_unit_counted(b, s->tokens, "target"),
                  weft_unit_seconds(c, whole),
                  weft_unit_count(d, busy > 0.0 ? (int64_t)((double)s->tokens / busy) : 0));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        (void)fprintf(to, "  %-12s %10s  %5.1f %%\n", times[i].name, weft_unit_seconds(a, times[i].seconds),
                      100.0 * times[i].seconds / whole);
}

void weft_train_summary_print(const weft_train_summary *s, const weft_session *session, bool verbose, FILE *to) {
    const weft_engine *engine = session->engine;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE], d[WEFT_UNIT_SIZE], e[WEFT_UNIT_SIZE];
    const int64_t live = session->stepper->trace->high_water;
    const int64_t held = weft_account_held(&engine->account);
    char who[24] = "", at[40] = "";
    if (engine->ranks.world > 1) (void)snprintf(who, sizeof who, "rank %d: ", (int)engine->ranks.rank);
    (void)fprintf(to, "\n");
    print_times(s, to);
    if (s->first_eval_step > 0) /* of a resumed run: its start step */
        (void)snprintf(at, sizeof at, " after step %lld", (long long)s->first_eval_step);
    if (s->evaluations > 1)
        (void)fprintf(to, "loss       %.4f%s -> %.4f on validation\n", s->first_eval_loss, at, s->last_eval_loss);
    else if (s->evaluations == 1) (void)fprintf(to, "loss       %.4f on validation\n", s->last_eval_loss);
    if (weft_plan_scales(&engine->plan))
        (void)fprintf(to, "loss scale %g at the end; %lld step%s skipped, %llu updates made\n",
                      (double)engine->scale.scale, (long long)engine->scale.skipped,
                      engine->scale.skipped == 1 ? "" : "s", (unsigned long long)engine->updates);
    if (!isnan(s->similarity))
        (void)fprintf(to, "similarity %.4g, 1 less the cosine of the mean last hidden states before and after\n",
                      s->similarity);
    (void)fprintf(to, "memory     %s%s planned, %s taken; of the arena of %s, %s were live at most; libraries %s", who,
                  weft_unit_bytes(a, engine->plan.bytes.total), weft_unit_bytes(b, engine->account.most),
                  weft_unit_bytes(c, engine->plan.bytes.line[WEFT_ACCOUNT_ARENA]), weft_unit_bytes(d, live),
                  weft_unit_bytes(e, weft_library_bytes()));
    if (held > 0) (void)fprintf(to, ", and %s of the device with its context", weft_unit_bytes(a, held));
    (void)fprintf(to, "\n");
    if (verbose) print_run(session, &s->result, to);
    if (verbose) weft_world_print(session, 11, to);
    (void)fprintf(to, "model      %s\n", s->model_path);
}
