/* host/report/sent.c: see sent.h. */
#include "report/sent.h"

#include "program/exchange.h"
#include "program/norm_nodes.h"

#include <stdlib.h>

typedef struct sender {
    weft_rank_plan *out;
    const weft_plan *plan;
    const weft_job_spec *job;
    int32_t rank;
    bool out_of_memory;
} sender;

static void add_link(sender *self, const weft_link *link) {
    weft_rank_plan *out = self->out;
    weft_link *links = NULL;
    for (int32_t i = 0; i < out->n_links; i++) {
        weft_link *known = &out->links[i];
        if (known->peer != link->peer || known->scope != link->scope || known->cut.group != link->cut.group) continue;
        known->each += link->each;
        return;
    }
    links = realloc(out->links, ((size_t)out->n_links + 1) * sizeof *links);
    if (links == NULL) {
        self->out_of_memory = true;
        return;
    }
    out->links = links;
    out->links[out->n_links++] = *link;
}

/* Adds `each` bytes to each other rank of a group. */
static void count_for_group(sender *self, int32_t kind, weft_cut cut, int32_t scope, int64_t each) {
    const weft_link link = {cut, scope, -1, each};
    if (each == 0) return;
    self->out->sent[kind] += each * (weft_scope_size(&cut, scope) - 1);
    add_link(self, &link);
}

static void count_for_peer(sender *self, int32_t kind, int32_t peer, int64_t sent) {
    const int32_t world = self->job->view.world;
    const weft_link link = {{world, world, 1}, WEFT_SCOPE_RANK, peer, sent};
    if (sent == 0) return;
    self->out->sent[kind] += sent;
    add_link(self, &link);
}

static void count_instruction(sender *self, const weft_instruction *instruction) {
    const weft_planned_exchange x = weft_exchange_plan(self->plan, self->job, instruction, self->rank);
    const int32_t kind = weft_traffic_of(instruction);
    if (x.way == WEFT_EXCHANGE_SEND) count_for_peer(self, kind, x.peer, x.sent);
    else if (x.way != WEFT_EXCHANGE_NONE && x.way != WEFT_EXCHANGE_RECV)
        count_for_group(self, kind, x.cut, x.scope, x.each);
}

static void count_norm(sender *self) {
    weft_norm_exchange x = {0};
    while (weft_norm_exchange_next(self->plan, &x))
        count_for_group(self, x.goes == WEFT_NORM_GOES_LOSSES ? WEFT_TRAFFIC_LOSSES : WEFT_TRAFFIC_NORM, x.cut,
                        WEFT_SCOPE_ALL, weft_dtype_span(WEFT_F64, x.n));
}

/* Returns the part of the sent bytes that leaves the node. */
static int64_t leaves_node(const sender *self, const weft_all_rank_plan *all_rank_plan) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < self->out->n_links && all_rank_plan->nodes > 1; i++) {
        const weft_link *link = &self->out->links[i];
        for (int32_t r = 0; r < all_rank_plan->world; r++) {
            if (link->peer >= 0 ? r != link->peer : !weft_scope_together(&link->cut, link->scope, r, self->rank))
                continue;
            if (r / all_rank_plan->ranks_per_node != self->rank / all_rank_plan->ranks_per_node) bytes += link->each;
        }
    }
    return bytes;
}

weft_status weft_sent_plan(weft_rank_plan *out, const weft_all_rank_plan *all_rank_plan, const weft_plan *plan,
                           const weft_program *program, int32_t rank, weft_error *err) {
    sender self = {out, plan, &plan->train.job->spec, rank, false};
    for (int32_t i = 0; i < program->n_instructions && all_rank_plan->world > 1; i++) {
        if (program->instructions[i].kind == WEFT_INSTRUCTION_NORM) count_norm(&self);
        else count_instruction(&self, &program->instructions[i]);
    }
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++) out->total_sent += out->sent[kind];
    out->to_nodes = leaves_node(&self, all_rank_plan);
    if (!self.out_of_memory) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the links of rank %d", (int)rank);
}
