/* host/train/per_rank.c: see per_rank.h. */
#include "train/per_rank.h"

#include "base/machine.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "program/budget.h"

#include <stdlib.h>

json_t *weft_bytes_object(const int64_t *bytes, int first, int n, const char *(*name)(int32_t index)) {
    json_t *object = json_object();
    for (int i = first; i < n; i++) (void)json_object_set_new(object, name(i), json_integer(bytes[i]));
    return object;
}

weft_status weft_rank_structs_gather(void **out, const weft_engine *engine, const void *own, size_t bytes,
                                     weft_error *err) {
    char *all = weft_alloc(engine->ranks.world, bytes);
    *out = all;
    memcpy(all + (size_t)engine->ranks.rank * bytes, own, bytes);
    return engine->ranks.world == 1 ? WEFT_OK : weft_process_group_gather(&engine->peers, all, (int64_t)bytes, err);
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
    const weft_status status = weft_rank_structs_gather(&all, session->engine, &own, sizeof own, err);
    *out = all;
    return status;
}

void weft_memory_snapshots_print_planned(const weft_memory_snapshot *moments, const weft_session *session, int width,
                                         FILE *to) {
    const weft_ranks *ranks = &session->engine->ranks;
    int32_t most = ranks->rank;
    bool alike = ranks->rank == 0;
    char text[WEFT_UNIT_SIZE];
    for (int32_t r = 1; ranks->rank == 0 && r < ranks->world; r++) {
        alike = alike && moments[r].planned == moments[0].planned;
        if (moments[r].planned > moments[most].planned) most = r;
    }
    (void)fprintf(to, "%-*s%s planned", width, "memory", weft_unit_bytes(text, moments[most].planned));
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
    status = weft_rank_structs_gather(&memory, engine, &own, sizeof own, err);
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
    const weft_status status =
        weft_rank_structs_gather(&memory, engine, &engine->plan.bytes, sizeof engine->plan.bytes, err);
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
    status = weft_rank_structs_gather(&ranks, engine, &own, sizeof own, err);
    if (status == WEFT_OK) status = weft_rank_structs_gather(&to, engine, sent_to, world * sizeof *sent_to, err);
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
