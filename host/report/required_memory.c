/* host/report/required_memory.c: see required_memory.h. */
#include "report/required_memory.h"

void weft_required_memory_add(weft_required_memory *need, const weft_plan_bytes *one) {
    weft_plan_bytes *sum = &need->bytes;
    need->ranks++;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) sum->line[i] += one->line[i];
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) sum->category[i] += one->category[i];
    sum->total += one->total;
    sum->spare += one->spare;
}

void weft_required_memory_all_ranks(weft_required_memory *out, const weft_all_rank_plan *all_rank_plan,
                                    const weft_available_memory *room) {
    const int32_t together = room->shared ? all_rank_plan->ranks_per_node : 1;
    memset(out, 0, sizeof *out);
    for (int32_t first = 0; first < all_rank_plan->world; first += together) {
        weft_required_memory one = {.first = first};
        for (int32_t r = first; r < first + together && r < all_rank_plan->world; r++)
            weft_required_memory_add(&one, &all_rank_plan->ranks[r].bytes);
        if (one.bytes.total > out->bytes.total) *out = one;
    }
}

weft_status weft_required_memory_plan(weft_required_memory *out, const weft_plan *plan,
                                      const weft_available_memory *room, weft_error *err) {
    const weft_required_memory alone = {.bytes = plan->bytes, .ranks = 1};
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_status status = WEFT_OK;
    *out = alone;
    if (plan->world == 1) return WEFT_OK;
    status = weft_all_rank_plan_create(&all_rank_plan, plan, err);
    if (status == WEFT_OK) weft_required_memory_all_ranks(out, all_rank_plan, room);
    weft_all_rank_plan_destroy(all_rank_plan);
    return status;
}

bool weft_required_memory_fits(const weft_required_memory *need, const weft_available_memory *room) {
    return room->bytes == 0 || need->bytes.total <= room->bytes;
}

bool weft_required_memory_is_tight(const weft_required_memory *need, const weft_available_memory *room) {
    return room->free >= 0 && need->bytes.total > room->free;
}

weft_memory_category weft_required_memory_largest(const weft_required_memory *need) {
    int largest = 0;
    for (int i = 1; i < WEFT_N_MEMORY_CATEGORIES; i++)
        if (need->bytes.category[i] > need->bytes.category[largest]) largest = i;
    return (weft_memory_category)largest;
}
