/* host/program/check/check_match.c: matches the exchanges of all ranks and simulates that all ranks finish.
 *
 * The simulation assumes no buffering: an exchange can end when all its ranks have started it and when the instructions
 * of its queue that its rank started earlier have ended. A rank advances until an instruction cannot end yet. Starting
 * early never delays another rank, so if one order of execution finishes, all do. Each instruction is visited a bounded
 * number of times. */
#include "program/check/check.h"

#include "base/alloc.h"
#include "program/exchange.h"

#include <stdlib.h>

typedef struct match {
    int32_t size, started;
    weft_check_place first; /* the first instruction that started it */
    int32_t waiting;        /* head of the list of ranks that wait for it, -1: none */
} match;

typedef struct player {
    int32_t at;        /* the next instruction, or the started one that has not ended */
    bool started;      /* instruction `at` has started */
    int32_t oldest[4]; /* by queue: no earlier instruction is in flight; 0 is unused */
    int32_t next;      /* next rank that waits for the same match */
} player;

typedef struct play {
    weft_checker *check;
    match *matches;
    int32_t n_matches, matches_capacity;
    weft_exchange_table known;   /* the match of the k-th exchange of a group, or of a transfer */
    weft_exchange_table *counts; /* [world] exchanges of the rank in each group so far, minus 1 */
    size_t *instructions;        /* [world] start of a rank's instructions in `match_of` */
    int32_t *match_of;           /* match of each instruction of each rank, -1: no other rank participates */
    player *players;
    int32_t *ready, n_ready; /* ranks that can advance */
    int32_t ended;           /* ranks that have finished */
} play;

static const weft_instruction *instruction_of(const play *p, int32_t rank, int32_t i) {
    return &p->check->programs[rank]->instructions[i];
}

/* ---- matches ---- */

static int32_t find_match(play *p, const weft_exchange_key *key, int32_t size) {
    int32_t *index = weft_exchange_table_find(&p->known, key);
    if (*index >= 0) return *index;
    *index = p->n_matches++;
    if (*index == p->matches_capacity) {
        p->matches_capacity = *index < 16 ? 16 : 2 * *index;
        p->matches = weft_realloc(p->matches, p->matches_capacity, sizeof *p->matches);
    }
    p->matches[*index] = (match){size, 0, {-1, -1}, -1};
    return *index;
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

/* Records that the rank has started its instruction. If the match is complete, the ranks that wait for it are ready. */
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

/* Starts an instruction. An instruction without other ranks ends at once. */
static weft_status start_instruction(play *p, int32_t rank, int32_t i) {
    const weft_instruction *instruction = instruction_of(p, rank, i);
    const bool sends = instruction->kind == WEFT_INSTRUCTION_SEND;
    weft_exchange_key key = {0};
    weft_members ranks = {0, 1, 0};
    if (sends || instruction->kind == WEFT_INSTRUCTION_RECV) {
        key.kind = WEFT_INSTRUCTION_SEND;
        key.what = instruction->what;
        key.of = instruction->unit >= 0 ? instruction->unit : instruction->segment;
        key.micro_batch = instruction->micro_batch;
        return start_exchange(p, rank, i, find_match(p, &key, 2));
    }
    if (instruction->kind != WEFT_INSTRUCTION_GATHER && instruction->kind != WEFT_INSTRUCTION_REDUCE &&
        instruction->kind != WEFT_INSTRUCTION_REFRESH && instruction->kind != WEFT_INSTRUCTION_NORM)
        return WEFT_OK;
    ranks = weft_job_spec_ranks(p->check->job, instruction, rank);
    if (ranks.count < 2) return WEFT_OK;
    key.first = ranks.first;
    key.second = ranks.stride;
    key.of = ranks.count;
    key.turn = ++*weft_exchange_table_find(&p->counts[rank], &key);
    return start_exchange(p, rank, i, find_match(p, &key, ranks.count));
}

/* ---- simulation ---- */

static bool is_complete(const play *p, int32_t rank, int32_t i) {
    const int32_t index = p->match_of[p->instructions[rank] + (size_t)i];
    return index < 0 || p->matches[index].started == p->matches[index].size;
}

/* Returns the instruction that prevents the rank's started instruction from ending: itself, or for a WAIT the oldest
 * incomplete one of the queue; -1: none. */
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

/* Advances the rank as far as possible. */
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

/* ---- deadlock ---- */

/* Returns a rank that has not started the match; -1: none. */
static int32_t missing_rank(const play *p, int32_t rank, int32_t i) {
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

/* Reports a blocked rank, the rank that it waits for, and the rank that this one waits for. */
static weft_status refuse_standstill(play *p) {
    int32_t rank = 0, open = -1, other = -1, third = -1;
    char instruction[256], second[400], more[400] = "";
    while (p->players[rank].at >= p->check->programs[rank]->n_instructions) rank++;
    open = find_blocker(p, rank);
    other = missing_rank(p, rank, open);
    describe_stuck(p, other, second, sizeof second);
    if (p->players[other].at < p->check->programs[other]->n_instructions) {
        third = missing_rank(p, other, find_blocker(p, other));
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

static void prepare_play(play *p) {
    const weft_checker *check = p->check;
    size_t instructions = 0;
    p->players = weft_alloc(check->world, sizeof *p->players);
    p->ready = weft_alloc(check->world, sizeof *p->ready);
    p->instructions = weft_alloc(check->world, sizeof *p->instructions);
    p->counts = weft_alloc(check->world, sizeof *p->counts);
    for (int32_t rank = check->world - 1; rank >= 0; rank--) p->ready[p->n_ready++] = rank;
    for (int32_t rank = 0; rank < check->world; rank++) {
        p->instructions[rank] = instructions;
        instructions += (size_t)check->programs[rank]->n_instructions;
    }
    p->match_of = weft_alloc(instructions, sizeof *p->match_of);
    for (size_t i = 0; i < instructions; i++) p->match_of[i] = -1;
}

static void finish_play(play *p) {
    for (int32_t rank = 0; rank < p->check->world; rank++) free(p->counts[rank].entries);
    free(p->counts);
    free(p->known.entries);
    free(p->matches);
    free(p->match_of);
    free(p->instructions);
    free(p->ready);
    free(p->players);
}

weft_status weft_check_matches(weft_checker *check) {
    play p = {.check = check};
    weft_status status = WEFT_OK;
    prepare_play(&p);
    while (status == WEFT_OK && p.n_ready > 0) status = go_on(&p, p.ready[--p.n_ready]);
    if (status == WEFT_OK && p.ended < check->world) status = refuse_standstill(&p);
    finish_play(&p);
    return status;
}
