/* host/report/per_rank.c: see per_rank.h. */
#include "report/per_rank.h"

#include "base/file.h"
#include "base/machine.h"
#include "base/alloc.h"
#include "base/units.h"
#include "program/budget.h"
#include "report/summary.h"

#include <stdlib.h>

void weft_rank_row_memory(weft_rank_row *out, const weft_session *session) {
    memcpy(out->line, session->engine->account.taken, sizeof out->line);
    out->live = session->stepper->trace->high_water;
    out->resident = weft_resident_now();
    out->peak = weft_resident_peak();
    out->libraries = weft_library_bytes();
    out->apart = weft_account_held(&session->engine->account);
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

static json_t *lines_json(const int64_t *bytes, int32_t n, const char *(*name)(int32_t)) {
    json_t *object = json_object();
    for (int32_t i = 0; i < n; i++) (void)json_object_set_new(object, name(i), json_integer(bytes[i]));
    return object;
}

weft_status weft_rank_rows_array(json_t **out, const weft_session *session, const weft_rank_row *own, weft_error *err) {
    const weft_engine *engine = session->engine;
    void *memory = NULL;
    const weft_status status = weft_rank_structs_gather(&memory, engine, own, sizeof *own, err);
    const weft_rank_row *rows = memory;
    *out = NULL;
    if (status == WEFT_OK && weft_process_group_is_rank_0(&engine->peers)) {
        *out = json_array();
        for (int32_t rank = 0; rank < engine->ranks.world; rank++) {
            const weft_rank_row *row = &rows[rank];
            (void)json_array_append_new(*out,
                                        json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "rank", (int)rank,
                                                  "phases", weft_rank_row_seconds(row), "taken",
                                                  lines_json(row->line, WEFT_N_ACCOUNT_LINES, weft_account_name),
                                                  "live", (json_int_t)row->live, "apart", (json_int_t)row->apart,
                                                  "libraries", (json_int_t)row->libraries, "resident",
                                                  (json_int_t)row->resident, "resident_peak", (json_int_t)row->peak));
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
            categories = lines_json(rows[first].category, WEFT_N_MEMORY_CATEGORIES, weft_memory_category_name);
            (void)json_object_set_new(categories, "gaps", json_integer(rows[first].spare));
            (void)json_array_append_new(
                *out, json_pack("{s:i, s:i, s:I, s:o, s:o}", "first", (int)first, "last", (int)last, "total",
                                (json_int_t)rows[first].total, "categories", categories, "lines",
                                lines_json(rows[first].line, WEFT_N_ACCOUNT_LINES, weft_account_name)));
        }
    }
    free(memory);
    return status;
}

weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_rank_notes *notes,
                               weft_error *err) {
    const weft_engine *engine = session->engine;
    const weft_traffic *sent = engine->ranks.sent;
    const size_t world = (size_t)engine->ranks.world;
    weft_rank_report own = {.planned = engine->plan.bytes.total,
                            .taken = engine->account.most,
                            .apart = weft_account_held(&engine->account),
                            .live = session->stepper->trace->high_water,
                            .resident = weft_resident_now(),
                            .peak = weft_resident_peak(),
                            .overlap = notes->overlap,
                            .local_rank = engine->ranks.info.local_rank,
                            .first_step = notes->first_step,
                            .first = notes->first};
    int64_t *sent_to = weft_alloc(world, sizeof *sent_to);
    void *ranks = NULL, *to = NULL;
    weft_status status = WEFT_OK;
    memcpy(own.line, engine->account.taken, sizeof own.line);
    memcpy(own.device, engine->device_info.name, sizeof own.device);
    if (sent != NULL) {
        own.steps = sent->steps;
        memcpy(own.sent, sent->sent, sizeof own.sent);
        for (size_t rank = 0; rank < world; rank++) sent_to[rank] = weft_ranks_sent_to(&engine->ranks, (int32_t)rank);
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
        (void)fprintf(to, "  %-8d %17s", (int)r, weft_unit_count(text, rank->planned));
        (void)fprintf(to, " %17s", weft_unit_count(text, rank->taken));
        (void)fprintf(to, " %13s", weft_unit_bytes(text, rank->resident));
        (void)fprintf(to, " %13s", weft_unit_bytes(text, rank->peak));
        (void)fprintf(to, " %18s", weft_unit_count(text, rank->steps > 0 ? sent_by(rank) / rank->steps : 0));
        weft_overlap_print(&rank->overlap, WEFT_OVERLAP_REDUCE, to);
        weft_overlap_print(&rank->overlap, WEFT_OVERLAP_GATHER, to);
        (void)fputc('\n', to);
    }
}

/* ---- the file ---- */

static json_t *overlap_object(const weft_overlap *overlap) {
    json_t *object = json_object();
    for (int32_t kind = 0; kind < WEFT_N_OVERLAP; kind++)
        (void)json_object_set_new(object, weft_overlap_name(kind),
                                  json_pack("{s:f, s:f, s:f}", "under_way", overlap->under_way[kind], "busy",
                                            overlap->busy[kind], "hidden", weft_overlap_hidden(overlap, kind)));
    return object;
}

/* Returns the totals of all steps, the rank's identity, and its memory after the first step; null: no step. */
static json_t *rank_object(const weft_ranks_report *self, int32_t r) {
    const weft_rank_report *rank = &self->ranks[r];
    json_t *sent = json_object(), *to = json_array(), *first = json_null();
    if (rank->first_step > 0)
        first = json_pack("{s:I, s:I, s:I, s:I}", "step", (json_int_t)rank->first_step, "taken",
                          (json_int_t)rank->first.taken, "resident", (json_int_t)rank->first.resident, "resident_peak",
                          (json_int_t)rank->first.resident_peak);
    for (int32_t kind = WEFT_TRAFFIC_OTHER + 1; kind < WEFT_N_TRAFFIC; kind++)
        (void)json_object_set_new(sent, weft_traffic_name(kind), json_integer(rank->sent[kind]));
    (void)json_object_set_new(sent, "total", json_integer(sent_by(rank)));
    for (int32_t i = 0; i < self->world; i++)
        (void)json_array_append_new(to, json_integer(self->to[(size_t)r * (size_t)self->world + (size_t)i]));
    return json_pack("{s:i, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:i, s:s, s:I, s:o}", "rank", (int)r,
                     "planned", (json_int_t)rank->planned, "taken", (json_int_t)rank->taken, "lines",
                     lines_json(rank->line, WEFT_N_ACCOUNT_LINES, weft_account_name), "live", (json_int_t)rank->live,
                     "resident", (json_int_t)rank->resident, "resident_peak", (json_int_t)rank->peak, "steps",
                     (json_int_t)rank->steps, "sent", sent, "sent_to", to, "seconds", overlap_object(&rank->overlap),
                     "local_rank", (int)rank->local_rank, "device", rank->device, "apart", (json_int_t)rank->apart,
                     "after_first_step", first);
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
