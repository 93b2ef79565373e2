/* host/program/check/check_match.c: simulates that all ranks finish.
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
    int32_t started;        /* ranks */
    weft_check_place first; /* the first instruction that started it */
    int32_t waiting;        /* 1 + head of the list of ranks that wait for it; 0: none */
} match;

typedef struct player {
    int32_t at;        /* the next instruction, or the started one that has not ended */
    bool started;      /* instruction `at` has started */
    int32_t oldest[4]; /* by queue: no earlier instruction is in flight; 0 is unused */
    int32_t next;      /* next in the list of ranks that wait for the same match */
} player;

typedef struct play {
    weft_checker *check;
    weft_matches matches;
    match *states; /* [matches.n] */
    player *players;
    int32_t *ready, n_ready; /* ranks that can advance */
    int32_t ended;           /* ranks that have finished */
} play;

static const weft_instruction *instruction_of(const play *p, int32_t rank, int32_t i) {
    return &p->check->programs[rank]->instructions[i];
}

static bool is_at_end(const play *p, int32_t rank) {
    return p->players[rank].at >= p->check->programs[rank]->n_instructions;
}

/* Fails if the rank's instruction differs from the one with which another rank started the exchange. */
static weft_status check_same(play *p, int32_t rank, int32_t i) {
    const int32_t index = p->matches.of[rank][i];
    const weft_check_place first = p->states[index].first;
    const weft_instruction *a = instruction_of(p, rank, i);
    const weft_instruction *b = instruction_of(p, first.rank, first.instruction);
    char text[256];
    if (a->peer >= 0 || (a->kind == b->kind && a->unit == b->unit && a->what == b->what && a->scope == b->scope &&
                         (a->micro_batch < 0) == (b->micro_batch < 0)))
        return WEFT_OK;
    weft_instruction_describe(text, sizeof text, b, p->check->job);
    return weft_check_refuse_at(p->check, rank, i,
                                "at this point of the exchanges of these %d ranks, rank %d has instruction %d, %s: all "
                                "must start the same ones in the same order",
                                (int)p->matches.size[index], (int)first.rank, (int)first.instruction, text);
}

/* Starts an instruction. If its exchange is complete, the ranks that wait for it are ready. */
static weft_status start_instruction(play *p, int32_t rank, int32_t i) {
    const int32_t index = p->matches.of[rank][i];
    match *m = &p->states[index < 0 ? 0 : index];
    if (index < 0) return WEFT_OK;
    if (m->started == 0) m->first = (weft_check_place){rank, i};
    if (++m->started == p->matches.size[index])
        for (; m->waiting > 0; m->waiting = p->players[m->waiting - 1].next) p->ready[p->n_ready++] = m->waiting - 1;
    return check_same(p, rank, i);
}

static bool is_complete(const play *p, int32_t rank, int32_t i) {
    const int32_t index = p->matches.of[rank][i];
    return index < 0 || p->states[index].started == p->matches.size[index];
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
    for (; !is_at_end(p, rank); self->at++) {
        const weft_status status = self->started ? WEFT_OK : start_instruction(p, rank, self->at);
        int32_t open = -1;
        if (status != WEFT_OK) return status;
        self->started = true;
        open = find_blocker(p, rank);
        if (open >= 0) {
            match *m = &p->states[p->matches.of[rank][open]];
            self->next = m->waiting;
            m->waiting = rank + 1;
            return WEFT_OK;
        }
        self->started = false;
    }
    p->ended++;
    return WEFT_OK;
}

/* ---- deadlock ---- */

/* Returns a rank that has not started the exchange of an instruction; -1: none. */
static int32_t missing_rank(const play *p, int32_t rank, int32_t i) {
    const weft_instruction *instruction = instruction_of(p, rank, i);
    const weft_members ranks = weft_job_spec_ranks(p->check->job, instruction, rank);
    if (instruction->peer >= 0) return instruction->peer;
    for (int32_t k = 0; k < ranks.count; k++) {
        const int32_t member = ranks.first + k * ranks.stride, end = p->players[member].at + !is_at_end(p, member);
        bool has = false;
        for (int32_t e = 0; e < end && !has; e++) has = p->matches.of[member][e] == p->matches.of[rank][i];
        if (!has) return member;
    }
    return -1;
}

static void describe_stuck(const play *p, int32_t rank, char *text, size_t size) {
    char instruction[256];
    const int32_t at = p->players[rank].at;
    if (is_at_end(p, rank)) {
        (void)snprintf(text, size, "rank %d is at its end", (int)rank);
        return;
    }
    weft_instruction_describe(instruction, sizeof instruction, instruction_of(p, rank, at), p->check->job);
    (void)snprintf(text, size, "rank %d waits in instruction %d, %s", (int)rank, (int)at, instruction);
}

/* Reports a blocked rank, the rank that it waits for, and the rank that this one waits for. */
static weft_status refuse_deadlock(play *p) {
    int32_t rank = 0, open = -1, other = -1, third = -1;
    char instruction[256], needs[300] = "it", second[400], more[400] = "";
    while (is_at_end(p, rank)) rank++;
    open = find_blocker(p, rank);
    other = missing_rank(p, rank, open);
    describe_stuck(p, other, second, sizeof second);
    if (!is_at_end(p, other)) third = missing_rank(p, other, find_blocker(p, other));
    if (third >= 0 && third != rank && third != other) {
        memcpy(more, " and ", 6);
        describe_stuck(p, third, more + 5, sizeof more - 5);
    }
    weft_instruction_describe(instruction, sizeof instruction, instruction_of(p, rank, open), p->check->job);
    if (open != p->players[rank].at) (void)snprintf(needs, sizeof needs, "instruction %d, %s,", (int)open, instruction);
    return weft_check_refuse_at(
        p->check, rank, p->players[rank].at,
        "it can never end: %d of the %d ranks never reach their end; %s needs rank %d, and %s%s",
        (int)(p->check->world - p->ended), (int)p->check->world, needs, (int)other, second, more);
}

weft_status weft_check_matches(weft_checker *check) {
    play p = {.check = check, .matches = weft_matches_find(check->programs, check->job)};
    weft_status status = WEFT_OK;
    p.states = weft_alloc(p.matches.n, sizeof *p.states);
    p.players = weft_alloc(check->world, sizeof *p.players);
    p.ready = weft_alloc(check->world, sizeof *p.ready);
    for (int32_t rank = check->world - 1; rank >= 0; rank--) p.ready[p.n_ready++] = rank;
    while (status == WEFT_OK && p.n_ready > 0) status = go_on(&p, p.ready[--p.n_ready]);
    if (status == WEFT_OK && p.ended < check->world) status = refuse_deadlock(&p);
    weft_matches_free(&p.matches);
    free(p.states);
    free(p.ready);
    free(p.players);
    return status;
}
