/* host/program/exchange.c: see exchange.h. */
#include "program/exchange.h"

#include "base/alloc.h"
#include "program/gathered.h"
#include "program/job.h"
#include "program/program.h"

#include <stdlib.h>

int64_t weft_exchange_piece(const weft_plan *plan, const weft_job_spec *job, int32_t unit) {
    const weft_group *group = weft_layout_trained(plan->layout, unit);
    return group == NULL ? 0 : weft_hold_piece(plan->layout, group, weft_cut_of(job, unit).replicas);
}

/* ---- REDUCE ---- */

weft_reduce_rows weft_exchange_reduce(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope,
                                      bool is_micro_batch) {
    const weft_cut cut = weft_cut_of(job, unit);
    const int64_t piece = weft_exchange_piece(plan, job, unit);
    const bool is_fast = job->view.reduce == WEFT_REDUCE_FAST;
    weft_reduce_rows out = {.ranks = weft_scope_size(&cut, scope),
                            .dtype = is_micro_batch ? job->view.reduce_dtype : WEFT_F32,
                            .whole = piece * (scope == WEFT_SCOPE_ACROSS ? cut.groups : cut.replicas)};
    const bool is_narrow = out.dtype != WEFT_F32;
    out.row = out.whole / out.ranks;
    out.come = is_narrow ? weft_dtype_span(out.dtype, out.whole) : 0;
    out.wide = out.bytes = out.come;
    if (out.ranks == 1) return out;
    out.wide += weft_dtype_span(out.dtype, out.row) * (is_fast ? 1 : out.ranks);
    out.bytes = out.wide + (is_narrow ? weft_f32_bytes(out.row) : 0);
    return out;
}

/* ---- one instruction ---- */

static weft_planned_exchange plan_nothing(void) {
    return (weft_planned_exchange){.way = WEFT_EXCHANGE_NONE, .ranks = 1};
}

/* Each rank of the scope sends n elements to each other one. */
static weft_planned_exchange plan_group(const weft_job_spec *job, const weft_instruction *instruction, int32_t scope,
                                        int32_t rank, int32_t way, int32_t dtype, int64_t n) {
    weft_planned_exchange out = {.way = way, .scope = scope, .dtype = dtype, .n = n};
    out.cut = weft_cut_of(job, instruction->unit);
    out.ranks = weft_scope_size(&out.cut, scope);
    if (out.ranks == 1 || n == 0) return plan_nothing();
    out.place = weft_scope_place(&out.cut, scope, rank);
    out.each = weft_dtype_span(dtype, n);
    out.sent = out.each * (out.ranks - 1);
    return out;
}

static weft_planned_exchange plan_message(int32_t way, int32_t peer, int32_t dtype, int64_t n) {
    weft_planned_exchange out = {.way = way, .peer = peer, .ranks = 2, .dtype = dtype, .n = n};
    out.each = out.sent = weft_dtype_span(dtype, n);
    return out;
}

static weft_planned_exchange plan_gather(const weft_plan *plan, const weft_job_spec *job,
                                         const weft_instruction *instruction, int32_t rank) {
    const bool is_whole = job->view.placements[instruction->unit].gradients == WEFT_REPLICATED;
    if (instruction->what == WEFT_PAYLOAD_SUM)
        return plan_group(job, instruction, is_whole ? WEFT_SCOPE_ALL : WEFT_SCOPE_ACROSS, rank,
                          WEFT_EXCHANGE_ALL_GATHER, WEFT_F32, weft_exchange_piece(plan, job, instruction->unit));
    if (!weft_gathered_is_due(job, instruction->unit)) return plan_nothing();
    return plan_group(job, instruction, WEFT_SCOPE_NODE, rank, WEFT_EXCHANGE_ALL_GATHER, WEFT_U8,
                      job->units[instruction->unit].gather_each);
}

static weft_planned_exchange plan_reduce(const weft_plan *plan, const weft_job_spec *job,
                                         const weft_instruction *instruction, int32_t rank) {
    const weft_reduce_rows rows =
        weft_exchange_reduce(plan, job, instruction->unit, instruction->scope, instruction->micro_batch >= 0);
    return plan_group(job, instruction, instruction->scope, rank,
                      job->view.reduce == WEFT_REDUCE_FAST ? WEFT_EXCHANGE_REDUCE_SCATTER : WEFT_EXCHANGE_ALL_TO_ALL,
                      rows.dtype, rows.row);
}

/* The owner of a unit sends its trained group to the rank with a copy. */
static weft_planned_exchange plan_copy(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t rank) {
    const weft_group *group = weft_layout_trained(plan->layout, unit);
    const int32_t owner = job->view.placements[unit].owner, other = weft_job_spec_borrower(job, unit);
    if (group == NULL || other < 0 || (rank != owner && rank != other)) return plan_nothing();
    return rank == owner ? plan_message(WEFT_EXCHANGE_SEND, other, group->dtype, group->numel)
                         : plan_message(WEFT_EXCHANGE_RECV, owner, group->dtype, group->numel);
}

static weft_planned_exchange plan_refresh(const weft_plan *plan, const weft_job_spec *job,
                                          const weft_instruction *instruction, int32_t rank) {
    const int64_t shard = weft_exchange_piece(plan, job, instruction->unit) *
                          weft_cut_of(job, instruction->unit).groups;
    const weft_group *group = weft_layout_trained(plan->layout, instruction->unit);
    if (job->view.placements[instruction->unit].parameters == WEFT_OWNED)
        return plan_copy(plan, job, instruction->unit, rank);
    return plan_group(job, instruction, WEFT_SCOPE_NODE, rank, WEFT_EXCHANGE_ALL_GATHER,
                      group == NULL ? WEFT_F32 : group->dtype, shard);
}

static weft_planned_exchange plan_transfer(const weft_job_spec *job, const weft_instruction *instruction) {
    const int64_t bytes = instruction->unit >= 0 ? job->units[instruction->unit].gradient
                                                 : job->segments[instruction->segment].carry;
    const bool is_send = instruction->kind == WEFT_INSTRUCTION_SEND;
    return plan_message(is_send ? WEFT_EXCHANGE_SEND : WEFT_EXCHANGE_RECV, instruction->peer, WEFT_U8, bytes);
}

weft_planned_exchange weft_exchange_plan(const weft_plan *plan, const weft_job_spec *job,
                                         const weft_instruction *instruction, int32_t rank) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER: return plan_gather(plan, job, instruction, rank);
    case WEFT_INSTRUCTION_REDUCE: return plan_reduce(plan, job, instruction, rank);
    case WEFT_INSTRUCTION_REFRESH: return plan_refresh(plan, job, instruction, rank);
    case WEFT_INSTRUCTION_SEND:
    case WEFT_INSTRUCTION_RECV: return plan_transfer(job, instruction);
    default: return plan_nothing();
    }
}

/* ---- exchanges of several ranks ---- */

/* Identifies an exchange on all its ranks. Fields that do not apply are 0. */
typedef struct match_key {
    int32_t what, of, micro_batch;      /* of a message: its data */
    int32_t first, stride, count, turn; /* of a collective: its ranks, and its number among theirs */
} match_key;

typedef struct entry {
    match_key key;
    int32_t value; /* -1: free */
} entry;

/* Hash table with open addressing, at most half full. */
typedef struct table {
    entry *entries;
    size_t capacity, n; /* capacity: a power of two, or 0 */
} table;

static entry *entry_of(const table *self, const match_key *key) {
    const uint64_t hash = weft_fnv(WEFT_FNV_BEGIN, key, sizeof *key);
    size_t at = (size_t)(hash ^ hash >> 31) & (self->capacity - 1);
    while (self->entries[at].value >= 0 && memcmp(&self->entries[at].key, key, sizeof *key) != 0)
        at = (at + 1) & (self->capacity - 1);
    return &self->entries[at];
}

/* Returns the value of the key; -1: the key is new, and the caller sets its value before the next call. */
static int32_t *find_key(table *self, const match_key *key) {
    entry *found = NULL;
    if (2 * self->n >= self->capacity) {
        table larger = {.capacity = self->capacity == 0 ? 16 : 2 * self->capacity, .n = self->n};
        larger.entries = weft_alloc(larger.capacity, sizeof *larger.entries);
        for (size_t i = 0; i < larger.capacity; i++) larger.entries[i].value = -1;
        for (size_t i = 0; i < self->capacity; i++)
            if (self->entries[i].value >= 0) *entry_of(&larger, &self->entries[i].key) = self->entries[i];
        free(self->entries);
        *self = larger;
    }
    found = entry_of(self, key);
    if (found->value < 0) self->n++;
    found->key = *key;
    return &found->value;
}

/* Returns the number of ranks of an instruction's exchange, and its key. turns: of this rank; exchanges so far in each
 * group, minus 1. */
static int32_t key_of(match_key *out, table *turns, const weft_job_spec *job, const weft_instruction *i, int32_t rank) {
    weft_members ranks;
    memset(out, 0, sizeof *out);
    if (i->kind == WEFT_INSTRUCTION_SEND || i->kind == WEFT_INSTRUCTION_RECV) {
        out->what = i->what;
        out->of = i->unit >= 0 ? i->unit : i->segment;
        out->micro_batch = i->micro_batch;
        return 2;
    }
    ranks = weft_job_spec_ranks(job, i, rank);
    if (ranks.count < 2) return 1;
    out->first = ranks.first;
    out->stride = ranks.stride;
    out->count = ranks.count;
    out->turn = ++*find_key(turns, out);
    return ranks.count;
}

weft_matches weft_matches_find(const weft_program *const *programs, const weft_job_spec *job) {
    weft_matches out = {.world = job->view.world};
    int64_t instructions = 0;
    table known = {0};
    for (int32_t rank = 0; rank < out.world; rank++) instructions += programs[rank]->n_instructions;
    out.of = weft_alloc(out.world, sizeof *out.of);
    out.size = weft_alloc(instructions, sizeof *out.size);
    for (int32_t rank = 0; rank < out.world; rank++) {
        table turns = {0};
        out.of[rank] = weft_alloc(programs[rank]->n_instructions, sizeof **out.of);
        for (int32_t i = 0; i < programs[rank]->n_instructions; i++) {
            match_key key;
            const int32_t size = key_of(&key, &turns, job, &programs[rank]->instructions[i], rank);
            int32_t *match = size > 1 ? find_key(&known, &key) : NULL;
            if (match != NULL && *match < 0) {
                *match = out.n++;
                out.size[*match] = size;
            }
            out.of[rank][i] = match != NULL ? *match : -1;
        }
        free(turns.entries);
    }
    free(known.entries);
    return out;
}

void weft_matches_free(weft_matches *matches) {
    for (int32_t rank = 0; rank < matches->world; rank++) free(matches->of[rank]);
    free(matches->of);
    free(matches->size);
}
