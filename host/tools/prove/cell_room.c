/* host/tools/prove/cell_room.c: see cell_room.h. */
#include "tools/prove/cell_room.h"

#include "report/axes.h"
#include "report/fit_words.h"

#include <stdlib.h>

/* What a proof varies by itself, and what it never has: no checkpoint is written. */
enum { STAYS = 1u << WEFT_FIT_SAVING | 1u << WEFT_FIT_CHECKPOINTING | 1u << WEFT_FIT_SHARDING | 1u << WEFT_FIT_MORE };

weft_status weft_cell_room_find(weft_room *out, weft_meeting *meeting, const weft_session *session, int64_t said,
                                weft_error *err) {
    const int32_t size = weft_platform_size(meeting->platform);
    weft_room *all = calloc((size_t)size, sizeof *all);
    weft_room mine;
    weft_status status = WEFT_OK;
    if (said > 0) weft_room_say(&mine, said);
    else weft_room_find(&mine, &session->engine->device_info);
    if (all == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the rooms of %d ranks", (int)size);
    status = weft_peers_agree(&meeting->peers, status, err);
    if (status == WEFT_OK) status = weft_meeting_share(meeting, all, &mine, (int64_t)sizeof mine, err);
    *out = mine;
    for (int32_t rank = 0; rank < size && status == WEFT_OK; rank++)
        if (rank == 0 || (all[rank].bytes > 0 && (out->bytes == 0 || all[rank].bytes < out->bytes))) *out = all[rank];
    free(all);
    return status;
}

static const weft_cell *fullest_cell(const weft_grid *grid) {
    const weft_cell *out = &grid->cells[0];
    for (int32_t i = 1; i < grid->n; i++)
        if (grid->cells[i].need.bytes.total > out->need.bytes.total) out = &grid->cells[i];
    return out;
}

/* The session of one rank speaks for all of its cell. */
static weft_status judge_session(const weft_session *session, const weft_fit_question *question, weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    weft_survey *survey = NULL;
    weft_fit fit;
    weft_status status = plan->world > 1 ? weft_survey_create(&survey, plan, err) : WEFT_OK;
    if (status == WEFT_OK) status = weft_fit_judge(&fit, question, survey, err);
    weft_survey_destroy(survey);
    if (status != WEFT_OK) return status;
    weft_fit_warn(&fit, session->run->host);
    return fit.fits ? WEFT_OK : weft_fit_refuse(&fit, err);
}

static weft_status judge_cell(const weft_cell *cell, const weft_course_spec *spec, const weft_room *room,
                              const weft_seat *seat, weft_error *err) {
    weft_fit_question question = {.path = spec->path, .room = *room, .stays = STAYS};
    const char **overrides = NULL;
    weft_session *session = NULL;
    char text[400];
    weft_status status = weft_course_overrides(&overrides, &question.n_overrides, spec, cell, err);
    question.overrides = overrides;
    if (status == WEFT_OK) status = weft_course_open(&session, spec, cell, seat, err);
    question.session = session;
    if (status == WEFT_OK) status = judge_session(session, &question, err);
    weft_session_close(session);
    free((void *)overrides);
    if (status == WEFT_OK) return WEFT_OK;
    weft_cell_describe(text, sizeof text, cell);
    return weft_error_prefix(err, "%s: ", text);
}

weft_status weft_cell_room_judge(const weft_grid *grid, const weft_course_spec *spec, const weft_room *room,
                                 const weft_meeting *meeting, weft_error *err) {
    const weft_cell *cell = fullest_cell(grid);
    const weft_seat seat = {meeting->platform, 0, 0, cell->ranks};
    weft_status status = WEFT_OK;
    if (weft_peers_first(&meeting->peers)) status = judge_cell(cell, spec, room, &seat, err);
    return weft_peers_agree(&meeting->peers, status, err);
}
