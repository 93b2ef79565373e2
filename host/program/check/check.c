/* host/program/check/check.c: checks the programs of all ranks. program.h lists the checks, check.h the files. */
#include "program/check/check.h"

#include "base/alloc.h"
#include "program/exchange.h"

#include <stdlib.h>

/* Allocates n elements whose bytes are 0xFF: each int32 is -1. */
static void *allocate_blank(size_t n, size_t size) {
    return memset(weft_alloc(n, size), 0xFF, n * size);
}

/* ---- fields of an instruction ---- */

/* The operands that a kind of instruction uses; all others must be -1. */
static const struct shape {
    bool trains; /* belongs to training only */
    bool segment, unit, micro_batch, peer, waits, what, scope;
    bool queues; /* allowed in queues other than 0 */
} shapes[] = {
    [WEFT_INSTRUCTION_COUNT] = {.trains = true},
    [WEFT_INSTRUCTION_GATHER] = {.unit = true, .what = true, .queues = true},
    [WEFT_INSTRUCTION_RELEASE] = {.unit = true},
    [WEFT_INSTRUCTION_FORWARD] = {.segment = true, .micro_batch = true},
    [WEFT_INSTRUCTION_RECOMPUTE] = {.trains = true, .segment = true, .micro_batch = true},
    [WEFT_INSTRUCTION_BACKWARD] = {.trains = true, .segment = true, .micro_batch = true},
    [WEFT_INSTRUCTION_REDUCE] = {.trains = true, .unit = true, .micro_batch = true, .scope = true, .queues = true},
    [WEFT_INSTRUCTION_SEND] =
        {.segment = true, .unit = true, .micro_batch = true, .peer = true, .what = true, .queues = true},
    [WEFT_INSTRUCTION_RECV] =
        {.segment = true, .unit = true, .micro_batch = true, .peer = true, .what = true, .queues = true},
    [WEFT_INSTRUCTION_WAIT] = {.waits = true},
    [WEFT_INSTRUCTION_NORM] = {.trains = true},
    [WEFT_INSTRUCTION_STEP] = {.trains = true},
    [WEFT_INSTRUCTION_REFRESH] = {.trains = true, .unit = true, .queues = true},
};

static weft_status check_kind(weft_checker *check, const weft_instruction *instruction) {
    if (!WEFT_WHOLE(instruction, weft_instruction))
        return weft_check_refuse(check, "its struct_size is %u: an instruction has at least %u bytes",
                                 (unsigned)instruction->struct_size, (unsigned)WEFT_SIZE_1_0(weft_instruction));
    if (instruction->kind < WEFT_INSTRUCTION_COUNT || instruction->kind > WEFT_INSTRUCTION_REFRESH)
        return weft_check_refuse(check, "no such kind. Allowed: %d (COUNT) to %d (REFRESH)",
                                 (int)WEFT_INSTRUCTION_COUNT, (int)WEFT_INSTRUCTION_REFRESH);
    if (shapes[instruction->kind].trains && !weft_check_trains(check))
        return weft_check_refuse(
            check, "evaluation and generation run FORWARDs and the transfers of their parameters and carries only");
    return WEFT_OK;
}

/* A used operand must be in [0, n), an unused one must be -1. */
static weft_status check_operand(weft_checker *check, const char *name, int32_t value, bool used, int32_t n) {
    if (!used && value != -1)
        return weft_check_refuse(check, "its %s is %d: this kind of instruction has no %s, so it must be -1", name,
                                 (int)value, name);
    if (used && (value < 0 || value >= n))
        return weft_check_refuse(check, "its %s is %d: this job has %d, numbered from 0", name, (int)value, (int)n);
    return WEFT_OK;
}

static weft_status check_what(weft_checker *check, const weft_instruction *instruction) {
    const bool trains = weft_check_trains(check);
    bool allowed = false;
    if (!shapes[instruction->kind].what) return check_operand(check, "what", instruction->what, false, 0);
    switch (instruction->what) {
    case WEFT_PAYLOAD_PARAMETERS: allowed = instruction->kind == WEFT_INSTRUCTION_GATHER; break;
    case WEFT_PAYLOAD_SUM: allowed = instruction->kind == WEFT_INSTRUCTION_GATHER && trains; break;
    case WEFT_PAYLOAD_CARRY: allowed = instruction->kind != WEFT_INSTRUCTION_GATHER; break;
    case WEFT_PAYLOAD_CARRY_GRADIENT:
    case WEFT_PAYLOAD_MICRO_BATCH_GRADIENT: allowed = instruction->kind != WEFT_INSTRUCTION_GATHER && trains; break;
    default: break;
    }
    if (allowed) return WEFT_OK;
    return weft_check_refuse(check, "its what is %d, which is not allowed for a %s in %s", (int)instruction->what,
                             weft_instruction_kind_name(instruction->kind), weft_mode_name(check->job->view.mode));
}

/* A SEND or RECV uses either segment or unit. The second hop of a REDUCE has no micro-batch. */
static weft_status check_operands(weft_checker *check, const weft_instruction *instruction) {
    const struct shape *uses = &shapes[instruction->kind];
    const bool part = uses->peer && instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT;
    const bool second = instruction->kind == WEFT_INSTRUCTION_REDUCE && instruction->micro_batch == -1;
    const struct {
        const char *name;
        int32_t value;
        bool used;
        int32_t n;
    } operands[] = {
        {"segment", instruction->segment, uses->segment && !part, check->job->view.n_segments},
        {"unit", instruction->unit, uses->unit && (part || !uses->peer), check->job->view.n_units},
        {"micro-batch", instruction->micro_batch, uses->micro_batch && !second, check->micro_batches},
        {"peer", instruction->peer, uses->peer, check->world},
        {"waits", instruction->waits, uses->waits, check->at},
    };
    weft_status status = check_what(check, instruction);
    for (size_t i = 0; i < sizeof operands / sizeof *operands && status == WEFT_OK; i++)
        status = check_operand(check, operands[i].name, operands[i].value, operands[i].used, operands[i].n);
    if (status != WEFT_OK) return status;
    if (!uses->scope) return check_operand(check, "scope", instruction->scope, false, 0);
    if (instruction->scope >= WEFT_SCOPE_RANK && instruction->scope <= WEFT_SCOPE_ACROSS) return WEFT_OK;
    return weft_check_refuse(check, "its scope is %d. Allowed: %d (RANK) to %d (ACROSS)", (int)instruction->scope,
                             (int)WEFT_SCOPE_RANK, (int)WEFT_SCOPE_ACROSS);
}

static weft_status check_queue(weft_checker *check, const weft_instruction *instruction) {
    const int32_t last = shapes[instruction->kind].queues ? 3 : 0;
    if (instruction->queue < 0 || instruction->queue > last)
        return weft_check_refuse(check, "its queue is %d. Allowed: %s", (int)instruction->queue,
                                 last == 0 ? "0, since this kind of instruction has no WAIT" : "0 to 3");
    if (instruction->kind == WEFT_INSTRUCTION_SEND && instruction->queue == 0)
        return weft_check_refuse(check,
                                 "a SEND is of queue 1 to 3, with a WAIT: it may end only after its RECV has started");
    return WEFT_OK;
}

weft_status weft_check_fields(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = check_kind(check, instruction);
    if (status == WEFT_OK) status = check_operands(check, instruction);
    if (status == WEFT_OK) status = check_queue(check, instruction);
    if (status == WEFT_OK && (instruction->flags != 0 || instruction->reserved != 0))
        status = weft_check_refuse(check, "its flags are %u and its reserved field is %d: both must be 0",
                                   (unsigned)instruction->flags, (int)instruction->reserved);
    return status;
}

/* ---- simulation: all ranks finish ----
 *
 * The simulation assumes no buffering: an exchange can end when all its ranks have started it and when the instructions
 * of its queue that its rank started earlier have ended. A rank advances until an instruction cannot end yet. Starting
 * early never delays another rank, so if one order of execution finishes, all do. Each instruction is visited a bounded
 * number of times. */

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

/* Checks that exchanges match and that all ranks finish. */
static weft_status check_matches(weft_checker *check) {
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

/* ---- order of messages for a communicator without tags (WEFT_COMM_IN_ORDER) ---- */

/* Payloads of messages; each has its own p2p channel (weft/comm.h). */
enum { N_SORTS = WEFT_PAYLOAD_MICRO_BATCH_GRADIENT - WEFT_PAYLOAD_CARRY + 1 };

static weft_status check_message_order(weft_checker *check, int32_t rank) {
    const weft_program *program = check->programs[rank];
    int32_t *latest = allocate_blank((size_t)check->world * N_SORTS, sizeof *latest); /* received SENDs of each sort */
    weft_status status = WEFT_OK;
    char name[160];
    for (int32_t i = 0; i < program->n_instructions && status == WEFT_OK; i++) {
        const weft_instruction *recv = &program->instructions[i];
        if (recv->kind != WEFT_INSTRUCTION_RECV) continue;
        const int32_t send = weft_check_transfer_of(check, recv)->sent;
        int32_t *before = &latest[recv->peer * N_SORTS + recv->what - WEFT_PAYLOAD_CARRY];
        if (send < *before) {
            weft_instruction_describe(name, sizeof name, &check->programs[recv->peer]->instructions[*before],
                                      check->job);
            status = weft_check_refuse_at(
                check, rank, i,
                "rank %d sends this before %s, which is received before it: without tags in the communicator, messages "
                "of a rank are received in the order of their SENDs",
                (int)recv->peer, name);
        }
        *before = send;
    }
    free(latest);
    return status;
}

/* ---- gradient sums: bit-identical to the job's `reduce` ----
 *
 * Each micro-batch is in the sum exactly once; the remaining check is the order of addition. The ranks of a first
 * hop add their terms first, then the groups' results are added. A sum is exact if its weft_fold ends as one range. */

/* A term of a sum, and its position in the order. */
typedef struct joining {
    int32_t group, round, lo, hi;
} joining;

static int by_group(const void *a, const void *b) {
    const joining *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->round != y->round) return x->round < y->round ? -1 : 1;
    return x->lo < y->lo ? -1 : 1;
}

static int by_micro_batch(const void *a, const void *b) {
    return ((const joining *)a)->lo < ((const joining *)b)->lo ? -1 : 1;
}

/* Adds n terms in their order. Returns true if the sum is exact, and its range in *out. `ordered` extends a range by
 * single micro-batches only. */
static bool add_terms(joining *out, const weft_checker *check, const joining *terms, int32_t n) {
    const int32_t reduce = check->job->view.reduce;
    weft_fold fold = weft_fold_begin(reduce, check->micro_batches, false);
    bool exact = true;
    for (int32_t i = 0; i < n; i++) {
        exact = exact && (reduce == WEFT_REDUCE_TREE || i == 0 || terms[i].hi == terms[i].lo + 1);
        (void)weft_fold_push(&fold, terms[i].lo, terms[i].hi);
    }
    out->lo = fold.lo[0];
    out->hi = fold.hi[0];
    return exact && fold.top == 1 && !fold.loose;
}

/* True if the unit's sum has the defined order. */
static bool is_exact(const weft_checker *check, int32_t u, joining *terms) {
    const weft_instruction hop = {.kind = WEFT_INSTRUCTION_REDUCE, .unit = u, .scope = check->units[u].scope};
    joining all;
    int32_t n = 0;
    for (int32_t m = 0; m < check->micro_batches; m++) {
        const weft_check_term *term = &check->terms[weft_check_pair(check, u, m)];
        terms[m] = (joining){weft_job_spec_ranks(check->job, &hop, term->at.rank).first, term->round, m, m + 1};
    }
    qsort(terms, (size_t)check->micro_batches, sizeof *terms, by_group);
    for (int32_t i = 0, end = 0; i < check->micro_batches; i = end) {
        while (end < check->micro_batches && terms[end].group == terms[i].group) end++;
        if (!add_terms(&terms[n++], check, &terms[i], end - i)) return false;
    }
    qsort(terms, (size_t)n, sizeof *terms, by_micro_batch);
    return add_terms(&all, check, terms, n) && all.lo == 0 && all.hi == check->micro_batches;
}

static bool is_power_of_two(int32_t n) {
    return (n & (n - 1)) == 0;
}

/* Returns the reason for a different order, and the nearest setting with the defined order. */
static const char *nearest_setting(const weft_checker *check, int32_t u) {
    const weft_strategy_job *view = &check->job->view;
    const bool ordered = view->reduce == WEFT_REDUCE_ORDERED;
    const int32_t size = view->placements[u].group, groups = size > 0 ? check->world / size : 1;
    switch (check->units[u].scope) {
    case WEFT_SCOPE_RANK:
        if (ordered && is_power_of_two(view->replicas))
            return "each replica adds up its own micro-batches before the exchange; reduce_at = each, or reduce = "
                   "tree, is covered";
        return "each replica adds up its own micro-batches before the exchange, which is covered by reduce = tree on "
               "a power of two of replicas; reduce_at = each is covered";
    case WEFT_SCOPE_NODE:
        if (ordered && is_power_of_two(groups) && is_power_of_two(view->micro_batches))
            return "each shard group adds up its own micro-batches before the exchange between groups; reduce_at = "
                   "each, or reduce = tree, is covered";
        return "each shard group adds up its own micro-batches before the exchange between groups, which is covered by "
               "reduce = tree where the groups, and the micro-batches of a replica, are powers of two; reduce_at = "
               "each is covered";
    default:
        return "the replicas run the micro-batches in another order than that of the batch; the numbering of "
               "weft_job_micro_batch is covered";
    }
}

static void check_sums_order(const weft_checker *check, weft_coverage *out) {
    const int32_t reduce = check->job->view.reduce;
    joining *terms = weft_alloc(check->micro_batches, sizeof *terms);
    if (reduce == WEFT_REDUCE_FAST && check->micro_batches > 1) {
        out->covered = false;
        (void)snprintf(out->why, sizeof out->why,
                       "reduce = fast adds in an order that the library chooses; reduce = ordered or tree is covered");
    }
    for (int32_t u = 0; u < check->job->view.n_units && out->covered && reduce != WEFT_REDUCE_FAST; u++) {
        if (!check->units[u].trains || is_exact(check, u, terms)) continue;
        out->covered = false;
        (void)snprintf(out->why, sizeof out->why, "unit %s: reduce = %s: %s", check->job->view.units[u].name,
                       reduce == WEFT_REDUCE_TREE ? "tree" : "ordered", nearest_setting(check, u));
    }
    free(terms);
}

/* ---- driver ---- */

weft_status weft_check_refuse_at(weft_checker *check, int32_t rank, int32_t instruction, const char *format, ...) {
    char text[256], reason[1200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    check->out->refused_rank = rank;
    check->out->refused_instruction = instruction;
    weft_instruction_describe(text, sizeof text, &check->programs[rank]->instructions[instruction], check->job);
    return weft_error_set(check->err, WEFT_E_PLUGIN, "rank %d, instruction %d, %s: %s", (int)rank, (int)instruction,
                          text, reason);
}

static void allocate_tables(weft_checker *check) {
    const weft_job_spec *job = check->job;
    const bool owned = weft_job_spec_owned(job);
    const size_t micro_batches = (size_t)check->micro_batches, segments = (size_t)job->view.n_segments * micro_batches;
    const size_t units = (size_t)job->view.n_units * micro_batches, transfers = owned ? 2 * segments + units : 0;
    check->runs = allocate_blank(segments, sizeof *check->runs);
    check->begun[0] = weft_alloc(2 * units, sizeof *check->begun[0]);
    check->begun[1] = check->begun[0] + units;
    check->terms = allocate_blank(units, sizeof *check->terms);
    check->transfers = allocate_blank(transfers, sizeof *check->transfers);
    check->units = weft_alloc(job->view.n_units, sizeof *check->units);
    check->uses = weft_alloc(job->view.n_units, sizeof *check->uses);
    for (int32_t u = 0; u < job->view.n_units; u++) {
        const bool trains = weft_job_spec_trains(job, u);
        check->units[u].trains = trains;
        check->units[u].owner = owned ? job->view.placements[u].owner : -1;
        check->units[u].borrower = owned && trains ? weft_job_spec_borrower(job, u) : -1;
    }
}

weft_status weft_programs_check(weft_coverage *out, const weft_program *const *programs, const weft_job_spec *job,
                                weft_error *err) {
    weft_checker check = {.programs = programs,
                          .job = job,
                          .err = err,
                          .out = out,
                          .world = job->view.world,
                          .micro_batches = weft_job_spec_micro_batches(job)};
    weft_status status = weft_job_spec_check_owners(job, err);
    *out = (weft_coverage){.refused_rank = -1};
    if (status != WEFT_OK) return status;
    allocate_tables(&check);
    for (int32_t rank = 0; rank < check.world && status == WEFT_OK; rank++) status = weft_check_rank(&check, rank);
    if (status == WEFT_OK) status = check_matches(&check);
    for (int32_t rank = 0; rank < check.world && status == WEFT_OK && job->in_order; rank++)
        if (weft_job_spec_owned(job)) status = check_message_order(&check, rank);
    out->covered = true;
    if (status == WEFT_OK && weft_check_trains(&check)) check_sums_order(&check, out);
    if (status == WEFT_E_PLUGIN &&
        out->refused_rank < 0) { /* one is missing at the end of the current rank's program */
        out->refused_rank = check.rank;
        out->refused_instruction = programs[check.rank]->n_instructions;
    }
    free(check.runs);
    free(check.begun[0]);
    free(check.terms);
    free(check.transfers);
    free(check.units);
    free(check.uses);
    return status;
}
