/* host/tools/prove/cell_memory.c: see cell_memory.h. */
#include "tools/prove/cell_memory.h"

#include "report/axes.h"
#include "report/fit_words.h"

#include <stdlib.h>

/* What a proof varies by itself, and what it never has: no checkpoint is written. */
enum { STAYS = 1u << WEFT_FIT_SAVING | 1u << WEFT_FIT_CHECKPOINTING | 1u << WEFT_FIT_SHARDING | 1u << WEFT_FIT_MORE };

weft_status weft_cell_memory_find(weft_available_memory *out, weft_meeting *meeting, const weft_session *session,
                                  int64_t said, weft_error *err) {
    const int32_t size = weft_process_context_size(meeting->process_context);
    weft_available_memory *all = calloc((size_t)size, sizeof *all);
    weft_available_memory mine;
    weft_status status = WEFT_OK;
    if (said > 0) weft_available_memory_describe(&mine, said);
    else weft_available_memory_find(&mine, &session->engine->device_info);
    if (all == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the rooms of %d ranks", (int)size);
    status = weft_process_group_agree(&meeting->peers, status, err);
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
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_fit fit;
    weft_status status = plan->world > 1 ? weft_all_rank_plan_create(&all_rank_plan, plan, err) : WEFT_OK;
    if (status == WEFT_OK) status = weft_fit_check(&fit, question, all_rank_plan, err);
    weft_all_rank_plan_destroy(all_rank_plan);
    if (status != WEFT_OK) return status;
    weft_fit_warn(&fit, session->run->host);
    return fit.fits ? WEFT_OK : weft_fit_refuse(&fit, err);
}

static weft_status judge_cell(const weft_cell *cell, const weft_verification_run_spec *spec,
                              const weft_available_memory *room, const weft_rank_span *rank_span, weft_error *err) {
    weft_fit_question question = {.path = spec->path, .room = *room, .stays = STAYS};
    const char **overrides = NULL;
    weft_session *session = NULL;
    char text[400];
    weft_status status = weft_verification_run_overrides(&overrides, &question.n_overrides, spec, cell, err);
    question.overrides = overrides;
    if (status == WEFT_OK) status = weft_verification_run_open(&session, spec, cell, rank_span, err);
    question.session = session;
    if (status == WEFT_OK) status = judge_session(session, &question, err);
    weft_session_close(session);
    free((void *)overrides);
    if (status == WEFT_OK) return WEFT_OK;
    weft_cell_describe(text, sizeof text, cell);
    return weft_error_prefix(err, "%s: ", text);
}

weft_status weft_cell_memory_judge(const weft_grid *grid, const weft_verification_run_spec *spec,
                                   const weft_available_memory *room, const weft_meeting *meeting, weft_error *err) {
    const weft_cell *cell = fullest_cell(grid);
    const weft_rank_span rank_span = {meeting->process_context, 0, 0, cell->ranks};
    weft_status status = WEFT_OK;
    if (weft_process_group_is_rank_0(&meeting->peers)) status = judge_cell(cell, spec, room, &rank_span, err);
    return weft_process_group_agree(&meeting->peers, status, err);
}
