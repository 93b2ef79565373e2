/* host/measure/sent.c: see sent.h. */
#include "measure/sent.h"

#include "plan/norm_nodes.h"
#include "plan/sums.h"
#include "program/job.h"

#include <stdlib.h>

typedef struct sender {
    weft_rank_plan *out;
    const weft_plan *plan;
    const weft_job_spec *job;
    int32_t rank;
    bool out_of_memory;
} sender;

/* Everyone, whatever is cut how. */
static weft_cut cut_of_world(const sender *self) {
    const weft_cut cut = {self->job->view.world, self->job->view.world, 1};
    return cut;
}

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

/* `sent` bytes in all to the others of a group. */
static void to_group(sender *self, int32_t kind, weft_cut cut, int32_t scope, int64_t sent) {
    const int32_t others = weft_scope_size(&cut, scope) - 1;
    const weft_link link = {cut, scope, -1, others > 0 ? sent / others : 0};
    if (sent == 0) return;
    self->out->sent[kind] += sent;
    add_link(self, &link);
}

static void to_peer(sender *self, int32_t kind, int32_t peer, int64_t sent) {
    const weft_link link = {cut_of_world(self), WEFT_SCOPE_RANK, peer, sent};
    if (sent == 0) return;
    self->out->sent[kind] += sent;
    add_link(self, &link);
}

/* A second hop carries sums, which are fp32 always. */
static int64_t reduce_bytes(const weft_job_spec *job, const weft_event *event) {
    const int64_t sent = job->units[event->unit].reduce_sent[event->scope];
    const bool narrow = job->view.reduce_dtype == WEFT_BF16 && event->scope != WEFT_SCOPE_ACROSS;
    return narrow && event->leaf < 0 ? 2 * sent : sent;
}

/* An owner's update, for the rank that has a copy. */
static int64_t copy_bytes(const weft_plan *plan, const weft_job_spec *job, int32_t unit) {
    const weft_group *group = weft_sums_group(plan, unit);
    return group == NULL || weft_job_spec_borrower(job, unit) < 0 ? 0 : weft_f32_bytes(group->numel);
}

int64_t weft_sent_bytes(const weft_plan *plan, const weft_job_spec *job, const weft_event *event) {
    const weft_unit_sizes *sizes = event->unit >= 0 ? &job->units[event->unit] : NULL;
    const bool owned = sizes != NULL && job->view.placements[event->unit].parameters == WEFT_OWNED;
    switch (event->kind) {
    case WEFT_EVENT_GATHER: return event->what == WEFT_WHAT_SUM ? sizes->sum_sent : sizes->gather_sent;
    case WEFT_EVENT_REDUCE: return event->scope == WEFT_SCOPE_RANK ? 0 : reduce_bytes(job, event);
    case WEFT_EVENT_REFRESH: return owned ? copy_bytes(plan, job, event->unit) : sizes->refresh_sent;
    case WEFT_EVENT_SEND:
    case WEFT_EVENT_RECV: return sizes != NULL ? sizes->gradient : job->segments[event->segment].carry;
    default: return 0;
    }
}

static void send_copy(sender *self, int32_t unit) {
    const int32_t other = weft_job_spec_borrower(self->job, unit);
    if (other < 0 || self->job->view.placements[unit].owner != self->rank) return;
    to_peer(self, WEFT_TRAFFIC_REFRESH, other, copy_bytes(self->plan, self->job, unit));
}

static void on_collective(sender *self, const weft_event *event) {
    const weft_placement *placement = &self->job->view.placements[event->unit];
    const weft_cut cut = weft_cut_of(self->job, event->unit);
    const bool whole = placement->gradients == WEFT_REPLICATED;
    const int32_t kind = weft_traffic_of(event);
    const int64_t sent = weft_sent_bytes(self->plan, self->job, event);
    if (kind == WEFT_TRAFFIC_GATHER) to_group(self, kind, cut, WEFT_SCOPE_NODE, sent);
    else if (kind == WEFT_TRAFFIC_SUM) to_group(self, kind, cut, whole ? WEFT_SCOPE_ALL : WEFT_SCOPE_ACROSS, sent);
    else if (event->kind == WEFT_EVENT_REDUCE && event->scope != WEFT_SCOPE_RANK)
        to_group(self, kind, cut, event->scope, sent);
    else if (event->kind == WEFT_EVENT_REFRESH && placement->parameters == WEFT_OWNED) send_copy(self, event->unit);
    else if (event->kind == WEFT_EVENT_REFRESH) to_group(self, kind, cut, WEFT_SCOPE_NODE, sent);
}

/* Sums of squares of a group's cells, or of the tensors that one rank owns; and the losses. */
static void on_norm(sender *self) {
    const weft_plan *plan = self->plan;
    const int32_t world = self->job->view.world;
    weft_norm_group walk = {.group = -1};
    while (weft_norm_group_next(plan, &walk))
        to_group(self, WEFT_TRAFFIC_NORM, walk.cut, WEFT_SCOPE_ALL, 8 * walk.cells * (walk.cut.replicas - 1));
    to_group(self, WEFT_TRAFFIC_NORM, cut_of_world(self), WEFT_SCOPE_ALL, 8 * weft_norm_most_owned(plan) * (world - 1));
    to_group(self, WEFT_TRAFFIC_LOSSES, cut_of_world(self), WEFT_SCOPE_ALL,
             8 * (int64_t)plan->train.most_losses * (world - 1));
}

static void on_send(sender *self, const weft_event *event) {
    to_peer(self, WEFT_TRAFFIC_SEND, event->peer, weft_sent_bytes(self->plan, self->job, event));
}

/* Of all that is sent, what leaves the node. */
static int64_t leaves_node(const sender *self, const weft_survey *survey) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < self->out->n_links && survey->nodes > 1; i++) {
        const weft_link *link = &self->out->links[i];
        for (int32_t r = 0; r < survey->world; r++) {
            if (link->peer >= 0 ? r != link->peer : !weft_scope_together(&link->cut, link->scope, r, self->rank))
                continue;
            if (r / survey->ranks_per_node != self->rank / survey->ranks_per_node) bytes += link->each;
        }
    }
    return bytes;
}

weft_status weft_sent_plan(weft_rank_plan *out, const weft_survey *survey, const weft_plan *plan,
                           const weft_program *program, int32_t rank, weft_error *err) {
    sender self = {out, plan, &plan->train.job->spec, rank, false};
    for (int32_t i = 0; i < program->n_events && survey->world > 1; i++) {
        const weft_event *event = &program->events[i];
        if (event->kind == WEFT_EVENT_NORM) on_norm(&self);
        else if (event->kind == WEFT_EVENT_SEND) on_send(&self, event);
        else if (event->unit >= 0 && event->kind != WEFT_EVENT_RECV) on_collective(&self, event);
    }
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++) out->total_sent += out->sent[kind];
    out->to_nodes = leaves_node(&self, survey);
    if (!self.out_of_memory) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the links of rank %d", (int)rank);
}
