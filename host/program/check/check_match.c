/* host/program/check/check_match.c: which exchanges of the ranks are one, and that all ranks get to the end.
 *
 * The programs are played against one another as if nothing were ever buffered: an exchange can end when all its ranks
 * have started it, and when the events of its queue that its rank started before it have ended. A rank goes on until it
 * stands before something that cannot end yet. Starting early never hurts another rank, so if one play gets to the end
 * all do, however fast the ranks are. Each event is looked at a fixed number of times. */
#include "program/check/check.h"

#include <stdlib.h>

typedef struct match {
    int32_t size, started;
    weft_check_place first; /* who started it first */
    int32_t waiting;        /* head of the list of ranks that wait for it, -1: none */
} match;

/* Some ranks that exchange. The k-th exchange of each is the same one. */
typedef struct group {
    weft_members ranks;
    size_t places;    /* of its members among `counts` */
    int32_t *matches; /* its exchanges in order */
    int32_t n_matches, room;
} group;

typedef struct player {
    int32_t at;        /* the event that is next, or that is started and waited for */
    bool started;      /* it is started */
    int32_t oldest[4]; /* by queue: no event before it is under way; 0 is not used */
    int32_t next;      /* of the list of those that wait for the same match */
} player;

typedef struct play {
    weft_checker *check;
    match *matches;
    int32_t n_matches, room;
    group *groups;
    int32_t n_groups;
    int32_t *counts;               /* exchanges that each member of each group has started */
    int32_t *node, *across, *pair; /* [n_units] first group of the unit's family, -1: it has none */
    int32_t *transfers;            /* [transfers] match, -1: none yet */
    size_t *events;                /* [world] where a rank's events begin in `match_of` */
    int32_t *match_of;             /* match of each event of each rank, -1: it needs nobody */
    player *players;
    int32_t *ready, n_ready; /* ranks that can go on */
    int32_t ended;           /* ranks that are at their end */
} play;

static weft_status no_memory_to_play(const play *p) {
    return weft_error_set(p->check->err, WEFT_E_MEMORY, "no memory to play the programs of %d ranks",
                          (int)p->check->world);
}

static const weft_event *event_of(const play *p, int32_t rank, int32_t i) {
    return &p->check->programs[rank]->events[i];
}

/* ---- groups ---- */

/* A family of groups that cut the world: n groups of the same size. */
static void add_family(play *p, int32_t n, int32_t stride, int32_t step, int32_t count, size_t *places) {
    for (int32_t i = 0; i < n; i++) {
        group *g = &p->groups[p->n_groups++];
        g->ranks.first = i * step;
        g->ranks.stride = stride;
        g->ranks.count = count;
        g->places = *places;
        *places += (size_t)count;
    }
}

/* Units of the same cut share their groups. */
static int32_t like_before(const play *p, int32_t u) {
    const weft_placement *placements = p->check->job->view.placements;
    for (int32_t v = 0; v < u; v++)
        if (p->node[v] >= 0 && placements[v].group == placements[u].group) return v;
    return -1;
}

static void add_shards(play *p, int32_t u, size_t *places) {
    const weft_placement *placement = &p->check->job->view.placements[u];
    const int32_t size = placement->group, world = p->check->world;
    const int32_t before = like_before(p, u);
    if (before >= 0) {
        p->node[u] = p->node[before];
        p->across[u] = p->across[before];
        return;
    }
    p->node[u] = p->n_groups;
    add_family(p, world / size, 1, size, size, places);
    p->across[u] = p->n_groups;
    add_family(p, size, size, 1, world / size, places);
}

/* An owner and the rank that borrows from it; units with the same two ranks share the group. */
static void add_pair(play *p, int32_t u, size_t *places) {
    const weft_event refresh = {.kind = WEFT_EVENT_REFRESH, .unit = u};
    const weft_members ranks = weft_job_spec_ranks(p->check->job, &refresh, p->check->units[u].owner);
    for (int32_t v = 0; v < u; v++)
        if (p->pair[v] >= 0 && memcmp(&p->groups[p->pair[v]].ranks, &ranks, sizeof ranks) == 0) {
            p->pair[u] = p->pair[v];
            return;
        }
    p->pair[u] = p->n_groups;
    add_family(p, 1, ranks.stride, ranks.first, 2, places);
    p->groups[p->pair[u]].ranks.first = ranks.first;
}

/* Groups of fewer than two ranks are made, never used and harmless; one that is the world is the world's. */
static weft_status make_groups(play *p) {
    const weft_strategy_job *view = &p->check->job->view;
    size_t places = 0, families = 1, most = 1;
    for (int32_t u = 0; u < view->n_units; u++) {
        p->node[u] = p->across[u] = p->pair[u] = -1;
        if (view->placements[u].group < 1) most++;
        else most += (size_t)(view->placements[u].group + p->check->world / view->placements[u].group);
        families++;
    }
    p->groups = calloc(most, sizeof *p->groups);
    if (p->groups == NULL) return no_memory_to_play(p);
    add_family(p, 1, 1, 0, p->check->world, &places);
    for (int32_t u = 0; u < view->n_units; u++) {
        const weft_placement *placement = &view->placements[u];
        if (p->check->units[u].borrower >= 0) add_pair(p, u, &places);
        else if (placement->parameters == WEFT_SHARDED || placement->gradients == WEFT_SHARDED ||
                 placement->optimizer == WEFT_SHARDED)
            add_shards(p, u, &places);
    }
    p->counts = calloc(places, sizeof *p->counts);
    return p->counts == NULL ? no_memory_to_play(p) : WEFT_OK;
}

/* The group of an exchange among several ranks. */
static group *group_of(play *p, const weft_event *event, const weft_members *ranks, int32_t rank) {
    const int32_t u = event->unit;
    int32_t size = 0;
    if (ranks->count == p->check->world) return &p->groups[0];
    if (p->pair[u] >= 0) return &p->groups[p->pair[u]];
    size = p->check->job->view.placements[u].group;
    if (ranks->stride == 1 && ranks->count == size && ranks->first == rank / size * size)
        return &p->groups[p->node[u] + rank / size];
    return &p->groups[p->across[u] + rank % size];
}

/* ---- matches ---- */

/* Room for one more; *items keeps what it has. */
static bool reserve_item(void **items, int32_t *room, int32_t n, size_t size) {
    const int32_t more = n < 16 ? 16 : n * 2;
    void *grown = NULL;
    if (n < *room) return true;
    grown = realloc(*items, (size_t)more * size);
    if (grown == NULL) return false;
    *items = grown;
    *room = more;
    return true;
}

/* Returns its index; -1: no memory. */
static int32_t add_match(play *p, int32_t size) {
    void *items = p->matches;
    const match none = {size, 0, {-1, -1}, -1};
    if (!reserve_item(&items, &p->room, p->n_matches, sizeof none)) return -1;
    p->matches = items;
    p->matches[p->n_matches] = none;
    return p->n_matches++;
}

/* The match of the next exchange of the rank in the group; -1: no memory. */
static int32_t next_match(play *p, group *g, int32_t rank) {
    int32_t *count = &p->counts[g->places + (size_t)((rank - g->ranks.first) / g->ranks.stride)];
    void *items = g->matches;
    if (*count == g->n_matches) {
        if (!reserve_item(&items, &g->room, g->n_matches, sizeof *g->matches)) return -1;
        g->matches = items;
        g->matches[g->n_matches] = add_match(p, g->ranks.count);
        if (g->matches[g->n_matches] < 0) return -1;
        g->n_matches++;
    }
    return g->matches[(*count)++];
}

static weft_status check_same(play *p, const match *m, int32_t rank, int32_t i) {
    const weft_event *event = event_of(p, rank, i), *other = NULL;
    char text[256];
    if (m->first.rank < 0) return WEFT_OK;
    other = event_of(p, m->first.rank, m->first.event);
    if (event->kind == other->kind && event->unit == other->unit && event->what == other->what &&
        event->scope == other->scope && (event->leaf < 0) == (other->leaf < 0))
        return WEFT_OK;
    weft_event_describe(text, sizeof text, other, p->check->job);
    return weft_check_refuse_at(
        p->check, rank, i,
        "in its place among the exchanges of these %d ranks, rank %d has event %d, %s: all must "
        "start the same ones in the same order",
        (int)m->size, (int)m->first.rank, (int)m->first.event, text);
}

/* Notes that the rank has started its event; who waited for the match and now need not is ready. */
static weft_status start_exchange(play *p, int32_t rank, int32_t i, int32_t index) {
    match *m = &p->matches[index];
    weft_status status = WEFT_OK;
    p->match_of[p->events[rank] + (size_t)i] = index;
    if (m->size > 2 || event_of(p, rank, i)->peer < 0) status = check_same(p, m, rank, i);
    if (m->started == 0) {
        m->first.rank = rank;
        m->first.event = i;
    }
    if (++m->started < m->size) return status;
    while (m->waiting >= 0) {
        p->ready[p->n_ready++] = m->waiting;
        m->waiting = p->players[m->waiting].next;
    }
    return status;
}

static weft_status start_transfer(play *p, int32_t rank, int32_t i) {
    int32_t *index = &p->transfers[weft_check_transfer(p->check, event_of(p, rank, i))];
    if (*index < 0) *index = add_match(p, 2);
    return *index < 0 ? no_memory_to_play(p) : start_exchange(p, rank, i, *index);
}

/* Starts an event. Those that need no other rank have ended by that. */
static weft_status start_event(play *p, int32_t rank, int32_t i) {
    const weft_event *event = event_of(p, rank, i);
    weft_members ranks = {0, 1, 0};
    int32_t index = -1;
    if (event->kind == WEFT_EVENT_SEND || event->kind == WEFT_EVENT_RECV) return start_transfer(p, rank, i);
    if (event->kind != WEFT_EVENT_GATHER && event->kind != WEFT_EVENT_REDUCE && event->kind != WEFT_EVENT_REFRESH &&
        event->kind != WEFT_EVENT_NORM)
        return WEFT_OK;
    ranks = weft_job_spec_ranks(p->check->job, event, rank);
    if (ranks.count < 2) return WEFT_OK;
    index = next_match(p, group_of(p, event, &ranks, rank), rank);
    return index < 0 ? no_memory_to_play(p) : start_exchange(p, rank, i, index);
}

/* ---- playing ---- */

static bool is_complete(const play *p, int32_t rank, int32_t i) {
    const int32_t index = p->match_of[p->events[rank] + (size_t)i];
    return index < 0 || p->matches[index].started == p->matches[index].size;
}

/* The event that keeps the rank's started event from ending: itself, or for a WAIT the oldest of the queue that has not
 * ended; -1: none. */
static int32_t find_blocker(play *p, int32_t rank) {
    player *self = &p->players[rank];
    const weft_event *event = event_of(p, rank, self->at);
    int32_t *oldest = NULL, queue = 0;
    if (event->kind != WEFT_EVENT_WAIT) return event->queue > 0 || is_complete(p, rank, self->at) ? -1 : self->at;
    queue = event_of(p, rank, event->waits)->queue;
    for (oldest = &self->oldest[queue]; *oldest <= event->waits; ++*oldest)
        if (event_of(p, rank, *oldest)->queue == queue && !is_complete(p, rank, *oldest)) return *oldest;
    return -1;
}

/* Lets the rank go on as far as it can. */
static weft_status go_on(play *p, int32_t rank) {
    player *self = &p->players[rank];
    weft_status status = WEFT_OK;
    while (self->at < p->check->programs[rank]->n_events) {
        int32_t open = -1;
        if (!self->started) status = start_event(p, rank, self->at);
        if (status != WEFT_OK) return status;
        self->started = true;
        open = find_blocker(p, rank);
        if (open >= 0) {
            match *m = &p->matches[p->match_of[p->events[rank] + (size_t)open]];
            self->next = m->waiting;
            m->waiting = rank;
            return WEFT_OK;
        }
        self->started = false;
        self->at++;
    }
    p->ended++;
    return WEFT_OK;
}

/* ---- a standstill ---- */

/* A rank that has not started the match; -1: none. */
static int32_t who_lacks(const play *p, int32_t rank, int32_t i) {
    const weft_event *event = event_of(p, rank, i);
    const int32_t index = p->match_of[p->events[rank] + (size_t)i];
    const weft_members ranks = weft_job_spec_ranks(p->check->job, event, rank);
    if (event->peer >= 0) return event->peer;
    for (int32_t k = 0; k < ranks.count; k++) {
        const int32_t member = ranks.first + k * ranks.stride;
        bool has = false;
        for (int32_t e = 0; e <= p->players[member].at && e < p->check->programs[member]->n_events && !has; e++)
            has = p->match_of[p->events[member] + (size_t)e] == index;
        if (!has) return member;
    }
    return -1;
}

static void describe_stuck(const play *p, int32_t rank, char *text, size_t size) {
    char event[256];
    const player *self = &p->players[rank];
    if (self->at >= p->check->programs[rank]->n_events) {
        (void)snprintf(text, size, "rank %d is at its end", (int)rank);
        return;
    }
    weft_event_describe(event, sizeof event, event_of(p, rank, self->at), p->check->job);
    (void)snprintf(text, size, "rank %d stands in event %d, %s", (int)rank, (int)self->at, event);
}

/* Follows from a stuck rank to the rank that it waits for, and on; that is where the fault shows. */
static weft_status refuse_standstill(play *p) {
    int32_t rank = 0, open = -1, other = -1, third = -1;
    char event[256], second[400], more[400] = "";
    while (p->players[rank].at >= p->check->programs[rank]->n_events) rank++;
    open = find_blocker(p, rank);
    other = who_lacks(p, rank, open);
    describe_stuck(p, other, second, sizeof second);
    if (p->players[other].at < p->check->programs[other]->n_events) {
        third = who_lacks(p, other, find_blocker(p, other));
        if (third != rank && third != other) {
            memcpy(more, " and ", 6);
            describe_stuck(p, third, more + 5, sizeof more - 5);
        }
    }
    weft_event_describe(event, sizeof event, event_of(p, rank, open), p->check->job);
    if (open == p->players[rank].at)
        return weft_check_refuse_at(
            p->check, rank, open,
            "it can never end: %d of the %d ranks never get to the end; it needs rank %d, and %s%s",
            (int)(p->check->world - p->ended), (int)p->check->world, (int)other, second, more);
    return weft_check_refuse_at(
        p->check, rank, p->players[rank].at,
        "it can never end: %d of the %d ranks never get to the end; event %d, %s, needs rank %d, "
        "and %s%s",
        (int)(p->check->world - p->ended), (int)p->check->world, (int)open, event, (int)other, second, more);
}

/* ---- the whole ---- */

static weft_status prepare_play(play *p) {
    const weft_checker *check = p->check;
    const size_t world = (size_t)check->world, units = (size_t)check->job->view.n_units;
    const size_t transfers =
        check->sent == NULL ? 0 : (size_t)check->leaves * (2 * (size_t)check->job->view.n_segments + units);
    size_t events = 0;
    p->players = calloc(world, sizeof *p->players);
    p->ready = malloc(world * sizeof *p->ready);
    p->events = malloc(world * sizeof *p->events);
    p->node = malloc((3 * units + 1) * sizeof *p->node);
    p->transfers = malloc((transfers + 1) * sizeof *p->transfers);
    if (p->players == NULL || p->ready == NULL || p->events == NULL || p->node == NULL || p->transfers == NULL)
        return no_memory_to_play(p);
    p->across = p->node + units;
    p->pair = p->across + units;
    for (size_t i = 0; i < transfers; i++) p->transfers[i] = -1;
    for (int32_t rank = check->world - 1; rank >= 0; rank--) p->ready[p->n_ready++] = rank;
    for (int32_t rank = 0; rank < check->world; rank++) {
        p->events[rank] = events;
        events += (size_t)check->programs[rank]->n_events;
    }
    p->match_of = malloc((events + 1) * sizeof *p->match_of);
    if (p->match_of == NULL) return no_memory_to_play(p);
    for (size_t i = 0; i < events; i++) p->match_of[i] = -1;
    return make_groups(p);
}

static void finish_play(play *p) {
    for (int32_t i = 0; i < p->n_groups; i++) free(p->groups[i].matches);
    free(p->groups);
    free(p->counts);
    free(p->matches);
    free(p->match_of);
    free(p->transfers);
    free(p->node);
    free(p->events);
    free(p->ready);
    free(p->players);
}

weft_status weft_check_matches(weft_checker *check) {
    play p = {.check = check};
    weft_status status = prepare_play(&p);
    while (status == WEFT_OK && p.n_ready > 0) status = go_on(&p, p.ready[--p.n_ready]);
    if (status == WEFT_OK && p.ended < check->world) status = refuse_standstill(&p);
    finish_play(&p);
    return status;
}
