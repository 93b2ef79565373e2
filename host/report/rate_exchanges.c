/* host/report/rate_exchanges.c: measures collectives of a few sizes among the measuring ranks. */
#include "report/rater.h"
#include "run/connect.h"

#include <stdlib.h>

typedef struct exchanging {
    weft_engine *engine;
    weft_buffer *to, *from;
    int32_t kind;
    int64_t n; /* elements of a row */
} exchanging;

static weft_status exchange_all(const exchanging *self, weft_exchange_fn *how, int32_t peer, weft_error *err) {
    const weft_transfer what = {
        .to = {self->to, 0}, .from = {self->from, 0}, .n = self->n, .dtype = WEFT_F32, .peer = peer};
    return weft_ranks_exchange(&self->engine->ranks, how, weft_rate_exchange_name(self->kind), &what, err);
}

/* Returns the peer: ranks 0 and 1, 2 and 3, ... send to each other. -1: an odd last rank has no peer. */
static int32_t neighbour_of(const weft_ranks *ranks) {
    const int32_t peer = ranks->rank ^ 1;
    return peer < ranks->world ? peer : -1;
}

/* Connects the peers; the strategy's programs may not have connected them. */
static weft_status connect_neighbours(const weft_ranks *ranks, weft_error *err) {
    const int32_t peer = neighbour_of(ranks);
    weft_p2p_channels *lanes = NULL;
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(ranks)) return WEFT_OK;
    lanes = calloc((size_t)ranks->world, sizeof *lanes);
    if (lanes == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d ranks", (int)ranks->world);
    if (peer >= 0) lanes[peer].sends[0] = lanes[peer].takes[0] = true;
    status = weft_ranks_connect(ranks, lanes, err);
    free(lanes);
    return status;
}

/* Sends in both directions: twice the timed work. */
static weft_status send_there_and_back(const exchanging *self, weft_error *err) {
    const weft_ranks *ranks = &self->engine->ranks;
    const int32_t peer = neighbour_of(ranks);
    const bool first = ranks->rank % 2 == 0;
    weft_status status = WEFT_OK;
    if (peer < 0) return WEFT_OK;
    status = exchange_all(self, first ? ranks->plugin->send : ranks->plugin->recv, peer, err);
    return status == WEFT_OK ? exchange_all(self, first ? ranks->plugin->recv : ranks->plugin->send, peer, err)
                             : status;
}

static weft_status run_exchange(void *context, weft_error *err) {
    const exchanging *self = context;
    const weft_comm_plugin *plugin = self->engine->ranks.plugin;
    switch (self->kind) {
    case WEFT_RATE_ALL_GATHER: return exchange_all(self, plugin->all_gather, 0, err);
    case WEFT_RATE_ALL_TO_ALL: return exchange_all(self, plugin->all_to_all, 0, err);
    case WEFT_RATE_REDUCE_SCATTER: return exchange_all(self, plugin->reduce_scatter, 0, err);
    default: return send_there_and_back(self, err);
    }
}

static weft_status time_kinds(exchanging *self, weft_rates *out, int32_t size, weft_error *err) {
    const int32_t others = self->engine->ranks.world - 1;
    weft_status status = WEFT_OK;
    for (self->kind = 0; self->kind < WEFT_N_RATE_EXCHANGES && status == WEFT_OK; self->kind++) {
        double *seconds = &out->exchanges[self->kind][size];
        const bool pair = self->kind == WEFT_RATE_SEND;
        self->n = (int64_t)out->bytes[size] / weft_f32_bytes(1) / (pair ? 1 : others);
        if (self->n < 1) self->n = 1;
        status = weft_rater_time_exchange(self->engine, seconds, run_exchange, self, err);
        if (pair) *seconds /= 2.0;
    }
    return status;
}

/* Times one size: the bytes that a rank sends to the others, with its own row. */
static weft_status time_size(weft_rates *out, weft_engine *engine, int32_t size, weft_error *err) {
    exchanging self = {.engine = engine};
    const int64_t most = 2 * (int64_t)out->bytes[size] + weft_f32_bytes(engine->ranks.world);
    weft_status status = weft_rater_take(engine, &self.to, most, err);
    if (status == WEFT_OK) status = weft_rater_take(engine, &self.from, most, err);
    if (status == WEFT_OK) status = time_kinds(&self, out, size, err);
    weft_rater_give(engine, self.to);
    weft_rater_give(engine, self.from);
    return status;
}

weft_status weft_rate_exchanges(weft_rates *out, weft_engine *engine, weft_error *err) {
    static const double sizes[WEFT_RATE_SIZES] = {4096.0, 262144.0, 2097152.0, 8388608.0, 33554432.0};
    weft_status status = WEFT_OK;
    if (engine->ranks.world == 1) return WEFT_OK;
    status = connect_neighbours(&engine->ranks, err);
    for (int32_t i = 0; i < WEFT_RATE_SIZES && status == WEFT_OK; i++) {
        out->bytes[i] = sizes[i];
        status = time_size(out, engine, i, err);
    }
    return status;
}
