/* host/run/p2p_channels.c: see p2p_channels.h. */
#include "run/p2p_channels.h"

#include "program/exchange.h"
#include "run/connect.h"
#include "run/communication.h"

#include <stdlib.h>

static bool may_be_a_message(const weft_instruction *instruction) {
    return instruction->kind == WEFT_INSTRUCTION_SEND || instruction->kind == WEFT_INSTRUCTION_RECV ||
           instruction->kind == WEFT_INSTRUCTION_REFRESH;
}

static void note_channels(weft_p2p_channels *lanes, const weft_engine *engine, const weft_mode_plan *mode_plan) {
    for (int32_t i = 0; mode_plan->program != NULL && i < mode_plan->program->n_instructions; i++) {
        const weft_instruction *instruction = &mode_plan->program->instructions[i];
        weft_planned_exchange planned;
        if (!may_be_a_message(instruction)) continue;
        planned = weft_exchange_plan(&engine->plan, &mode_plan->job->spec, instruction, engine->ranks.rank);
        if (planned.way == WEFT_EXCHANGE_SEND) lanes[planned.peer].sends[weft_communication_lane(instruction)] = true;
        if (planned.way == WEFT_EXCHANGE_RECV) lanes[planned.peer].takes[weft_communication_lane(instruction)] = true;
    }
}

weft_status weft_step_connect(const weft_engine *engine, weft_error *err) {
    weft_p2p_channels *lanes = NULL;
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(&engine->ranks)) return WEFT_OK;
    lanes = calloc((size_t)engine->ranks.world, sizeof *lanes);
    if (lanes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d ranks", (int)engine->ranks.world);
    note_channels(lanes, engine, &engine->plan.train);
    note_channels(lanes, engine, &engine->plan.evaluate);
    status = weft_ranks_connect(&engine->ranks, lanes, err);
    free(lanes);
    return status;
}
