/* host/run/traffic.c: see traffic.h. */
#include "run/traffic.h"

void weft_traffic_add(weft_traffic *to, const weft_traffic *more, int32_t world) {
    for (int kind = 0; kind < WEFT_N_TRAFFIC; kind++) to->sent[kind] += more->sent[kind];
    for (int32_t rank = 0; rank < world; rank++) to->to[rank] += more->to[rank];
    for (int cut = 0; cut < WEFT_MAX_CUTS; cut++)
        for (int scope = 0; scope <= WEFT_SCOPE_ACROSS; scope++) to->each[cut][scope] += more->each[cut][scope];
    to->everyone += more->everyone;
    to->steps += more->steps;
}

const char *weft_traffic_name(int32_t kind) {
    static const char *const names[WEFT_N_TRAFFIC] = {"other",       "gather",        "gather sum", "reduce all",
                                                      "reduce node", "reduce across", "refresh",    "send",
                                                      "norm",        "losses"};
    return names[kind >= 0 && kind < WEFT_N_TRAFFIC ? kind : WEFT_TRAFFIC_OTHER];
}

static int32_t traffic_of_reduce(int32_t scope) {
    switch (scope) {
    case WEFT_SCOPE_ALL: return WEFT_TRAFFIC_REDUCE_ALL;
    case WEFT_SCOPE_NODE: return WEFT_TRAFFIC_REDUCE_NODE;
    case WEFT_SCOPE_ACROSS: return WEFT_TRAFFIC_REDUCE_ACROSS;
    default: return WEFT_TRAFFIC_OTHER;
    }
}

int32_t weft_traffic_of(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER: return instruction->what == WEFT_PAYLOAD_SUM ? WEFT_TRAFFIC_SUM : WEFT_TRAFFIC_GATHER;
    case WEFT_INSTRUCTION_REDUCE: return traffic_of_reduce(instruction->scope);
    case WEFT_INSTRUCTION_REFRESH: return WEFT_TRAFFIC_REFRESH;
    case WEFT_INSTRUCTION_SEND: return WEFT_TRAFFIC_SEND;
    default: return WEFT_TRAFFIC_OTHER;
    }
}
