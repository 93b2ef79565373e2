/* host/report/need.c: see need.h. */
#include "report/need.h"

void weft_need_add(weft_need *need, const weft_plan_bytes *one) {
    weft_plan_bytes *sum = &need->bytes;
    need->ranks++;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) sum->line[i] += one->line[i];
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) sum->category[i] += one->category[i];
    sum->total += one->total;
    sum->spare += one->spare;
}

void weft_need_survey(weft_need *out, const weft_survey *survey, const weft_room *room) {
    const int32_t together = room->shared ? survey->ranks_per_node : 1;
    memset(out, 0, sizeof *out);
    for (int32_t first = 0; first < survey->world; first += together) {
        weft_need one = {.first = first};
        for (int32_t r = first; r < first + together && r < survey->world; r++)
            weft_need_add(&one, &survey->ranks[r].bytes);
        if (one.bytes.total > out->bytes.total) *out = one;
    }
}

weft_status weft_need_plan(weft_need *out, const weft_plan *plan, const weft_room *room, weft_error *err) {
    const weft_need alone = {.bytes = plan->bytes, .ranks = 1};
    weft_survey *survey = NULL;
    weft_status status = WEFT_OK;
    *out = alone;
    if (plan->world == 1) return WEFT_OK;
    status = weft_survey_create(&survey, plan, err);
    if (status == WEFT_OK) weft_need_survey(out, survey, room);
    weft_survey_destroy(survey);
    return status;
}

bool weft_need_fits(const weft_need *need, const weft_room *room) {
    return room->bytes == 0 || need->bytes.total <= room->bytes;
}

bool weft_need_is_tight(const weft_need *need, const weft_room *room) {
    return room->free >= 0 && need->bytes.total > room->free;
}

weft_memory_category weft_need_largest(const weft_need *need) {
    int largest = 0;
    for (int i = 1; i < WEFT_N_MEMORY_CATEGORIES; i++)
        if (need->bytes.category[i] > need->bytes.category[largest]) largest = i;
    return (weft_memory_category)largest;
}
