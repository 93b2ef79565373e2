/* tests/plan/test_exchange.c: communication of an instruction, with numbers worked out by hand: unevenly sharded
 * parameter groups, several storage dtypes, replicated and sharded sums; and each rank sends the data that the others
 * expect. */
#include "program/exchange.h"

#include "suite.h"
#include "tools/common/plan_costs.h"

enum { GRID = 64, N_UNITS = 2, N_GROUPS = 4, N_PARAMETERS = 5, N_SEGMENTS = 2 };

/* Unit 0: five trained cells, of which the last is a gain's; three frozen bf16 cells and two of bytes. Unit 1: seven
 * trained cells. */
typedef struct bench {
    weft_plan plan;
    weft_declared declared;
    weft_layout layout;
    weft_parameter parameters[N_PARAMETERS];
    weft_unit units[N_UNITS];
    weft_group groups[N_GROUPS];
    int32_t members[N_PARAMETERS];
    weft_job job;
    weft_program program;
    weft_placement placements[N_UNITS];
    weft_segment_view segments[N_SEGMENTS];
    weft_graph_sizes segment_sizes[N_SEGMENTS];
    weft_unit_sizes unit_sizes[N_UNITS];
    int32_t reads[N_UNITS];
} bench;

static void add_group(bench *b, int32_t index, int32_t unit, int32_t cells, int32_t dtype, int32_t member, int32_t n) {
    const weft_group group = {.unit = unit,
                              .trainable = index < 2,
                              .dtype = dtype,
                              .numel = (int64_t)cells * GRID,
                              .members = &b->members[member],
                              .n_members = n};
    b->groups[index] = group;
    b->units[unit].groups[b->units[unit].n_groups++] = index;
    if (index < 2) b->units[unit].trained = index;
}

static void add_parameter(bench *b, int32_t index, int32_t group, int64_t offset, int64_t numel) {
    const weft_parameter parameter = {.role = WEFT_WEIGHT_LINEAR,
                                      .trainable = group < 2,
                                      .unit = b->groups[group].unit,
                                      .group = group,
                                      .offset = offset,
                                      .numel = numel,
                                      .dtype = b->groups[group].dtype};
    b->parameters[index] = parameter;
    b->members[index] = index;
}

static void set_model(bench *b) {
    add_group(b, 0, 0, 5, WEFT_F32, 0, 2);
    add_group(b, 1, 1, 7, WEFT_F32, 4, 1);
    add_group(b, 2, 0, 3, WEFT_BF16, 2, 1);
    add_group(b, 3, 0, 2, WEFT_U8, 3, 1);
    add_parameter(b, 0, 0, 0, 4 * GRID);
    add_parameter(b, 1, 0, 4 * GRID, 40);
    b->parameters[1].role = WEFT_WEIGHT_GAIN;
    add_parameter(b, 2, 2, 0, 3 * GRID);
    add_parameter(b, 3, 3, 0, 2 * GRID);
    add_parameter(b, 4, 1, 0, 7 * GRID);
    b->layout = (weft_layout){.grid = GRID,
                              .units = b->units,
                              .n_units = N_UNITS,
                              .groups = b->groups,
                              .n_groups = N_GROUPS,
                              .n_trainable_groups = 2};
    b->declared.parameters = b->parameters;
    b->declared.n_parameters = N_PARAMETERS;
}

/* Uses the same holding everywhere if possible; `parameters` and `gradients` are weft_holding. */
static bench *bench_new(int32_t world, int32_t group, int32_t parameters, int32_t gradients) {
    bench *b = calloc(1, sizeof *b);
    weft_strategy_job *view = NULL;
    ck_assert_ptr_nonnull(b);
    view = &b->job.spec.view;
    set_model(b);
    for (int32_t u = 0; u < N_UNITS; u++) {
        b->placements[u] = (weft_placement){
            .parameters = parameters, .gradients = gradients, .optimizer = WEFT_SHARDED, .owner = -1, .group = group};
        b->reads[u] = u;
    }
    for (int32_t s = 0; s < N_SEGMENTS; s++) {
        b->segments[s] = (weft_segment_view){.owner = -1, .units = b->reads, .n_units = N_UNITS};
        b->segment_sizes[s].carry = 1000 + s;
    }
    view->mode = WEFT_MODE_TRAIN;
    view->world = view->replicas = world;
    view->reduce = WEFT_REDUCE_ORDERED;
    view->reduce_dtype = WEFT_F32;
    view->n_units = N_UNITS;
    view->n_segments = N_SEGMENTS;
    view->placements = b->placements;
    view->segments = b->segments;
    b->job.units = b->unit_sizes;
    b->job.spec.units = b->unit_sizes;
    b->job.spec.segments = b->segment_sizes;
    b->plan.world = world;
    b->plan.dtype = WEFT_F32;
    b->plan.declared = &b->declared;
    b->plan.layout = &b->layout;
    b->plan.train.job = &b->job;
    b->plan.train.program = &b->program;
    b->plan.train.most_losses = 2;
    return b;
}

static weft_instruction instruction_of(int32_t kind, int32_t unit, int32_t scope, int32_t micro_batch) {
    const weft_instruction instruction = {.kind = kind,
                                          .unit = unit,
                                          .segment = -1,
                                          .micro_batch = micro_batch,
                                          .peer = -1,
                                          .what = kind == WEFT_INSTRUCTION_GATHER ? WEFT_PAYLOAD_PARAMETERS : 0,
                                          .scope = scope};
    return instruction;
}

static weft_planned_exchange planned(const bench *b, const weft_instruction *instruction, int32_t rank) {
    return weft_exchange_plan(&b->plan, &b->job.spec, instruction, rank);
}

static void check_rows(weft_reduce_rows rows, int32_t ranks, int64_t row, int64_t whole) {
    ck_assert_int_eq(rows.ranks, ranks);
    ck_assert_int_eq(rows.row, row);
    ck_assert_int_eq(rows.whole, whole);
}

static void check_slot(weft_reduce_rows rows, int64_t come, int64_t wide, int64_t bytes) {
    ck_assert_int_eq(rows.come, come);
    ck_assert_int_eq(rows.wide, wide);
    ck_assert_int_eq(rows.bytes, bytes);
}

static void check_travels(weft_planned_exchange x, int32_t way, int32_t ranks, int32_t place, int64_t each) {
    ck_assert_int_eq(x.way, way);
    ck_assert_int_eq(x.ranks, ranks);
    ck_assert_int_eq(x.place, place);
    ck_assert_int_eq(x.each, each);
    ck_assert_int_eq(x.sent, each * (ranks - 1));
}

static void check_stays(weft_planned_exchange x) {
    ck_assert_int_eq(x.way, WEFT_EXCHANGE_NONE);
    ck_assert_int_eq(x.sent, 0);
}

/* ---- sums ---- */

/* Five cells in three chunks of two: the last one is half empty, and is sent completely. */
TEST(a_reduce_gives_whole_pieces) {
    bench *b = bench_new(3, 3, WEFT_SHARDED, WEFT_SHARDED);
    const weft_job_spec *job = &b->job.spec;
    weft_reduce_rows rows = weft_exchange_reduce(&b->plan, job, 0, WEFT_SCOPE_ALL, true);
    const weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_REDUCE, 0, WEFT_SCOPE_ALL, 1);
    check_rows(rows, 3, 128, 384);
    check_slot(rows, 0, 3 * 512, 3 * 512);
    check_travels(planned(b, &instruction, 2), WEFT_EXCHANGE_ALL_TO_ALL, 3, 2, 512);
    b->job.spec.view.reduce_dtype = WEFT_BF16; /* narrow values first; each row is widened after them */
    rows = weft_exchange_reduce(&b->plan, job, 0, WEFT_SCOPE_ALL, true);
    check_rows(rows, 3, 128, 384);
    check_slot(rows, 768, 768 + 3 * 256, 768 + 3 * 256 + 512);
    check_travels(planned(b, &instruction, 1), WEFT_EXCHANGE_ALL_TO_ALL, 3, 1, 256);
    b->job.spec.view.reduce = WEFT_REDUCE_FAST; /* one row is received: the sum */
    check_slot(weft_exchange_reduce(&b->plan, job, 0, WEFT_SCOPE_ALL, true), 768, 768 + 256, 768 + 256 + 512);
    check_travels(planned(b, &instruction, 0), WEFT_EXCHANGE_REDUCE_SCATTER, 3, 0, 256);
    free(b);
}

TEST(a_reduce_on_one_rank_moves_nothing) {
    bench *b = bench_new(3, 3, WEFT_SHARDED, WEFT_SHARDED);
    const weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_REDUCE, 0, WEFT_SCOPE_RANK, 1);
    weft_reduce_rows rows = weft_exchange_reduce(&b->plan, &b->job.spec, 0, WEFT_SCOPE_RANK, true);
    check_rows(rows, 1, 384, 384);
    check_slot(rows, 0, 0, 0);
    check_stays(planned(b, &instruction, 1));
    b->job.spec.view.reduce_dtype = WEFT_BF16; /* it is still rounded and widened */
    rows = weft_exchange_reduce(&b->plan, &b->job.spec, 0, WEFT_SCOPE_RANK, true);
    check_slot(rows, 768, 768, 768);
    check_stays(planned(b, &instruction, 1));
    free(b);
}

/* Four ranks in shard groups of two; of four chunks of two cells the third is half empty and the last is empty. */
TEST(two_hops_have_rows_of_a_shard_and_of_a_piece) {
    bench *b = bench_new(4, 2, WEFT_SHARDED, WEFT_SHARDED);
    const weft_instruction first = instruction_of(WEFT_INSTRUCTION_REDUCE, 0, WEFT_SCOPE_NODE, 0);
    const weft_instruction second = instruction_of(WEFT_INSTRUCTION_REDUCE, 0, WEFT_SCOPE_ACROSS, -1);
    weft_reduce_rows rows;
    b->job.spec.view.reduce_dtype = WEFT_BF16;
    check_rows(weft_exchange_reduce(&b->plan, &b->job.spec, 0, WEFT_SCOPE_NODE, true), 2, 256, 512);
    check_travels(planned(b, &first, 3), WEFT_EXCHANGE_ALL_TO_ALL, 2, 1, 512);
    rows = weft_exchange_reduce(&b->plan, &b->job.spec, 0, WEFT_SCOPE_ACROSS, false);
    check_rows(rows, 2, 128, 256);
    ck_assert_int_eq(rows.dtype, WEFT_F32); /* sums of several micro-batches are never narrow */
    check_slot(rows, 0, 2 * 512, 2 * 512);
    check_travels(planned(b, &second, 1), WEFT_EXCHANGE_ALL_TO_ALL, 2, 0, 512);
    check_travels(planned(b, &second, 2), WEFT_EXCHANGE_ALL_TO_ALL, 2, 1, 512);
    free(b);
}

TEST(a_whole_sum_is_gathered_from_all_and_a_cut_one_between_groups) {
    bench *whole = bench_new(3, 3, WEFT_REPLICATED, WEFT_REPLICATED),
          *cut = bench_new(3, 3, WEFT_SHARDED, WEFT_SHARDED);
    bench *groups = bench_new(4, 2, WEFT_SHARDED, WEFT_SHARDED);
    weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_GATHER, 0, 0, -1);
    instruction.what = WEFT_PAYLOAD_SUM;
    check_travels(planned(whole, &instruction, 1), WEFT_EXCHANGE_ALL_GATHER, 3, 1, 512);
    check_stays(planned(cut, &instruction, 1)); /* each rank keeps its chunk */
    check_travels(planned(groups, &instruction, 1), WEFT_EXCHANGE_ALL_GATHER, 2, 0, 512);
    check_travels(planned(groups, &instruction, 3), WEFT_EXCHANGE_ALL_GATHER, 2, 1, 512);
    free(whole);
    free(cut);
    free(groups);
}

/* ---- parameters ---- */

TEST(a_gather_brings_every_group_in_its_storage_type) {
    bench *b = bench_new(3, 3, WEFT_SHARDED, WEFT_SHARDED);
    const weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_GATHER, 0, 0, -1);
    weft_sums_size_units(&b->plan, &b->job);
    check_travels(planned(b, &instruction, 2), WEFT_EXCHANGE_ALL_GATHER, 3, 2, 128 * 4 + 64 * 2 + 64);
    b->plan.dtype = WEFT_BF16; /* the fp32 group is rounded, and its gain of 40 is in the last shard */
    weft_sums_size_units(&b->plan, &b->job);
    check_travels(planned(b, &instruction, 2), WEFT_EXCHANGE_ALL_GATHER, 3, 2, 128 * 2 + 40 * 4 + 64 * 2 + 64);
    ck_assert_int_eq(b->unit_sizes[0].gradient, 3 * 512);
    ck_assert_int_eq(b->unit_sizes[0].exchange[WEFT_SCOPE_ALL], 3 * 512);
    ck_assert_int_eq(b->unit_sizes[1].gradient, 3 * 3 * GRID * 4); /* seven cells in three chunks of three */
    free(b);
}

TEST(replicated_parameters_are_refreshed_not_gathered) {
    bench *b = bench_new(4, 2, WEFT_REPLICATED, WEFT_SHARDED);
    const weft_instruction gather = instruction_of(WEFT_INSTRUCTION_GATHER, 0, 0, -1),
                           refresh = instruction_of(WEFT_INSTRUCTION_REFRESH, 0, 0, -1);
    weft_sums_size_units(&b->plan, &b->job);
    check_stays(planned(b, &gather, 1));
    ck_assert_int_eq(b->unit_sizes[0].gathered, 0);
    check_travels(planned(b, &refresh, 1), WEFT_EXCHANGE_ALL_GATHER, 2, 1, 2 * 512); /* a shard is two chunks */
    check_travels(planned(b, &refresh, 2), WEFT_EXCHANGE_ALL_GATHER, 2, 0, 2 * 512);
    free(b);
}

/* A frozen unit has no sums and is never outdated. */
TEST(a_frozen_unit_has_no_sum_to_move) {
    bench *b = bench_new(3, 3, WEFT_REPLICATED, WEFT_REPLICATED);
    weft_instruction sum = instruction_of(WEFT_INSTRUCTION_GATHER, 1, 0, -1);
    const weft_instruction refresh = instruction_of(WEFT_INSTRUCTION_REFRESH, 1, 0, -1);
    sum.what = WEFT_PAYLOAD_SUM;
    check_travels(planned(b, &sum, 0), WEFT_EXCHANGE_ALL_GATHER, 3, 0, 3 * GRID * 4);
    b->units[1].trained = -1;
    ck_assert_int_eq(weft_exchange_piece(&b->plan, &b->job.spec, 1), 0);
    check_stays(planned(b, &sum, 0));
    check_stays(planned(b, &refresh, 0));
    free(b);
}

/* ---- owners ---- */

/* Three ranks, one replica: rank 2 owns both units and the first segment, rank 0 runs the second one. */
static bench *bench_with_owners(void) {
    bench *b = bench_new(3, 3, WEFT_OWNED, WEFT_OWNED);
    b->job.spec.view.replicas = 1;
    for (int32_t u = 0; u < N_UNITS; u++) {
        b->placements[u].optimizer = WEFT_OWNED;
        b->placements[u].owner = 2;
    }
    b->segments[0].owner = 2;
    b->segments[1].owner = 0;
    return b;
}

TEST(an_owner_sends_its_update_to_who_has_a_copy) {
    bench *b = bench_with_owners();
    const weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_REFRESH, 0, 0, -1);
    const weft_planned_exchange sent = planned(b, &instruction, 2), got = planned(b, &instruction, 0);
    check_travels(sent, WEFT_EXCHANGE_SEND, 2, 0, 5 * GRID * 4); /* the exact size: it is not sharded */
    ck_assert_int_eq(sent.peer, 0);
    check_travels(got, WEFT_EXCHANGE_RECV, 2, 0, 5 * GRID * 4);
    ck_assert_int_eq(got.peer, 2);
    check_stays(planned(b, &instruction, 1));
    b->segments[1].owner = 2; /* no other rank reads it */
    check_stays(planned(b, &instruction, 2));
    free(b);
}

TEST(messages_are_carries_and_parts_of_gradients) {
    bench *b = bench_with_owners();
    weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_SEND, -1, 0, 0);
    instruction.segment = 1;
    instruction.peer = 2;
    weft_sums_size_units(&b->plan, &b->job);
    check_travels(planned(b, &instruction, 0), WEFT_EXCHANGE_SEND, 2, 0, 1001);
    instruction.kind = WEFT_INSTRUCTION_RECV;
    instruction.segment = -1;
    instruction.unit = 1;
    check_travels(planned(b, &instruction, 0), WEFT_EXCHANGE_RECV, 2, 0, 7 * GRID * 4);
    ck_assert_int_eq(planned(b, &instruction, 0).peer, 2);
    free(b);
}

/* ---- consistency of all ranks ---- */

/* Checks that both take part in one exchange of the same shape, or in no common one. */
static void check_pair(weft_planned_exchange a, weft_planned_exchange b, int32_t rank_a, int32_t rank_b) {
    const bool together = a.way != WEFT_EXCHANGE_NONE && weft_scope_together(&a.cut, a.scope, rank_a, rank_b);
    must(a.way == b.way && a.each == b.each && a.ranks == b.ranks && a.n == b.n && a.dtype == b.dtype);
    must(!together || a.place != b.place);
    must(a.place >= 0 && a.place < a.ranks);
}

static void check_all_ranks(const bench *b, const weft_instruction *instruction) {
    const int32_t world = b->plan.world;
    for (int32_t r = 0; r < world; r++)
        for (int32_t other = 0; other < r; other++)
            check_pair(planned(b, instruction, r), planned(b, instruction, other), r, other);
}

static void check_reduces(const bench *b, int64_t piece) {
    for (int32_t scope = WEFT_SCOPE_RANK; scope <= WEFT_SCOPE_ACROSS; scope++) {
        const bool is_micro_batch = scope != WEFT_SCOPE_ACROSS;
        const weft_instruction reduce = instruction_of(WEFT_INSTRUCTION_REDUCE, 1, scope, is_micro_batch ? 0 : -1);
        const weft_reduce_rows rows = weft_exchange_reduce(&b->plan, &b->job.spec, 1, scope, is_micro_batch);
        must(rows.row * rows.ranks == rows.whole && rows.row % piece == 0);
        check_all_ranks(b, &reduce);
    }
}

/* Checks that the chunks cover the group, with less than one excess cell each. */
static void check_cut(int32_t world, int32_t group, int64_t cells) {
    bench *b = bench_new(world, group, WEFT_SHARDED, WEFT_SHARDED);
    weft_instruction gather = instruction_of(WEFT_INSTRUCTION_GATHER, 1, 0, -1);
    int64_t piece = 0;
    b->groups[1].numel = cells * GRID;
    weft_sums_size_units(&b->plan, &b->job);
    piece = weft_exchange_piece(&b->plan, &b->job.spec, 1);
    must(piece % GRID == 0 && piece * world >= cells * GRID && (piece - GRID) * world < cells * GRID);
    check_reduces(b, piece);
    check_all_ranks(b, &gather);
    gather.what = WEFT_PAYLOAD_SUM;
    check_all_ranks(b, &gather);
    free(b);
}

TEST(ranks_agree_on_every_exchange) {
    for (int32_t world = 1; world <= 12; world++)
        for (int32_t group = 1; group <= world; group++)
            for (int64_t cells = 1; cells <= 14 && world % group == 0; cells++) check_cut(world, group, cells);
}

/* ---- the norm ---- */

static void check_walk(const weft_norm_exchange *walk, int32_t goes, int32_t replicas, int64_t n, int64_t first) {
    ck_assert_int_eq(walk->goes, goes);
    ck_assert_int_eq(walk->cut.replicas, replicas);
    ck_assert_int_eq(walk->n, n);
    ck_assert_int_eq(walk->first, first);
}

TEST(the_norm_of_what_is_cut_goes_round_cell_by_cell) {
    bench *b = bench_new(3, 3, WEFT_SHARDED, WEFT_SHARDED);
    weft_norm_exchange walk = {0};
    ck_assert(weft_norm_exchange_next(&b->plan, &walk));
    check_walk(&walk, WEFT_NORM_GOES_LOSSES, 3, 2, 0);
    ck_assert(weft_norm_exchange_next(&b->plan, &walk));
    check_walk(&walk, WEFT_NORM_GOES_CELLS, 3, 2, 0);
    ck_assert_int_eq(walk.group, 0);
    ck_assert(weft_norm_exchange_next(&b->plan, &walk));
    check_walk(&walk, WEFT_NORM_GOES_CELLS, 3, 3, 6);
    ck_assert_int_eq(walk.group, 1);
    ck_assert(!weft_norm_exchange_next(&b->plan, &walk));
    ck_assert(!weft_norm_exchange_next(&b->plan, &walk));
    ck_assert_int_eq(weft_norm_nodes(&b->plan), 6 + 9);
    ck_assert_int_eq(weft_norm_elements(&b->plan, 1), 128 + 3 * GRID);
    b->placements[0].gradients = WEFT_REPLICATED;
    ck_assert_int_eq(weft_norm_nodes(&b->plan), 9);
    ck_assert_int_eq(weft_norm_elements(&b->plan, 1), 5 * GRID + 3 * GRID);
    free(b);
}

TEST(the_norm_of_what_has_owners_goes_round_tensor_by_tensor) {
    bench *b = bench_with_owners();
    weft_norm_exchange walk = {0};
    b->placements[1].owner = 1;
    ck_assert(weft_norm_exchange_next(&b->plan, &walk));
    check_walk(&walk, WEFT_NORM_GOES_LOSSES, 3, 2, 0);
    ck_assert(weft_norm_exchange_next(&b->plan, &walk));
    check_walk(&walk, WEFT_NORM_GOES_OWNED, 3, 2, 0); /* rank 2 has two tensors, rank 1 one, rank 0 zero */
    ck_assert(!weft_norm_exchange_next(&b->plan, &walk));
    ck_assert_int_eq(weft_norm_nodes(&b->plan), 6);
    ck_assert_int_eq(weft_norm_elements(&b->plan, 0), 0);
    ck_assert_int_eq(weft_norm_elements(&b->plan, 2), 5 * GRID);
    free(b);
}

TEST(a_world_of_one_exchanges_nothing) {
    bench *b = bench_new(1, 1, WEFT_REPLICATED, WEFT_REPLICATED);
    weft_norm_exchange walk = {0};
    const weft_instruction instruction = instruction_of(WEFT_INSTRUCTION_REDUCE, 0, WEFT_SCOPE_ALL, 0);
    ck_assert(!weft_norm_exchange_next(&b->plan, &walk));
    ck_assert_int_eq(weft_norm_nodes(&b->plan), 0);
    ck_assert_int_eq(weft_norm_elements(&b->plan, 0), 12 * GRID);
    check_stays(planned(b, &instruction, 0));
    free(b);
}

int main(void) {
    return run_tests(tcase_create("all"));
}
