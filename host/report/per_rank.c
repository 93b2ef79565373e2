/* host/report/per_rank.c: see per_rank.h. */
#include "report/per_rank.h"

#include "base/file.h"
#include "base/resident.h"
#include "base/units.h"
#include "program/budget.h"
#include "report/summary.h"

#include <jansson.h>
#include <stdlib.h>

static weft_status make_room_for_ranks(weft_ranks_report *self, weft_error *err) {
    const size_t world = (size_t)self->world;
    self->ranks = calloc(world, sizeof *self->ranks);
    self->to = calloc(world * world, sizeof *self->to);
    if (self->ranks != NULL && self->to != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the reports of %d ranks", (int)self->world);
}

static void report_self(weft_ranks_report *self, const weft_session *session, const weft_rank_notes *notes) {
    const weft_engine *engine = session->engine;
    weft_rank_report *own = &self->ranks[engine->ranks.rank];
    const weft_traffic *sent = engine->ranks.sent;
    own->planned = engine->plan.bytes.total;
    own->taken = engine->account.most;
    memcpy(own->line, engine->account.taken, sizeof own->line);
    own->apart = weft_account_held(&engine->account);
    own->live = weft_trace_high_water(session->stepper->trace);
    own->resident = weft_resident_now();
    own->peak = weft_resident_peak();
    own->overlap = notes->overlap;
    own->local_rank = engine->ranks.info.local_rank;
    memcpy(own->device, engine->device_info.name, sizeof own->device);
    own->first_step = notes->first_step;
    own->first = notes->first;
    if (sent == NULL) return;
    own->steps = sent->steps;
    memcpy(own->sent, sent->sent, sizeof own->sent);
    for (int32_t rank = 0; rank < self->world; rank++)
        self->to[(int64_t)engine->ranks.rank * self->world + rank] = weft_ranks_sent_to(&engine->ranks, rank);
}

weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_rank_notes *notes,
                               weft_error *err) {
    const weft_engine *engine = session->engine;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->world = engine->ranks.world;
    status = weft_process_group_agree(&engine->peers, make_room_for_ranks(out, err), err);
    if (status != WEFT_OK) return status;
    report_self(out, session, notes);
    if (out->world == 1) return WEFT_OK;
    status = weft_process_group_gather(&engine->peers, out->ranks, (int64_t)sizeof *out->ranks, err);
    if (status == WEFT_OK)
        status = weft_process_group_gather(&engine->peers, out->to, out->world * (int64_t)sizeof *out->to, err);
    return status;
}

void weft_ranks_report_free(weft_ranks_report *self) {
    free(self->ranks);
    free(self->to);
    memset(self, 0, sizeof *self);
}

/* ---- the table ---- */

static int64_t per_step(int64_t bytes, int64_t steps) {
    return steps > 0 ? bytes / steps : 0;
}

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
        (void)fprintf(to, " %18s", weft_unit_count(text, per_step(sent_by(rank), rank->steps)));
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

/* Returns the totals of all steps. */
static json_t *rank_object(const weft_ranks_report *self, int32_t r) {
    const weft_rank_report *rank = &self->ranks[r];
    json_t *sent = json_object(), *to = json_array(), *lines = json_object();
    for (int32_t i = 0; i < WEFT_N_ACCOUNT_LINES; i++)
        (void)json_object_set_new(lines, weft_account_name(i), json_integer(rank->line[i]));
    for (int32_t kind = WEFT_TRAFFIC_OTHER + 1; kind < WEFT_N_TRAFFIC; kind++)
        (void)json_object_set_new(sent, weft_traffic_name(kind), json_integer(rank->sent[kind]));
    (void)json_object_set_new(sent, "total", json_integer(sent_by(rank)));
    for (int32_t i = 0; i < self->world; i++)
        (void)json_array_append_new(to, json_integer(self->to[(size_t)r * (size_t)self->world + (size_t)i]));
    return json_pack("{s:i, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "rank", (int)r, "planned",
                     (json_int_t)rank->planned, "taken", (json_int_t)rank->taken, "lines", lines, "live",
                     (json_int_t)rank->live, "resident", (json_int_t)rank->resident, "resident_peak",
                     (json_int_t)rank->peak, "steps", (json_int_t)rank->steps, "sent", sent, "sent_to", to, "seconds",
                     overlap_object(&rank->overlap));
}

/* Adds the rank's identity, and its memory after the first step; NULL if this process ran no step. */
static void add_rest(json_t *object, const weft_rank_report *rank) {
    json_t *first = NULL;
    if (rank->first_step > 0)
        first = json_pack("{s:I, s:I, s:I, s:I}", "step", (json_int_t)rank->first_step, "taken",
                          (json_int_t)rank->first.taken, "resident", (json_int_t)rank->first.resident, "resident_peak",
                          (json_int_t)rank->first.resident_peak);
    (void)json_object_set_new(object, "local_rank", json_integer(rank->local_rank));
    (void)json_object_set_new(object, "device", json_string(rank->device));
    (void)json_object_set_new(object, "apart", json_integer(rank->apart));
    (void)json_object_set_new(object, "after_first_step", first == NULL ? json_null() : first);
}

weft_status weft_ranks_save(const weft_ranks_report *self, json_t *run, const char *path, weft_error *err) {
    json_t *ranks = json_array(), *whole = NULL;
    char *text = NULL;
    weft_status status = WEFT_OK;
    for (int32_t r = 0; r < self->world; r++) {
        json_t *one = rank_object(self, r);
        add_rest(one, &self->ranks[r]);
        (void)json_array_append_new(ranks, one);
    }
    whole = json_pack("{s:o, s:o}", "run", run, "ranks", ranks);
    text = whole == NULL ? NULL : json_dumps(whole, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", path);
    else status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(whole);
    return status;
}
