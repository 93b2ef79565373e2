/* tests/program/play.h: symbolic execution of the programs of all ranks.
 *
 * A value is a hash of the operations that produced it. Two runs are equal exactly if they did the same arithmetic on
 * the same operands in the same order. Addition is commutative and not associative, as in fp32. A read of an undefined
 * value returns a unique name. A unit has a few elements, which are divided among its shards.
 *
 * Nothing is buffered: a collective ends when all its ranks have started it. Its outputs in another queue are undefined
 * until its WAIT, and its inputs must be unchanged at that time. weft/strategy.h specifies the rules; this file shares
 * no code with the checker. */
#ifndef WEFT_TESTS_PROGRAM_PLAY_H
#define WEFT_TESTS_PROGRAM_PLAY_H

#include "jobs.h"

enum { PLAY_E = 4, PLAY_MICRO_BATCHES = 16, PLAY_EXCHANGES = 512, PLAY_INSTRUCTIONS = 512 };

static inline uint64_t hash2(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9E3779B97F4A7C15u + (b ^ 0x5851F42D4C957F2Du);
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

/* A value per element; 0: undefined. */
typedef struct elements {
    uint64_t e[PLAY_E];
} elements;

/* A partial sum over the micro-batches [lo, hi). */
typedef struct partial {
    int32_t lo, hi;
    elements value;
} partial;
typedef struct running {
    partial of[PLAY_MICRO_BATCHES];
    int32_t n;
} running;

typedef struct played {
    int32_t at;
    bool started;
    elements parameters[JOB_MAX], gathered[JOB_MAX], total[JOB_MAX];
    running first[JOB_MAX], second[JOB_MAX];
    bool two[JOB_MAX], is_total[JOB_MAX]; /* the second hop is done; the sum was gathered */
    uint64_t carry[JOB_MAX][PLAY_MICRO_BATCHES], down[JOB_MAX][PLAY_MICRO_BATCHES], tape[JOB_MAX][PLAY_MICRO_BATCHES];
    elements gradient[JOB_MAX][PLAY_MICRO_BATCHES];
    uint64_t count, norm, loss;
    int32_t exchange[PLAY_INSTRUCTIONS]; /* per instruction; -1: not a collective */
    bool ended[PLAY_INSTRUCTIONS];
} played;

/* A collective or p2p operation. */
typedef struct exchange {
    uint32_t members, started;    /* bit masks of ranks */
    int32_t turn;                 /* index among the operations of the same members */
    int64_t transfer;             /* of a SEND and its RECV; -1 */
    weft_instruction instruction; /* of the first rank that started it */
    int32_t micro_batch[TEAM_MAX];
    elements row[TEAM_MAX];
    uint64_t word[TEAM_MAX];
    elements rows[TEAM_MAX][JOB_MAX]; /* of NORM */
} exchange;

typedef struct play {
    const team *team;
    const weft_job_spec *job;
    int32_t world, micro_batches;
    played ranks[TEAM_MAX];
    exchange *exchanges;
    int32_t n;
    int32_t turns[TEAM_MAX][1 << TEAM_MAX];
    uint64_t nonsense;
    int32_t torn; /* conflicts: reads during a write, writes during a read; mismatched operations */
} play;

static inline uint64_t nonsense(play *p) {
    return hash2(0xBAD, ++p->nonsense);
}
static inline elements nonsenses(play *p) {
    elements out;
    for (int i = 0; i < PLAY_E; i++) out.e[i] = nonsense(p);
    return out;
}
static inline uint64_t made(play *p, uint64_t value) {
    return value != 0 ? value : nonsense(p);
}
static inline uint64_t plus(uint64_t a, uint64_t b, int32_t reduce) {
    return reduce == WEFT_REDUCE_FAST ? a + b : hash2(a + b, 0x50);
}

/* ---- ownership ---- */

static inline const weft_placement *placed(const play *p, int32_t u) {
    return &p->job->view.placements[u];
}
static inline bool cut(const play *p, int32_t u) {
    const weft_placement *at = placed(p, u);
    return at->parameters == WEFT_SHARDED || at->gradients == WEFT_SHARDED || at->optimizer == WEFT_SHARDED;
}
/* True if element e belongs to the rank's part of a holding. */
static inline bool has(const play *p, int32_t u, int32_t holding, int32_t rank, int32_t e) {
    if (holding == WEFT_SHARDED) return e % placed(p, u)->group == rank % placed(p, u)->group;
    return holding == WEFT_REPLICATED || p->world == 1 || placed(p, u)->owner == rank;
}
/* True for the rank on which the collective of all ranks computes the sum of element e. */
static inline bool sums(const play *p, int32_t u, int32_t rank, int32_t e) {
    return p->job->view.replicas == 1 ? has(p, u, WEFT_OWNED, rank, e) : e % p->world == rank;
}

static inline uint32_t all_ranks(const play *p) {
    return (1u << p->world) - 1;
}
static inline uint32_t some_ranks(const play *p, int32_t rank, int32_t size, bool across) {
    uint32_t out = 0;
    for (int32_t r = 0; r < p->world; r++)
        if (across ? r % size == rank % size : r / size == rank / size) out |= 1u << r;
    return out;
}
static inline uint32_t holders(const play *p, int32_t u) {
    uint32_t out = 1u << placed(p, u)->owner;
    for (int32_t s = 0; s < p->job->view.n_segments; s++)
        if (weft_job_spec_reads(p->job, s, u)) out |= 1u << p->job->view.segments[s].owner;
    return out;
}
static inline uint32_t members_of(const play *p, const weft_instruction *instruction, int32_t rank) {
    const int32_t u = instruction->unit;
    const uint32_t alone = 1u << rank, all = p->job->view.replicas == 1 ? alone : all_ranks(p);
    if (instruction->kind == WEFT_INSTRUCTION_NORM) return all_ranks(p);
    if (instruction->kind == WEFT_INSTRUCTION_REDUCE) {
        if (instruction->scope == WEFT_SCOPE_RANK) return alone;
        if (instruction->scope == WEFT_SCOPE_ALL || !cut(p, u)) return all;
        return some_ranks(p, rank, placed(p, u)->group, instruction->scope == WEFT_SCOPE_ACROSS);
    }
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_SUM)
        return placed(p, u)->gradients == WEFT_SHARDED ? some_ranks(p, rank, placed(p, u)->group, true) : all;
    if (cut(p, u)) return some_ranks(p, rank, placed(p, u)->group, false);
    if (instruction->kind == WEFT_INSTRUCTION_REFRESH && placed(p, u)->parameters == WEFT_OWNED && p->world > 1)
        return holders(p, u);
    return alone;
}

/* ---- sums ---- */

/* Joins partial sums as in the tree over [lo, hi). */
static inline void settle(running *sum, int32_t lo, int32_t hi) {
    const int32_t middle = lo + (hi - lo + 1) / 2;
    if (hi - lo < 2) return;
    for (int32_t i = 0; i < sum->n; i++)
        if (sum->of[i].lo == lo && sum->of[i].hi == hi) return;
    settle(sum, lo, middle);
    settle(sum, middle, hi);
    for (int32_t i = 0; i + 1 < sum->n; i++) {
        partial *left = &sum->of[i], *right = left + 1;
        if (left->lo != lo || left->hi != middle || right->lo != middle || right->hi != hi) continue;
        for (int e = 0; e < PLAY_E; e++) left->value.e[e] = plus(left->value.e[e], right->value.e[e], WEFT_REDUCE_TREE);
        left->hi = hi;
        memmove(right, right + 1, (size_t)(sum->n - i - 2) * sizeof *right);
        sum->n--;
    }
}

static inline void add_term(play *p, running *sum, partial term) {
    const int32_t reduce = p->job->view.reduce;
    if (sum->n == PLAY_MICRO_BATCHES) {
        p->torn++;
        return;
    }
    if (sum->n > 0 && reduce != WEFT_REDUCE_TREE) {
        for (int e = 0; e < PLAY_E; e++) sum->of[0].value.e[e] = plus(sum->of[0].value.e[e], term.value.e[e], reduce);
        sum->of[0].hi = term.hi;
        return;
    }
    sum->of[sum->n++] = term;
    if (reduce == WEFT_REDUCE_TREE) settle(sum, 0, p->micro_batches);
}

/* Adds remaining partial sums in order of storage. */
static inline partial finished(play *p, const running *sum) {
    partial out = {0, 0, {{0}}};
    if (sum->n == 0) {
        out.value = nonsenses(p);
        return out;
    }
    out = sum->of[0];
    for (int32_t i = 1; i < sum->n; i++) {
        for (int e = 0; e < PLAY_E; e++)
            out.value.e[e] = plus(out.value.e[e], sum->of[i].value.e[e], p->job->view.reduce);
        if (sum->of[i].lo < out.lo) out.lo = sum->of[i].lo;
    }
    return out;
}

/* Returns the sum as known by this rank. */
static inline elements sum_of(play *p, int32_t rank, int32_t u) {
    played *self = &p->ranks[rank];
    elements out = self->total[u];
    if (self->is_total[u]) return out;
    out = finished(p, self->two[u] ? &self->second[u] : &self->first[u]).value;
    for (int e = 0; e < PLAY_E; e++)
        if (!sums(p, u, rank, e)) out.e[e] = nonsense(p);
    return out;
}

/* ---- segments ---- */

static inline uint64_t read_units(play *p, int32_t rank, int32_t s) {
    const weft_segment_view *view = &p->job->view.segments[s];
    uint64_t value = 1;
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        const elements *from = placed(p, u)->parameters == WEFT_SHARDED ? &p->ranks[rank].gathered[u]
                                                                        : &p->ranks[rank].parameters[u];
        for (int e = 0; e < PLAY_E; e++) value = hash2(value, made(p, from->e[e]));
    }
    return value;
}

static inline uint64_t inputs(play *p, int32_t rank, int32_t s, int32_t m) {
    const uint64_t below = s == 0 ? hash2(5, (uint64_t)m) : made(p, p->ranks[rank].carry[s - 1][m]);
    return hash2(hash2((uint64_t)s, below), read_units(p, rank, s));
}

static inline void play_forward(play *p, int32_t rank, int32_t s, int32_t m) {
    played *self = &p->ranks[rank];
    const uint64_t in = inputs(p, rank, s, m);
    self->carry[s][m] = hash2(1, in);
    self->tape[s][m] = hash2(2, in);
    if (s == p->job->view.n_segments - 1) self->loss += hash2(in, (uint64_t)m); /* summed later in micro-batch order */
}

static inline void play_backward(play *p, int32_t rank, int32_t s, int32_t m) {
    played *self = &p->ranks[rank];
    const weft_segment_view *view = &p->job->view.segments[s];
    const bool top = s == p->job->view.n_segments - 1;
    const uint64_t from = top ? made(p, self->count) : made(p, self->down[s][m]);
    const uint64_t out = hash2(hash2(made(p, self->tape[s][m]), from), inputs(p, rank, s, m));
    self->tape[s][m] = 0;
    if (s > 0) self->down[s - 1][m] = hash2(out, 7);
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        for (int e = 0; e < PLAY_E && weft_job_spec_trains(p->job, u); e++) {
            uint64_t *at = &self->gradient[u][m].e[e];
            const uint64_t own = hash2(out, (uint64_t)(u * PLAY_E + e));
            *at = *at == 0 ? own : plus(*at, own, WEFT_REDUCE_ORDERED);
        }
    }
}

static inline void play_step(play *p, int32_t rank) {
    played *self = &p->ranks[rank];
    for (int32_t u = 0; u < p->job->view.n_units; u++) {
        elements sum;
        if (!weft_job_spec_trains(p->job, u)) continue;
        sum = sum_of(p, rank, u);
        for (int e = 0; e < PLAY_E; e++)
            if (has(p, u, placed(p, u)->optimizer, rank, e) && self->parameters[u].e[e] != 0)
                self->parameters[u].e[e] =
                    hash2(hash2(self->parameters[u].e[e], sum.e[e]), hash2(made(p, self->norm), made(p, self->count)));
    }
}

/* ---- collectives ---- */

static inline int64_t transfer_of(const weft_instruction *instruction) {
    const int64_t of = instruction->unit >= 0 ? instruction->unit : instruction->segment;
    return ((int64_t)instruction->what * JOB_MAX + of) * PLAY_MICRO_BATCHES + instruction->micro_batch;
}

static inline exchange *find_exchange(play *p, const weft_instruction *instruction, int32_t rank) {
    const bool pair = instruction->peer >= 0;
    const uint32_t members = pair ? 1u << rank | 1u << instruction->peer : members_of(p, instruction, rank);
    const int32_t turn = pair ? -1 : p->turns[rank][members]++;
    exchange *out = NULL;
    for (int32_t i = 0; i < p->n; i++) {
        exchange *x = &p->exchanges[i];
        if (x->members != members || x->turn != turn) continue;
        if (pair && x->transfer != transfer_of(instruction)) continue;
        return x;
    }
    ck_assert_int_lt(p->n, PLAY_EXCHANGES);
    out = &p->exchanges[p->n++];
    memset(out, 0, sizeof *out);
    out->members = members;
    out->turn = turn;
    out->transfer = pair ? transfer_of(instruction) : -1;
    out->instruction = *instruction;
    return out;
}

/* Stores the rank's input, as it is now. */
static inline void give(play *p, exchange *x, const weft_instruction *instruction, int32_t rank) {
    played *self = &p->ranks[rank];
    const int32_t u = instruction->unit, m = instruction->micro_batch;
    partial sum;
    x->micro_batch[rank] = m;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER:
        x->row[rank] = instruction->what == WEFT_PAYLOAD_SUM ? sum_of(p, rank, u) : self->parameters[u];
        break;
    case WEFT_INSTRUCTION_REFRESH: x->row[rank] = self->parameters[u]; break;
    case WEFT_INSTRUCTION_REDUCE:
        sum = m >= 0 ? (partial){m, m + 1, self->gradient[u][m]} : finished(p, &self->first[u]);
        x->row[rank] = sum.value;
        x->micro_batch[rank] = sum.lo;
        x->word[rank] = (uint64_t)sum.hi;
        break;
    case WEFT_INSTRUCTION_SEND:
        if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) x->row[rank] = self->gradient[u][m];
        else
            x->word[rank] = instruction->what == WEFT_PAYLOAD_CARRY ? self->carry[instruction->segment][m]
                                                                    : self->down[instruction->segment][m];
        break;
    case WEFT_INSTRUCTION_NORM:
        for (int32_t v = 0; v < p->job->view.n_units; v++)
            if (weft_job_spec_trains(p->job, v)) x->rows[rank][v] = sum_of(p, rank, v);
        break;
    default: break;
    }
}

/* Makes the rank's outputs undefined from the start on. */
static inline void spoil(play *p, const weft_instruction *instruction, int32_t rank) {
    played *self = &p->ranks[rank];
    const int32_t u = instruction->unit;
    const elements bad = nonsenses(p);
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS)
        self->gathered[u] = bad;
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_SUM) self->total[u] = bad;
    if (instruction->kind == WEFT_INSTRUCTION_RECV) {
        if (instruction->what == WEFT_PAYLOAD_CARRY)
            self->carry[instruction->segment][instruction->micro_batch] = bad.e[0];
        else if (instruction->what == WEFT_PAYLOAD_CARRY_GRADIENT)
            self->down[instruction->segment][instruction->micro_batch] = bad.e[0];
        else self->gradient[u][instruction->micro_batch] = bad;
    }
}

static inline void start_exchange(play *p, int32_t rank, int32_t i) {
    const weft_instruction *instruction = &p->team->programs[rank]->instructions[i];
    exchange *x = find_exchange(p, instruction, rank);
    const bool same = x->instruction.kind == instruction->kind && x->instruction.unit == instruction->unit &&
                      x->instruction.what == instruction->what && x->instruction.scope == instruction->scope;
    p->ranks[rank].exchange[i] = (int32_t)(x - p->exchanges);
    if ((x->started >> rank & 1) != 0 || (instruction->peer < 0 && !same)) p->torn++;
    x->started |= 1u << rank;
    give(p, x, instruction, rank);
    spoil(p, instruction, rank);
}

/* Checks that the inputs have not changed since the start. */
static inline void verify(play *p, exchange *x, const weft_instruction *instruction, int32_t rank) {
    exchange *again = malloc(sizeof *again);
    const uint64_t before = p->nonsense;
    ck_assert_ptr_nonnull(again);
    *again = *x;
    give(p, again, instruction, rank);
    if (p->nonsense == before &&
        (memcmp(&again->row[rank], &x->row[rank], sizeof x->row[rank]) != 0 || again->word[rank] != x->word[rank]))
        p->torn++;
    p->nonsense = before;
    free(again);
}

/* ---- results of a collective ---- */

static inline void take_reduce(play *p, const exchange *x, const weft_instruction *instruction, int32_t rank) {
    played *self = &p->ranks[rank];
    const int32_t u = instruction->unit;
    const bool direct = instruction->scope == WEFT_SCOPE_ALL || instruction->scope == WEFT_SCOPE_ACROSS;
    running *into = direct ? &self->second[u] : &self->first[u];
    uint32_t left = x->members;
    if (direct) self->two[u] = true;
    while (left != 0) {
        int32_t next = -1;
        for (int32_t r = 0; r < p->world; r++)
            if ((left >> r & 1) != 0 && (next < 0 || x->micro_batch[r] < x->micro_batch[next])) next = r;
        left &= ~(1u << next);
        partial term = {x->micro_batch[next], (int32_t)x->word[next], x->row[next]};
        for (int e = 0; e < PLAY_E; e++) {
            const bool mine =
                instruction->scope == WEFT_SCOPE_RANK
                    ? true
                    : (instruction->scope == WEFT_SCOPE_NODE ? has(p, u, WEFT_SHARDED, rank, e) : sums(p, u, rank, e));
            term.value.e[e] = mine ? made(p, term.value.e[e]) : nonsense(p);
        }
        add_term(p, into, term);
    }
    if (instruction->micro_batch >= 0) memset(&self->gradient[u][instruction->micro_batch], 0, sizeof(elements));
    else self->first[u].n = 0;
}

/* Returns element e from a rank that owns it; all its owners must have the same value. */
static inline uint64_t pick(play *p, const exchange *x, int32_t u, int32_t holding, bool by_sum, int32_t e) {
    uint64_t out = 0;
    for (int32_t r = 0; r < p->world; r++) {
        if ((x->members >> r & 1) == 0 || !(by_sum ? sums(p, u, r, e) : has(p, u, holding, r, e))) continue;
        if (out != 0 && out != x->row[r].e[e]) p->torn++;
        out = x->row[r].e[e];
    }
    return made(p, out);
}

static inline void take_gather(play *p, const exchange *x, const weft_instruction *instruction, int32_t rank) {
    played *self = &p->ranks[rank];
    const int32_t u = instruction->unit;
    for (int e = 0; e < PLAY_E; e++) {
        if (instruction->kind == WEFT_INSTRUCTION_REFRESH) {
            self->parameters[u].e[e] = pick(p, x, u, placed(p, u)->optimizer, false, e);
        } else if (instruction->what == WEFT_PAYLOAD_PARAMETERS) {
            self->gathered[u].e[e] = pick(p, x, u, WEFT_SHARDED, false, e);
        } else if (has(p, u, placed(p, u)->gradients, rank, e)) {
            self->total[u].e[e] = pick(p, x, u, 0, true, e);
        }
    }
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_SUM) self->is_total[u] = true;
}

static inline void take_transfer(play *p, const exchange *x, const weft_instruction *instruction, int32_t rank) {
    played *self = &p->ranks[rank];
    if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) {
        self->gradient[instruction->unit][instruction->micro_batch] = x->row[instruction->peer];
        for (int e = 0; e < PLAY_E; e++)
            self->gradient[instruction->unit][instruction->micro_batch].e[e] = made(p, x->row[instruction->peer].e[e]);
    } else if (instruction->what == WEFT_PAYLOAD_CARRY) {
        self->carry[instruction->segment][instruction->micro_batch] = made(p, x->word[instruction->peer]);
    } else {
        self->down[instruction->segment][instruction->micro_batch] = made(p, x->word[instruction->peer]);
    }
}

static inline void take_norm(play *p, const exchange *x, int32_t rank) {
    uint64_t norm = made(p, p->ranks[rank].count);
    for (int32_t u = 0; u < p->job->view.n_units; u++)
        for (int e = 0; e < PLAY_E && weft_job_spec_trains(p->job, u); e++)
            for (int32_t r = 0; r < p->world; r++)
                if (sums(p, u, r, e)) norm = hash2(norm, made(p, x->rows[r][u].e[e]));
    p->ranks[rank].norm = norm;
}

static inline void end_instruction(play *p, int32_t rank, int32_t i) {
    const weft_instruction *instruction = &p->team->programs[rank]->instructions[i];
    exchange *x = &p->exchanges[p->ranks[rank].exchange[i]];
    if (p->ranks[rank].ended[i]) p->torn++;
    p->ranks[rank].ended[i] = true;
    verify(p, x, instruction, rank);
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_REDUCE: take_reduce(p, x, instruction, rank); break;
    case WEFT_INSTRUCTION_GATHER:
    case WEFT_INSTRUCTION_REFRESH: take_gather(p, x, instruction, rank); break;
    case WEFT_INSTRUCTION_RECV: take_transfer(p, x, instruction, rank); break;
    case WEFT_INSTRUCTION_NORM: take_norm(p, x, rank); break;
    default: break;
    }
}

/* ---- execution ---- */

static inline bool travels(const weft_instruction *instruction) {
    return instruction->kind == WEFT_INSTRUCTION_GATHER || instruction->kind == WEFT_INSTRUCTION_REDUCE ||
           instruction->kind == WEFT_INSTRUCTION_SEND || instruction->kind == WEFT_INSTRUCTION_RECV ||
           instruction->kind == WEFT_INSTRUCTION_REFRESH || instruction->kind == WEFT_INSTRUCTION_NORM;
}

static inline bool may_end(const play *p, int32_t rank, int32_t i) {
    const exchange *x = &p->exchanges[p->ranks[rank].exchange[i]];
    return x->started == x->members;
}

/* True if an instruction, and everything before it in its queue, may end. */
static inline bool may_end_in_order(const play *p, int32_t rank, int32_t i) {
    const weft_instruction *instructions = p->team->programs[rank]->instructions;
    for (int32_t k = 0; k <= i; k++)
        if (travels(&instructions[k]) && instructions[k].queue == instructions[i].queue && !may_end(p, rank, k))
            return false;
    return true;
}

static inline bool of_parameters(const weft_instruction *instruction) {
    return instruction->kind == WEFT_INSTRUCTION_RELEASE || instruction->kind == WEFT_INSTRUCTION_REFRESH ||
           (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS);
}

/* True for two operations on the parameters, or on the sum, of the same unit. */
static inline bool clash(const weft_instruction *a, const weft_instruction *b) {
    if (a->peer >= 0 || b->peer >= 0 || a->unit < 0 || a->unit != b->unit) return false;
    return of_parameters(a) == of_parameters(b);
}

/* Sums in flight must not be used by a collective of the same unit, by NORM or by STEP. */
static inline void watch(play *p, int32_t rank, int32_t i) {
    const weft_instruction *instructions = p->team->programs[rank]->instructions, *instruction = &instructions[i];
    for (int32_t k = 0; k < i; k++) {
        const bool open = travels(&instructions[k]) && instructions[k].queue > 0 && !p->ranks[rank].ended[k];
        const bool sum = instructions[k].kind == WEFT_INSTRUCTION_REDUCE ||
                         (instructions[k].kind == WEFT_INSTRUCTION_GATHER && instructions[k].what == WEFT_PAYLOAD_SUM);
        if (!open) continue;
        if (travels(instruction) && clash(&instructions[k], instruction)) p->torn++;
        if (sum && (instruction->kind == WEFT_INSTRUCTION_NORM || instruction->kind == WEFT_INSTRUCTION_STEP))
            p->torn++;
        if (instruction->kind == WEFT_INSTRUCTION_RELEASE && clash(&instructions[k], instruction)) p->torn++;
    }
}

/* Returns false if the rank is blocked by an operation that cannot end yet. */
static inline bool play_instruction(play *p, int32_t rank) {
    played *self = &p->ranks[rank];
    const weft_instruction *instruction = &p->team->programs[rank]->instructions[self->at];
    if (!self->started) watch(p, rank, self->at);
    if (travels(instruction) && !self->started) start_exchange(p, rank, self->at);
    self->started = true;
    if (travels(instruction) && instruction->queue == 0) {
        if (!may_end(p, rank, self->at)) return false;
        end_instruction(p, rank, self->at);
    }
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_COUNT: self->count = 99; break;
    case WEFT_INSTRUCTION_FORWARD: play_forward(p, rank, instruction->segment, instruction->micro_batch); break;
    case WEFT_INSTRUCTION_RECOMPUTE:
        self->tape[instruction->segment][instruction->micro_batch] =
            hash2(2, inputs(p, rank, instruction->segment, instruction->micro_batch));
        break;
    case WEFT_INSTRUCTION_BACKWARD: play_backward(p, rank, instruction->segment, instruction->micro_batch); break;
    case WEFT_INSTRUCTION_RELEASE: memset(&self->gathered[instruction->unit], 0, sizeof(elements)); break;
    case WEFT_INSTRUCTION_STEP: play_step(p, rank); break;
    case WEFT_INSTRUCTION_WAIT:
        if (!may_end_in_order(p, rank, instruction->waits)) return false;
        end_instruction(p, rank, instruction->waits);
        break;
    default: break;
    }
    self->started = false;
    self->at++;
    return true;
}

static inline void play_begin(play *p, const team *of) {
    memset(p, 0, sizeof *p);
    p->team = of;
    p->job = &of->job.spec;
    p->world = of->world;
    p->micro_batches = weft_job_spec_micro_batches(p->job);
    p->exchanges = malloc(PLAY_EXCHANGES * sizeof *p->exchanges);
    ck_assert_ptr_nonnull(p->exchanges);
    for (int32_t r = 0; r < p->world; r++) {
        ck_assert_int_le(of->programs[r]->n_instructions, PLAY_INSTRUCTIONS);
        for (int32_t i = 0; i < PLAY_INSTRUCTIONS; i++) p->ranks[r].exchange[i] = -1;
        for (int32_t u = 0; u < p->job->view.n_units; u++)
            for (int e = 0; e < PLAY_E; e++) {
                const int32_t holding = placed(p, u)->parameters;
                const bool held = holding == WEFT_OWNED && p->world > 1 ? (holders(p, u) >> r & 1) != 0
                                                                        : has(p, u, holding, r, e);
                if (held) p->ranks[r].parameters[u].e[e] = hash2(8, (uint64_t)(u * PLAY_E + e));
            }
    }
}

/* Result of a run. */
typedef struct outcome {
    uint64_t hash;       /* of the final state of all ranks */
    uint64_t parameters; /* of the parameters only, equal for all strategies with the same computation */
    bool stuck;
    int32_t torn;
} outcome;

/* Hashes each element; ranks with copies must agree. */
static inline uint64_t parameters_of_all(play *p) {
    uint64_t hash = 1;
    for (int32_t u = 0; u < p->job->view.n_units; u++)
        for (int e = 0; e < PLAY_E; e++) {
            uint64_t value = 0;
            for (int32_t r = 0; r < p->world; r++) {
                const uint64_t here = p->ranks[r].parameters[u].e[e];
                if (value != 0 && here != 0 && here != value) p->torn++;
                if (here != 0) value = here;
            }
            hash = hash2(hash, value);
        }
    return hash;
}

static inline outcome play_team(const team *of) {
    static play p;
    outcome out = {1, 0, false, 0};
    bool moved = true;
    play_begin(&p, of);
    while (moved) {
        moved = false;
        for (int32_t r = 0; r < p.world; r++)
            while (p.ranks[r].at < of->programs[r]->n_instructions && play_instruction(&p, r)) moved = true;
    }
    for (int32_t r = 0; r < p.world; r++) {
        if (p.ranks[r].at < of->programs[r]->n_instructions) out.stuck = true;
        out.hash = hash2(hash2(out.hash, p.ranks[r].norm), p.ranks[r].loss);
    }
    out.parameters = parameters_of_all(&p);
    out.hash = hash2(out.hash, out.parameters);
    out.torn = p.torn;
    free(p.exchanges);
    return out;
}

#endif
