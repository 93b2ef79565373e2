/* host/report/check_fit.c: see check_fit.h. */
#include "report/check_fit.h"

#include <stdlib.h>

static weft_status judge_need(weft_fit *fit, const weft_fit_question *question, weft_error *err) {
    weft_fit_question of = *question;
    of.room = fit->room;
    fit->fits = weft_required_memory_fits(&fit->need, &fit->room);
    return fit->fits ? WEFT_OK : weft_fit_changes_find(&fit->changes, &of, err);
}

weft_status weft_fit_check(weft_fit *out, const weft_fit_question *question, const weft_all_rank_plan *all_rank_plan,
                           weft_error *err) {
    const weft_required_memory alone = {.bytes = question->session->engine->plan.bytes, .ranks = 1};
    memset(out, 0, sizeof *out);
    out->room = question->room;
    out->need = alone;
    out->world = all_rank_plan == NULL ? 1 : all_rank_plan->world;
    if (all_rank_plan != NULL) weft_required_memory_all_ranks(&out->need, all_rank_plan, &question->room);
    return judge_need(out, question, err);
}

/* A rank's plan, and its available memory. */
typedef struct wanted {
    weft_plan_bytes bytes;
    weft_available_memory room;
} wanted;

static bool ranks_share(const weft_ranks *ranks, const wanted *all, int32_t a, int32_t b) {
    const int32_t *nodes = ranks->process_context->nodes + ranks->base;
    return a == b || (all[a].room.shared && nodes[a] == nodes[b]);
}

/* Returns the requirement of all ranks that share this rank's memory. */
static weft_required_memory need_beside(const weft_ranks *ranks, const wanted *all, int32_t rank) {
    weft_required_memory need = {.first = rank};
    for (int32_t r = rank; r < ranks->world; r++)
        if (ranks_share(ranks, all, rank, r)) weft_required_memory_add(&need, &all[r].bytes);
    return need;
}

/* Returns the fraction of the available memory that is required. */
static double part_of_room(const weft_required_memory *need, const weft_available_memory *room) {
    return room->bytes > 0 ? (double)need->bytes.total / (double)room->bytes : 0.0;
}

/* Finds the fullest memory; the first of the ranks that share one represents all. */
static void find_fullest(weft_fit *out, const weft_ranks *ranks, const wanted *all) {
    for (int32_t rank = 0; rank < ranks->world; rank++) {
        const weft_required_memory need = need_beside(ranks, all, rank);
        if (rank > 0 && part_of_room(&need, &all[rank].room) <= part_of_room(&out->need, &out->room)) continue;
        out->need = need;
        out->room = all[rank].room;
    }
}

weft_status weft_fit_check_ranks(weft_fit *out, const weft_fit_question *question, weft_error *err) {
    const weft_engine *engine = question->session->engine;
    const weft_ranks *ranks = &engine->ranks;
    wanted *all = NULL;
    weft_status status = WEFT_OK;
    if (ranks->world == 1) return weft_fit_check(out, question, NULL, err);
    memset(out, 0, sizeof *out);
    out->world = ranks->world;
    all = calloc((size_t)ranks->world, sizeof *all);
    if (all == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what %d ranks want", (int)ranks->world);
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status == WEFT_OK) {
        all[ranks->rank].bytes = engine->plan.bytes;
        all[ranks->rank].room = question->room;
        status = weft_process_group_gather(&engine->peers, all, (int64_t)sizeof *all, err);
    }
    if (status == WEFT_OK && ranks->rank == 0) {
        find_fullest(out, ranks, all);
        status = judge_need(out, question, err);
    }
    free(all);
    return weft_process_group_agree(&engine->peers, status, err);
}
