/* host/program/exchange.c: see exchange.h. */
#include "program/exchange.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/job.h"

#include <search.h>
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

static const weft_planned_exchange nothing = {.way = WEFT_EXCHANGE_NONE, .ranks = 1};

/* Each rank of the scope sends n elements to each other one. */
static weft_planned_exchange plan_group(const weft_job_spec *job, int32_t unit, int32_t scope, int32_t rank,
                                        int32_t way, int32_t dtype, int64_t n) {
    weft_planned_exchange out = {.way = way, .scope = scope, .dtype = dtype, .n = n};
    out.cut = weft_cut_of(job, unit);
    out.ranks = weft_scope_size(&out.cut, scope);
    if (out.ranks == 1 || n == 0) return nothing;
    out.place = weft_scope_place(&out.cut, scope, rank);
    out.each = weft_dtype_span(dtype, n);
    out.sent = out.each * (out.ranks - 1);
    return out;
}

static weft_planned_exchange plan_message(bool is_send, int32_t peer, int32_t dtype, int64_t n) {
    const int64_t bytes = weft_dtype_span(dtype, n);
    return (weft_planned_exchange){.way = is_send ? WEFT_EXCHANGE_SEND : WEFT_EXCHANGE_RECV,
                                   .peer = peer,
                                   .ranks = 2,
                                   .dtype = dtype,
                                   .n = n,
                                   .each = bytes,
                                   .sent = bytes};
}

/* The owner of a unit sends its trained group to the rank with a copy. */
static weft_planned_exchange plan_copy(const weft_job_spec *job, const weft_group *group, int32_t unit, int32_t rank) {
    const int32_t owner = job->view.placements[unit].owner, other = weft_job_spec_borrower(job, unit);
    if (group == NULL || other < 0 || (rank != owner && rank != other)) return nothing;
    return plan_message(rank == owner, rank == owner ? other : owner, group->dtype, group->numel);
}

weft_planned_exchange weft_exchange_plan(const weft_plan *plan, const weft_job_spec *job,
                                         const weft_instruction *instruction, int32_t rank) {
    const int32_t u = instruction->unit;
    const weft_placement *p = u >= 0 ? &job->view.placements[u] : NULL;
    const weft_group *group = u >= 0 ? weft_layout_trained(plan->layout, u) : NULL;
    const int64_t piece = u >= 0 ? weft_exchange_piece(plan, job, u) : 0;
    const bool is_fast = job->view.reduce == WEFT_REDUCE_FAST;
    weft_reduce_rows rows;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER:
        if (instruction->what != WEFT_PAYLOAD_SUM)
            return plan_group(job, u, WEFT_SCOPE_NODE, rank, WEFT_EXCHANGE_ALL_GATHER, WEFT_U8,
                              job->units[u].gather_each);
        return plan_group(job, u, p->gradients == WEFT_REPLICATED ? WEFT_SCOPE_ALL : WEFT_SCOPE_ACROSS, rank,
                          WEFT_EXCHANGE_ALL_GATHER, WEFT_F32, piece);
    case WEFT_INSTRUCTION_REDUCE:
        rows = weft_exchange_reduce(plan, job, u, instruction->scope, instruction->micro_batch >= 0);
        return plan_group(job, u, instruction->scope, rank,
                          is_fast ? WEFT_EXCHANGE_REDUCE_SCATTER : WEFT_EXCHANGE_ALL_TO_ALL, rows.dtype, rows.row);
    case WEFT_INSTRUCTION_REFRESH:
        if (p->parameters == WEFT_OWNED) return plan_copy(job, group, u, rank);
        return plan_group(job, u, WEFT_SCOPE_NODE, rank, WEFT_EXCHANGE_ALL_GATHER,
                          group == NULL ? WEFT_F32 : group->dtype, piece * weft_cut_of(job, u).groups);
    case WEFT_INSTRUCTION_SEND:
    case WEFT_INSTRUCTION_RECV:
        return plan_message(instruction->kind == WEFT_INSTRUCTION_SEND, instruction->peer, WEFT_U8,
                            u >= 0 ? job->units[u].gradient : job->segments[instruction->segment].carry);
    default: return nothing;
    }
}

/* ---- exchanges of several ranks ---- */

/* Identifies an exchange on all its ranks. Fields that do not apply are 0. */
typedef struct match_key {
    int32_t what, of, micro_batch; /* of a message: its data */
    weft_members ranks;            /* of a collective */
    int32_t turn;                  /* its number among those of its ranks */
} match_key;

typedef struct numbered {
    match_key key; /* first: the order of the tree */
    int32_t value;
} numbered;

static int compare_keys(const void *a, const void *b) {
    return memcmp(a, b, sizeof(match_key));
}

/* Returns the value of the key; -1: the key is new. */
static int32_t *find_key(void **tree, const match_key *key) {
    numbered **found = tfind(key, tree, compare_keys), *added = NULL;
    if (found != NULL) return &(*found)->value;
    added = weft_alloc(1, sizeof *added);
    *added = (numbered){*key, -1};
    (void)tsearch(added, tree, compare_keys);
    return &added->value;
}

/* Returns the number of ranks of an instruction's exchange, and its key. turns: of this rank; exchanges so far in each
 * group, minus 1. */
static int32_t key_of(match_key *out, void **turns, const weft_job_spec *job, const weft_instruction *i, int32_t rank) {
    memset(out, 0, sizeof *out);
    if (i->kind == WEFT_INSTRUCTION_SEND || i->kind == WEFT_INSTRUCTION_RECV) {
        out->what = i->what;
        out->of = i->unit >= 0 ? i->unit : i->segment;
        out->micro_batch = i->micro_batch;
        return 2;
    }
    out->ranks = weft_job_spec_ranks(job, i, rank);
    if (out->ranks.count > 1) out->turn = ++*find_key(turns, out);
    return out->ranks.count;
}

weft_matches weft_matches_find(const weft_program *const *programs, const weft_job_spec *job) {
    weft_matches out = {.world = job->view.world};
    int64_t instructions = 0;
    void *known = NULL; /* trees of numbered keys */
    for (int32_t rank = 0; rank < out.world; rank++) instructions += programs[rank]->n_instructions;
    out.of = weft_alloc(out.world, sizeof *out.of);
    out.size = weft_alloc(instructions, sizeof *out.size);
    for (int32_t rank = 0; rank < out.world; rank++) {
        void *turns = NULL;
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
        tdestroy(turns, free);
    }
    tdestroy(known, free);
    return out;
}

void weft_matches_free(weft_matches *matches) {
    for (int32_t rank = 0; rank < matches->world; rank++) free(matches->of[rank]);
    free(matches->of);
    free(matches->size);
}

/* ---- gathered units ---- */

bool weft_gathered_share(const weft_gathered_part *p, const weft_parameter *parameter, int64_t j, int64_t *begin,
                         int64_t *end) {
    const int64_t from = j * p->shard - parameter->offset, to = from + p->shard;
    *begin = from > 0 ? from : 0;
    *end = to < parameter->numel ? to : parameter->numel;
    return *begin < *end;
}

/* Returns the elements of the group's gains and biases in [from, to). */
static int64_t count_gains(const weft_plan *plan, const weft_group *group, int64_t from, int64_t to) {
    int64_t n = 0;
    for (int32_t i = 0; i < group->n_members; i++) {
        const weft_parameter *p = &plan->declared->parameters[group->members[i]];
        const int64_t end = p->offset + p->numel < to ? p->offset + p->numel : to;
        if (!weft_parameter_is_matrix(p)) n += weft_larger(end - weft_larger(p->offset, from), 0);
    }
    return n;
}

/* Places the gains of a rounded group after its image and returns their end. */
static int64_t place_gains(const weft_plan *plan, const weft_cut *cut, weft_gathered_part *p, int64_t at) {
    for (int32_t j = 0; j < cut->group; j++)
        p->row = weft_larger(p->row, count_gains(plan, p->group, j * p->shard, (j + 1) * p->shard));
    p->rows = at;
    p->gains = p->rows + weft_cache_lines(weft_f32_bytes(p->row) * cut->group);
    return p->gains + weft_cache_lines(weft_f32_bytes(count_gains(plan, p->group, 0, p->group->numel)));
}

int64_t weft_gathered_layout(const weft_plan *plan, const weft_cut *cut, int32_t unit,
                             weft_gathered_part parts[WEFT_UNIT_GROUPS]) {
    const weft_unit *of = &plan->layout->units[unit];
    int64_t at = 0;
    for (int32_t g = 0; g < of->n_groups; g++) {
        weft_gathered_part *p = &parts[g];
        memset(p, 0, sizeof *p);
        p->index = of->groups[g];
        p->group = &plan->layout->groups[p->index];
        p->rounded = p->group->dtype == WEFT_F32 && plan->dtype != WEFT_F32;
        p->dtype = p->rounded ? plan->dtype : p->group->dtype;
        p->shard = weft_hold_piece(plan->layout, p->group, cut->replicas) * cut->groups;
        p->image = at;
        at += weft_cache_lines(weft_dtype_span(p->dtype, p->shard) * cut->group);
        p->widened = p->group->dtype != WEFT_F32 && !weft_dtype_is_packed(p->group->dtype) &&
                     count_gains(plan, p->group, 0, p->group->numel) > 0;
        if (p->rounded) at = place_gains(plan, cut, p, at);
        if (p->widened) {
            p->gains = at;
            at += weft_cache_lines(weft_f32_bytes(count_gains(plan, p->group, 0, p->group->numel)));
        }
    }
    return at;
}

bool weft_gathered_is_due(const weft_job_spec *job, int32_t unit) {
    return job->view.placements[unit].parameters == WEFT_SHARDED && weft_cut_of(job, unit).group > 1;
}

int64_t weft_gathered_bytes(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int64_t *each) {
    const weft_cut cut = weft_cut_of(job, unit);
    weft_gathered_part parts[WEFT_UNIT_GROUPS];
    *each = 0;
    if (!weft_gathered_is_due(job, unit)) return 0;
    const int64_t bytes = weft_gathered_layout(plan, &cut, unit, parts);
    for (int32_t g = 0; g < plan->layout->units[unit].n_groups; g++)
        *each += weft_dtype_span(parts[g].dtype, parts[g].shard) + weft_f32_bytes(parts[g].row);
    return bytes;
}

/* ---- NORM ---- */

int64_t weft_norm_cells(const weft_plan *plan, int64_t n) {
    return weft_round_up(n, plan->layout->grid) / plan->layout->grid;
}

int32_t weft_norm_owner(const weft_plan *plan, int32_t group) {
    const weft_placement *p = &plan->train.job->spec.view.placements[plan->layout->groups[group].unit];
    return plan->world > 1 && p->gradients == WEFT_OWNED ? p->owner : -1;
}

bool weft_norm_is_cut(const weft_plan *plan, int32_t group) {
    const weft_placement *p = &plan->train.job->spec.view.placements[plan->layout->groups[group].unit];
    return plan->world > 1 && p->gradients == WEFT_SHARDED;
}

/* Returns the maximum number of tensors that one rank owns. */
static int64_t most_owned(const weft_plan *plan) {
    int64_t most = 0;
    for (int32_t first = 0; first < plan->layout->n_trainable_groups; first++) {
        const int32_t owner = weft_norm_owner(plan, first);
        int64_t n = 0;
        for (int32_t g = first; owner >= 0 && g < plan->layout->n_trainable_groups; g++)
            if (weft_norm_owner(plan, g) == owner) n += plan->layout->groups[g].n_members;
        most = weft_larger(most, n);
    }
    return most;
}

static void set_world(const weft_plan *plan, weft_norm_exchange *walk, int32_t goes, int64_t n) {
    walk->goes = goes;
    walk->cut = (weft_cut){plan->world, plan->world, 1};
    walk->n = n;
}

static bool next_group(const weft_plan *plan, weft_norm_exchange *walk) {
    while (++walk->group < plan->layout->n_trainable_groups) {
        const weft_group *group = &plan->layout->groups[walk->group];
        if (!weft_norm_is_cut(plan, walk->group)) continue;
        walk->goes = WEFT_NORM_GOES_CELLS;
        walk->cut = weft_cut_of(&plan->train.job->spec, group->unit);
        walk->n = weft_hold_piece(plan->layout, group, walk->cut.replicas) / plan->layout->grid;
        return true;
    }
    return false;
}

bool weft_norm_exchange_next(const weft_plan *plan, weft_norm_exchange *walk) {
    if (walk->goes == WEFT_NORM_GOES_OWNED) return false;
    if (walk->goes == 0) {
        walk->group = -1;
        set_world(plan, walk, WEFT_NORM_GOES_LOSSES, plan->train.most_losses);
        if (plan->world > 1) return true;
    }
    if (walk->goes == WEFT_NORM_GOES_CELLS) walk->first += walk->n * walk->cut.replicas;
    if (next_group(plan, walk)) return true;
    set_world(plan, walk, WEFT_NORM_GOES_OWNED, most_owned(plan));
    return walk->n > 0;
}

weft_norm_exchange weft_norm_owned(const weft_plan *plan) {
    weft_norm_exchange walk = {0};
    while (walk.goes != WEFT_NORM_GOES_OWNED) (void)weft_norm_exchange_next(plan, &walk);
    return walk;
}

int64_t weft_norm_nodes(const weft_plan *plan) {
    if (plan->train.program == NULL) return 0;
    const weft_norm_exchange owned = weft_norm_owned(plan);
    return owned.first + owned.n * plan->world;
}

static int64_t kernel_work(const weft_device_plugin *kernels, const weft_device *device, int64_t n, int64_t extents,
                           int32_t dtype) {
    const weft_square_sum args = {.struct_size = (uint32_t)sizeof args, .n = n, .dtype = dtype, .n_extents = extents};
    return kernels->square_sum_workspace(device, &args);
}

int64_t weft_norm_work(const weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device) {
    int64_t tensors = 0, elements = 0, cells = 0, work = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (!p->trainable) continue;
        tensors++;
        elements += p->numel;
        cells += weft_norm_cells(plan, p->numel);
    }
    if (tensors == 0) return 0;
    work = kernel_work(kernels, device, elements, tensors, WEFT_F32);
    return plan->world == 1 ? work : weft_larger(work, kernel_work(kernels, device, cells, tensors, WEFT_F64));
}
