/* host/run/in_flight.c: see in_flight.h. */
#include "run/in_flight.h"

#include <stdlib.h>

/* Exchanges of one instruction: up to two per group of its unit. */
typedef struct flight {
    weft_comm_handle *handles[WEFT_IN_FLIGHT_EXCHANGES];
} flight;

struct weft_flights {
    flight *of_instruction; /* [n_instructions] of the largest program */
    weft_fold *folds;       /* [n_units][2] by hop */
    int32_t n_flying;       /* handles that are not joined */
};

weft_status weft_in_flight_create(weft_flights **out, const weft_engine *engine, weft_error *err) {
    weft_flights *flights = calloc(1, sizeof *flights);
    if (flights != NULL) {
        flights->of_instruction =
            calloc((size_t)weft_plan_most_instructions(&engine->plan) + 1, sizeof *flights->of_instruction);
        flights->folds = calloc(2 * (size_t)engine->plan.layout->n_units + 1, sizeof *flights->folds);
    }
    if (flights == NULL || flights->of_instruction == NULL || flights->folds == NULL) {
        weft_in_flight_destroy(flights);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for what travels in a step");
    }
    *out = flights;
    return WEFT_OK;
}

void weft_in_flight_destroy(weft_flights *flights) {
    if (flights == NULL) return;
    free(flights->of_instruction);
    free(flights->folds);
    free(flights);
}

void weft_in_flight_begin(weft_stepper *self) {
    const weft_mode_plan *mode_plan = self->mode_plan;
    self->flights->n_flying = 0;
    for (int32_t i = 0; mode_plan->sums != NULL && i < 2 * self->engine->plan.layout->n_units; i++)
        self->flights->folds[i] = weft_fold_begin(mode_plan->job->spec.view.reduce, mode_plan->program->micro_batches,
                                                  mode_plan->sums[i / 2].loose);
}

bool weft_in_flight_under_way(const weft_stepper *self) {
    return self->flights->n_flying > 0 && self->engine->ranks.plugin->poke != NULL;
}

void weft_in_flight_poke(void *stepper) {
    weft_stepper *self = stepper;
    weft_ranks_poke(&self->engine->ranks);
}

static flight *flight_of(const weft_stepper *self, const weft_instruction *instruction) {
    return &self->flights->of_instruction[instruction - self->mode_plan->program->instructions];
}

weft_status weft_in_flight_finish(void *context, const weft_instruction *instruction,
                                  const weft_instruction_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    flight *f = flight_of(self, instruction);
    weft_status status = WEFT_OK;
    (void)slots;
    for (int i = 0; i < WEFT_IN_FLIGHT_EXCHANGES && status == WEFT_OK; i++) {
        self->flights->n_flying -= f->handles[i] != NULL;
        status = weft_ranks_join(&self->engine->ranks, &f->handles[i], NULL, err);
    }
    return status;
}

weft_status weft_in_flight_depart(weft_stepper *self, const weft_instruction *instruction, weft_stream **out,
                                  weft_error *err) {
    return weft_stream_sync_fork(&self->order, out, instruction->queue, err);
}

weft_transfer weft_in_flight_transfer(const weft_stepper *self, const weft_planned_exchange *planned) {
    const weft_ranks *ranks = &self->engine->ranks;
    const weft_transfer out = {.group = planned->scope == 0 ? ranks->everyone
                                                            : weft_ranks_group_of(ranks, &planned->cut, planned->scope),
                               .n = planned->n,
                               .dtype = planned->dtype,
                               .peer = planned->peer};
    return out;
}

/* A function of the communicator, and the name of its slot. */
typedef struct means {
    weft_exchange_fn *function;
    const char *name;
} means;

static means means_of(const weft_comm_plugin *plugin, int32_t way) {
    switch (way) {
    case WEFT_EXCHANGE_ALL_GATHER: return (means){plugin->all_gather, "all_gather"};
    case WEFT_EXCHANGE_ALL_TO_ALL: return (means){plugin->all_to_all, "all_to_all"};
    case WEFT_EXCHANGE_REDUCE_SCATTER: return (means){plugin->reduce_scatter, "reduce_scatter"};
    case WEFT_EXCHANGE_SEND: return (means){plugin->send, "send"};
    default: return (means){plugin->recv, "recv"};
    }
}

weft_status weft_in_flight_set_out(weft_stepper *self, const weft_instruction *instruction, int which, int32_t way,
                                   const weft_transfer *what, weft_error *err) {
    const means how = means_of(self->engine->ranks.plugin, way);
    weft_transfer transfer = *what;
    weft_status status = WEFT_OK;
    transfer.traffic = weft_traffic_of(instruction);
    status = weft_ranks_start(&self->engine->ranks, &flight_of(self, instruction)->handles[which], how.function,
                              how.name, &transfer, err);
    self->flights->n_flying += status == WEFT_OK;
    return status;
}

weft_fold *weft_in_flight_fold(const weft_stepper *self, int32_t unit, int hop) {
    return &self->flights->folds[2 * unit + hop];
}
