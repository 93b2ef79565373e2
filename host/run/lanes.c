/* host/run/lanes.c: see lanes.h. */
#include "run/lanes.h"

#include "program/exchange.h"
#include "run/connect.h"
#include "run/travel.h"

#include <stdlib.h>

static bool may_be_a_message(const weft_event *event) {
    return event->kind == WEFT_EVENT_SEND || event->kind == WEFT_EVENT_RECV || event->kind == WEFT_EVENT_REFRESH;
}

static void note_lanes(weft_lanes *lanes, const weft_engine *engine, const weft_stage *stage) {
    for (int32_t i = 0; stage->program != NULL && i < stage->program->n_events; i++) {
        const weft_event *event = &stage->program->events[i];
        weft_planned_exchange planned;
        if (!may_be_a_message(event)) continue;
        planned = weft_exchange_plan(&engine->plan, &stage->job->spec, event, engine->ranks.rank);
        if (planned.way == WEFT_EXCHANGE_SEND) lanes[planned.peer].sends[weft_travel_lane(event)] = true;
        if (planned.way == WEFT_EXCHANGE_RECV) lanes[planned.peer].takes[weft_travel_lane(event)] = true;
    }
}

weft_status weft_step_connect(const weft_engine *engine, weft_error *err) {
    weft_lanes *lanes = NULL;
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(&engine->ranks)) return WEFT_OK;
    lanes = calloc((size_t)engine->ranks.world, sizeof *lanes);
    if (lanes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d ranks", (int)engine->ranks.world);
    note_lanes(lanes, engine, &engine->plan.train);
    note_lanes(lanes, engine, &engine->plan.evaluate);
    status = weft_ranks_connect(&engine->ranks, lanes, err);
    free(lanes);
    return status;
}
