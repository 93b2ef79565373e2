/* host/program/check/check_match.c: which exchanges of the ranks are one, and that all ranks get to the end.
 *
 * The programs are played against one another as if nothing were ever buffered: an exchange can end when all its ranks
 * have started it, and when the instructions of its queue that its rank started before it have ended. A rank goes on
 * until it stands before something that cannot end yet. Starting early never hurts another rank, so if one play gets
 * to the end all do, however fast the ranks are. Each instruction is looked at a fixed number of times. */
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
    int32_t at;        /* the instruction that is next, or that is started and waited for */
    bool started;      /* it is started */
    int32_t oldest[4]; /* by queue: no instruction before it is under way; 0 is not used */
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
    size_t *instructions;          /* [world] where a rank's instructions begin in `match_of` */
    int32_t *match_of;             /* match of each instruction of each rank, -1: it needs nobody */
    player *players;
    int32_t *ready, n_ready; /* ranks that can go on */
    int32_t ended;           /* ranks that are at their end */
} play;

static weft_status no_memory_to_play(const play *p) {
    return weft_error_set(p->check->err, WEFT_E_MEMORY, "no memory to play the programs of %d ranks",
                          (int)p->check->world);
}

static const weft_instruction *instruction_of(const play *p, int32_t rank, int32_t i) {
    return &p->check->programs[rank]->instructions[i];
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
    const weft_instruction refresh = {.kind = WEFT_INSTRUCTION_REFRESH, .unit = u};
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
static group *group_of(play *p, const weft_instruction *instruction, const weft_members *ranks, int32_t rank) {
    const int32_t u = instruction->unit;
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
    const weft_instruction *instruction = instruction_of(p, rank, i), *other = NULL;
    char text[256];
    if (m->first.rank < 0) return WEFT_OK;
    other = instruction_of(p, m->first.rank, m->first.instruction);
    if (instruction->kind == other->kind && instruction->unit == other->unit && instruction->what == other->what &&
        instruction->scope == other->scope && (instruction->micro_batch < 0) == (other->micro_batch < 0))
        return WEFT_OK;
    weft_instruction_describe(text, sizeof text, other, p->check->job);
    return weft_check_refuse_at(
        p->check, rank, i,
        "in its place among the exchanges of these %d ranks, rank %d has instruction %d, %s: all must "
        "start the same ones in the same order",
        (int)m->size, (int)m->first.rank, (int)m->first.instruction, text);
}

/* Notes that the rank has started its instruction; who waited for the match and now need not is ready. */
static weft_status start_exchange(play *p, int32_t rank, int32_t i, int32_t index) {
    match *m = &p->matches[index];
    weft_status status = WEFT_OK;
    p->match_of[p->instructions[rank] + (size_t)i] = index;
    if (m->size > 2 || instruction_of(p, rank, i)->peer < 0) status = check_same(p, m, rank, i);
    if (m->started == 0) {
        m->first.rank = rank;
        m->first.instruction = i;
    }
    if (++m->started < m->size) return status;
    while (m->waiting >= 0) {
        p->ready[p->n_ready++] = m->waiting;
        m->waiting = p->players[m->waiting].next;
    }
    return status;
}

static weft_status start_transfer(play *p, int32_t rank, int32_t i) {
    int32_t *index = &p->transfers[weft_check_transfer(p->check, instruction_of(p, rank, i))];
    if (*index < 0) *index = add_match(p, 2);
    return *index < 0 ? no_memory_to_play(p) : start_exchange(p, rank, i, *index);
}

/* Starts an instruction. Those that need no other rank have ended by that. */
static weft_status start_instruction(play *p, int32_t rank, int32_t i) {
    const weft_instruction *instruction = instruction_of(p, rank, i);
    weft_members ranks = {0, 1, 0};
    int32_t index = -1;
    if (instruction->kind == WEFT_INSTRUCTION_SEND || instruction->kind == WEFT_INSTRUCTION_RECV)
        return start_transfer(p, rank, i);
    if (instruction->kind != WEFT_INSTRUCTION_GATHER && instruction->kind != WEFT_INSTRUCTION_REDUCE &&
        instruction->kind != WEFT_INSTRUCTION_REFRESH && instruction->kind != WEFT_INSTRUCTION_NORM)
        return WEFT_OK;
    ranks = weft_job_spec_ranks(p->check->job, instruction, rank);
    if (ranks.count < 2) return WEFT_OK;
    index = next_match(p, group_of(p, instruction, &ranks, rank), rank);
    return index < 0 ? no_memory_to_play(p) : start_exchange(p, rank, i, index);
}

/* ---- playing ---- */

static bool is_complete(const play *p, int32_t rank, int32_t i) {
    const int32_t index = p->match_of[p->instructions[rank] + (size_t)i];
    return index < 0 || p->matches[index].started == p->matches[index].size;
}

/* The instruction that keeps the rank's started instruction from ending: itself, or for a WAIT the oldest of the
 * queue that has not ended; -1: none. */
static int32_t find_blocker(play *p, int32_t rank) {
    player *self = &p->players[rank];
    const weft_instruction *instruction = instruction_of(p, rank, self->at);
    int32_t *oldest = NULL, queue = 0;
    if (instruction->kind != WEFT_INSTRUCTION_WAIT)
        return instruction->queue > 0 || is_complete(p, rank, self->at) ? -1 : self->at;
    queue = instruction_of(p, rank, instruction->waits)->queue;
    for (oldest = &self->oldest[queue]; *oldest <= instruction->waits; ++*oldest)
        if (instruction_of(p, rank, *oldest)->queue == queue && !is_complete(p, rank, *oldest)) return *oldest;
    return -1;
}

/* Lets the rank go on as far as it can. */
static weft_status go_on(play *p, int32_t rank) {
    player *self = &p->players[rank];
    weft_status status = WEFT_OK;
    while (self->at < p->check->programs[rank]->n_instructions) {
        int32_t open = -1;
        if (!self->started) status = start_instruction(p, rank, self->at);
        if (status != WEFT_OK) return status;
        self->started = true;
        open = find_blocker(p, rank);
        if (open >= 0) {
            match *m = &p->matches[p->match_of[p->instructions[rank] + (size_t)open]];
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
    const weft_instruction *instruction = instruction_of(p, rank, i);
    const int32_t index = p->match_of[p->instructions[rank] + (size_t)i];
    const weft_members ranks = weft_job_spec_ranks(p->check->job, instruction, rank);
    if (instruction->peer >= 0) return instruction->peer;
    for (int32_t k = 0; k < ranks.count; k++) {
        const int32_t member = ranks.first + k * ranks.stride;
        bool has = false;
        for (int32_t e = 0; e <= p->players[member].at && e < p->check->programs[member]->n_instructions && !has; e++)
            has = p->match_of[p->instructions[member] + (size_t)e] == index;
        if (!has) return member;
    }
    return -1;
}

static void describe_stuck(const play *p, int32_t rank, char *text, size_t size) {
    char instruction[256];
    const player *self = &p->players[rank];
    if (self->at >= p->check->programs[rank]->n_instructions) {
        (void)snprintf(text, size, "rank %d is at its end", (int)rank);
        return;
    }
    weft_instruction_describe(instruction, sizeof instruction, instruction_of(p, rank, self->at), p->check->job);
    (void)snprintf(text, size, "rank %d stands in instruction %d, %s", (int)rank, (int)self->at, instruction);
}

/* Follows from a stuck rank to the rank that it waits for, and on; that is where the fault shows. */
static weft_status refuse_standstill(play *p) {
    int32_t rank = 0, open = -1, other = -1, third = -1;
    char instruction[256], second[400], more[400] = "";
    while (p->players[rank].at >= p->check->programs[rank]->n_instructions) rank++;
    open = find_blocker(p, rank);
    other = who_lacks(p, rank, open);
    describe_stuck(p, other, second, sizeof second);
    if (p->players[other].at < p->check->programs[other]->n_instructions) {
        third = who_lacks(p, other, find_blocker(p, other));
        if (third != rank && third != other) {
            memcpy(more, " and ", 6);
            describe_stuck(p, third, more + 5, sizeof more - 5);
        }
    }
    weft_instruction_describe(instruction, sizeof instruction, instruction_of(p, rank, open), p->check->job);
    if (open == p->players[rank].at)
        return weft_check_refuse_at(
            p->check, rank, open,
            "it can never end: %d of the %d ranks never get to the end; it needs rank %d, and %s%s",
            (int)(p->check->world - p->ended), (int)p->check->world, (int)other, second, more);
    return weft_check_refuse_at(
        p->check, rank, p->players[rank].at,
        "it can never end: %d of the %d ranks never get to the end; instruction %d, %s, needs rank %d, "
        "and %s%s",
        (int)(p->check->world - p->ended), (int)p->check->world, (int)open, instruction, (int)other, second, more);
}

/* ---- the whole ---- */

static weft_status prepare_play(play *p) {
    const weft_checker *check = p->check;
    const size_t world = (size_t)check->world, units = (size_t)check->job->view.n_units;
    const size_t transfers =
        check->sent == NULL ? 0 : (size_t)check->micro_batches * (2 * (size_t)check->job->view.n_segments + units);
    size_t instructions = 0;
    p->players = calloc(world, sizeof *p->players);
    p->ready = malloc(world * sizeof *p->ready);
    p->instructions = malloc(world * sizeof *p->instructions);
    p->node = malloc((3 * units + 1) * sizeof *p->node);
    p->transfers = malloc((transfers + 1) * sizeof *p->transfers);
    if (p->players == NULL || p->ready == NULL || p->instructions == NULL || p->node == NULL || p->transfers == NULL)
        return no_memory_to_play(p);
    p->across = p->node + units;
    p->pair = p->across + units;
    for (size_t i = 0; i < transfers; i++) p->transfers[i] = -1;
    for (int32_t rank = check->world - 1; rank >= 0; rank--) p->ready[p->n_ready++] = rank;
    for (int32_t rank = 0; rank < check->world; rank++) {
        p->instructions[rank] = instructions;
        instructions += (size_t)check->programs[rank]->n_instructions;
    }
    p->match_of = malloc((instructions + 1) * sizeof *p->match_of);
    if (p->match_of == NULL) return no_memory_to_play(p);
    for (size_t i = 0; i < instructions; i++) p->match_of[i] = -1;
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
    free(p->instructions);
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
