/* host/report/rank_rows.c: see rank_rows.h. */
#include "report/rank_rows.h"

#include "base/resident.h"
#include "program/budget.h"

#include <stdlib.h>

void weft_rank_row_memory(weft_rank_row *out, const weft_session *session) {
    memcpy(out->line, session->engine->account.taken, sizeof out->line);
    out->live = weft_trace_high_water(session->stepper->trace);
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

static json_t *row_json(const weft_rank_row *row, int32_t rank) {
    return json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "rank", (int)rank, "phases",
                     weft_rank_row_seconds(row), "taken",
                     lines_json(row->line, WEFT_N_ACCOUNT_LINES, weft_account_name), "live", (json_int_t)row->live,
                     "apart", (json_int_t)row->apart, "libraries", (json_int_t)row->libraries, "resident",
                     (json_int_t)row->resident, "resident_peak", (json_int_t)row->peak);
}

/* Gathers [world] rows of `bytes`, complete on rank 0; on the others only their own. The caller frees them. */
static weft_status bring_rows(void **out, const weft_session *session, const void *own, size_t bytes, weft_error *err) {
    const weft_engine *engine = session->engine;
    char *rows = calloc((size_t)engine->ranks.world, bytes);
    weft_status status = WEFT_OK;
    *out = rows;
    if (rows == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the rows of %d ranks", (int)engine->ranks.world);
    else memcpy(rows + (size_t)engine->ranks.rank * bytes, own, bytes);
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status != WEFT_OK || engine->ranks.world == 1) return status;
    return weft_process_group_gather(&engine->peers, rows, (int64_t)bytes, err);
}

weft_status weft_rank_rows_array(json_t **out, const weft_session *session, const weft_rank_row *own, weft_error *err) {
    const weft_engine *engine = session->engine;
    void *memory = NULL;
    weft_status status = bring_rows(&memory, session, own, sizeof *own, err);
    const weft_rank_row *rows = memory;
    *out = NULL;
    if (status == WEFT_OK && weft_process_group_is_rank_0(&engine->peers)) {
        *out = json_array();
        for (int32_t rank = 0; rank < engine->ranks.world; rank++)
            (void)json_array_append_new(*out, row_json(&rows[rank], rank));
    }
    free(memory);
    return status;
}

static json_t *planned_json(const weft_plan_bytes *bytes, int32_t first, int32_t last) {
    json_t *object = lines_json(bytes->category, WEFT_N_MEMORY_CATEGORIES, weft_memory_category_name);
    (void)json_object_set_new(object, "gaps", json_integer(bytes->spare));
    return json_pack("{s:i, s:i, s:I, s:o, s:o}", "first", (int)first, "last", (int)last, "total",
                     (json_int_t)bytes->total, "categories", object, "lines",
                     lines_json(bytes->line, WEFT_N_ACCOUNT_LINES, weft_account_name));
}

weft_status weft_planned_array(json_t **out, const weft_session *session, weft_error *err) {
    const weft_engine *engine = session->engine;
    const int32_t world = engine->ranks.world;
    void *memory = NULL;
    weft_status status = bring_rows(&memory, session, &engine->plan.bytes, sizeof engine->plan.bytes, err);
    const weft_plan_bytes *rows = memory;
    *out = NULL;
    if (status == WEFT_OK && weft_process_group_is_rank_0(&engine->peers)) {
        *out = json_array();
        for (int32_t first = 0, last = 0; first < world; first = last + 1) {
            for (last = first; last + 1 < world && memcmp(&rows[last + 1], &rows[first], sizeof *rows) == 0;) last++;
            (void)json_array_append_new(*out, planned_json(&rows[first], first, last));
        }
    }
    free(memory);
    return status;
}
