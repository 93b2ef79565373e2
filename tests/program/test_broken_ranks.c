/* tests/program/test_broken_ranks.c: programs of several ranks with an error on one of them are rejected. The message
 * names rank, instruction and object.
 *
 * The job: embed, two layers of attn and mlp, head, which also reads the embedding; two micro-batches per replica. */
#include "mutants.h"
#include "suite.h"

#include "program/stages.h"

enum { NONE = -1 };
enum { EMBED, ATTN0, MLP0, ATTN1, MLP1, HEAD };
enum { ROOT, LAYER0, LAYER1, NORM_UNIT };

typedef enum kind_of_team {
    DDP,
    DDP_FROZEN,
    DDP_LAST,
    DDP_ALONE,
    FULL,
    GRADIENTS,
    HYBRID,
    HOPS,
    PIPE,
    GPIPE
} kind_of_team;

static void make(team *out, kind_of_team kind) {
    static const struct {
        const char *name, *keys;
        int32_t world, reduce;
    } rows[] = {
        [DDP] = {"ddp", NULL, 3, WEFT_REDUCE_ORDERED},
        [DDP_FROZEN] = {"ddp", NULL, 2, WEFT_REDUCE_ORDERED},
        [DDP_LAST] = {"ddp", "reduce_at=last", 2, WEFT_REDUCE_TREE},
        [DDP_ALONE] = {"ddp", "reduce_at=last", 1, WEFT_REDUCE_TREE},
        [FULL] = {"fsdp", "shard=full", 2, WEFT_REDUCE_ORDERED},
        [GRADIENTS] = {"fsdp", "shard=gradients", 2, WEFT_REDUCE_ORDERED},
        [HYBRID] = {"fsdp", "shard=hybrid shard_group=2", 4, WEFT_REDUCE_ORDERED},
        [HOPS] = {"fsdp", "shard=hybrid shard_group=2 reduce_at=last", 4, WEFT_REDUCE_TREE},
        [PIPE] = {NULL, "0 1 3", 3, WEFT_REDUCE_ORDERED},
        [GPIPE] = {NULL, "0 3", 2, WEFT_REDUCE_ORDERED},
    };
    const tiny_options options = {.mode = WEFT_MODE_TRAIN,
                                  .micro_batches = 2,
                                  .tied = true,
                                  .frozen = kind == DDP_FROZEN ? 1u << LAYER0 : 0,
                                  .world = rows[kind].world,
                                  .reduce = rows[kind].reduce,
                                  .prefetch = kind == FULL ? 1 : 0};
    strategy by;
    if (rows[kind].name == NULL) load_stages(&by, rows[kind].keys, kind == GPIPE, true);
    else load_strategy(&by, rows[kind].name, rows[kind].keys);
    team_make(out, &options, &by);
}

/* ---- finding instructions ---- */

/* Fields of an instruction to match; -1 or 0: any value. */
typedef struct pattern {
    int32_t kind, segment, unit, micro_batch, what, scope, nth;
} pattern;

static int32_t at(const weft_program *program, pattern p) {
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        if (instruction->kind != p.kind || (p.segment >= 0 && instruction->segment != p.segment) ||
            (p.unit >= 0 && instruction->unit != p.unit) ||
            (p.micro_batch >= 0 && instruction->micro_batch != p.micro_batch) ||
            (p.what != 0 && instruction->what != p.what) || (p.scope != 0 && instruction->scope != p.scope))
            continue;
        if (p.nth-- == 0) return i;
    }
    ck_abort_msg("the valid program has no such %s", weft_instruction_kind_name(p.kind));
    return -1;
}

static pattern plain(int32_t kind) {
    const pattern out = {kind, NONE, NONE, NONE, 0, 0, 0};
    return out;
}
static pattern segment(int32_t kind, int32_t s, int32_t micro_batch) {
    const pattern out = {kind, s, NONE, micro_batch, 0, 0, 0};
    return out;
}
static pattern unit(int32_t kind, int32_t u, int32_t what) {
    const pattern out = {kind, NONE, u, NONE, what, 0, 0};
    return out;
}
static pattern reduce(int32_t u, int32_t micro_batch, int32_t scope) {
    const pattern out = {WEFT_INSTRUCTION_REDUCE, NONE, u, micro_batch, 0, scope, 0};
    return out;
}
static pattern transfer(int32_t kind, int32_t what, int32_t micro_batch) {
    const pattern out = {kind, NONE, NONE, micro_batch, what, 0, 0};
    return out;
}

static int32_t wait_of(const weft_program *program, int32_t instruction) {
    for (int32_t i = instruction; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_WAIT && program->instructions[i].waits == instruction)
            return i;
    ck_abort_msg("no WAIT for instruction %d", (int)instruction);
    return -1;
}

static void drop(weft_program *program, pattern p) {
    remove_instruction(program, at(program, p));
}

/* Removes an instruction with its WAIT. */
static void drop_whole(weft_program *program, pattern p) {
    const int32_t i = at(program, p);
    if (program->instructions[i].queue > 0) remove_instruction(program, wait_of(program, i));
    remove_instruction(program, i);
}

/* Moves an instruction; its WAIT still refers to it. */
static void move(weft_program *program, int32_t from, int32_t to) {
    for (; from < to; from++) swap_instructions(program, from, from + 1);
    for (; from > to; from--) swap_instructions(program, from, from - 1);
}

/* ---- errors ---- */

#define BREAK(name, ...)                                                                                               \
    static void name(team *t) {                                                                                        \
        __VA_ARGS__;                                                                                                   \
    }

BREAK(exchange_left_out, drop_whole(t->programs[1], reduce(LAYER0, 4, 0)))
BREAK(norm_left_out, drop(t->programs[2], plain(WEFT_INSTRUCTION_NORM)))
static void micro_batch_of_another(team *t) {
    weft_program *p = t->programs[1];
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].micro_batch == 4) p->instructions[i].micro_batch = 3;
}
static void too_many_micro_batches(team *t) {
    weft_instruction *instruction =
        &t->programs[0]->instructions[at(t->programs[0], segment(WEFT_INSTRUCTION_FORWARD, EMBED, 0))];
    instruction->micro_batch = 2;
    insert_instruction(t->programs[0], 1, *instruction);
    t->programs[0]->instructions[1].micro_batch = 0;
}
static void reduces_in_another_order(team *t) {
    weft_program *p = t->programs[2];
    const int32_t one = at(p, reduce(NORM_UNIT, 2, 0)), two = at(p, reduce(LAYER1, 2, 0));
    p->instructions[one].unit = LAYER1;
    p->instructions[two].unit = NORM_UNIT;
}
static void reduce_not_waited_for(team *t) {
    weft_program *p = t->programs[0];
    remove_instruction(p, wait_of(p, at(p, reduce(LAYER1, 0, 0))));
}
BREAK(sum_not_gathered, drop_whole(t->programs[1], unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_SUM)))
static void sum_gathered_early(team *t) {
    weft_program *p = t->programs[1];
    weft_instruction gather = p->instructions[at(p, unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_SUM))];
    const int32_t where = wait_of(p, at(p, reduce(LAYER1, 1, 0))) + 1;
    gather.queue = 0;
    insert_instruction(p, where, gather);
}
static void sum_without_micro_batch_sums(team *t) {
    weft_program *p = t->programs[1];
    weft_instruction gather = weft_instruction_of(WEFT_INSTRUCTION_GATHER);
    gather.unit = LAYER0;
    gather.what = WEFT_PAYLOAD_SUM;
    insert_instruction(p, at(p, plain(WEFT_INSTRUCTION_NORM)), gather);
}
static void refresh_of_a_frozen_unit(team *t) {
    weft_instruction refresh = weft_instruction_of(WEFT_INSTRUCTION_REFRESH);
    refresh.unit = LAYER0;
    insert_instruction(t->programs[0], t->programs[0]->n_instructions, refresh);
}
BREAK(other_scope, t->programs[1]->instructions[at(t->programs[1], reduce(NORM_UNIT, 1, 0))].scope = WEFT_SCOPE_RANK)
static void no_second_hop(team *t) {
    weft_program *p = t->programs[1];
    int32_t i = 0;
    for (i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].kind == WEFT_INSTRUCTION_REDUCE && p->instructions[i].micro_batch < 0 &&
            p->instructions[i].unit == LAYER0)
            break;
    remove_instruction(p, wait_of(p, i));
    remove_instruction(p, i);
}
static void second_hop_early(team *t) {
    weft_program *p = t->programs[0];
    weft_instruction hop = p->instructions[at(p, reduce(LAYER1, 0, WEFT_SCOPE_RANK))];
    hop.micro_batch = -1;
    hop.scope = WEFT_SCOPE_ALL;
    insert_instruction(p, at(p, reduce(LAYER1, 0, WEFT_SCOPE_RANK)) + 1, hop);
}
static void second_hop_twice(team *t) {
    for (int32_t rank = 0; rank < 2; rank++) {
        weft_program *p = t->programs[rank];
        const int32_t gather = at(p, unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_SUM));
        weft_instruction hop = weft_instruction_of(WEFT_INSTRUCTION_REDUCE);
        hop.unit = LAYER1;
        hop.scope = WEFT_SCOPE_ALL;
        insert_instruction(p, gather, hop);
    }
}
static void second_hop_after_the_gather(team *t) {
    weft_program *p = t->programs[0];
    weft_instruction gather = p->instructions[at(p, unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_SUM))];
    drop_whole(p, unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_SUM));
    gather.queue = 0;
    insert_instruction(p, at(p, reduce(LAYER1, NONE, WEFT_SCOPE_ALL)), gather);
}
BREAK(across_without_node,
      t->programs[3]->instructions[at(t->programs[3], reduce(LAYER1, -1, WEFT_SCOPE_NODE))].scope = WEFT_SCOPE_ACROSS)
BREAK(scope_of_no_group, t->programs[0]->instructions[at(t->programs[0], reduce(LAYER1, 0, 0))].scope = WEFT_SCOPE_NODE)
BREAK(forward_of_what_is_not_live,
      drop_whole(t->programs[1], unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_PARAMETERS)))
static void forward_before_the_wait(team *t) {
    weft_program *p = t->programs[1];
    const int32_t wait = wait_of(p, at(p, unit(WEFT_INSTRUCTION_GATHER, LAYER0, 0)));
    move(p, wait, at(p, segment(WEFT_INSTRUCTION_FORWARD, ATTN0, NONE)));
}
static void used_after_release(team *t) {
    weft_program *p = t->programs[0];
    move(p, at(p, unit(WEFT_INSTRUCTION_RELEASE, LAYER0, 0)), at(p, segment(WEFT_INSTRUCTION_FORWARD, MLP0, NONE)));
}
static void gathered_twice(team *t) {
    weft_program *p = t->programs[0];
    drop(p, unit(WEFT_INSTRUCTION_RELEASE, LAYER0, 0));
}
static void released_under_way(team *t) {
    weft_program *p = t->programs[1];
    const int32_t gather = at(p, unit(WEFT_INSTRUCTION_GATHER, LAYER0, 0));
    weft_instruction release = p->instructions[at(p, unit(WEFT_INSTRUCTION_RELEASE, LAYER0, 0))];
    insert_instruction(p, gather + 1, release);
}
static void gathered_at_the_step(team *t) {
    weft_program *p = t->programs[0];
    int32_t last = -1;
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].kind == WEFT_INSTRUCTION_RELEASE && p->instructions[i].unit == LAYER0) last = i;
    remove_instruction(p, last);
}
BREAK(stale_copy, drop_whole(t->programs[1], unit(WEFT_INSTRUCTION_REFRESH, LAYER1, 0)))
static void refreshed_before_the_step(team *t) {
    weft_program *p = t->programs[1];
    move(p, at(p, unit(WEFT_INSTRUCTION_REFRESH, ROOT, 0)), at(p, plain(WEFT_INSTRUCTION_STEP)));
}
static void refreshed_in_another_order(team *t) {
    weft_program *p = t->programs[1];
    p->instructions[at(p, unit(WEFT_INSTRUCTION_REFRESH, ROOT, 0))].unit = LAYER0;
    p->instructions[at(p, unit(WEFT_INSTRUCTION_REFRESH, LAYER0, 0)) + 2].unit = ROOT;
}
BREAK(not_sent, drop_whole(t->programs[0], transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_CARRY, 1)))
BREAK(not_received, drop(t->programs[1], transfer(WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_CARRY, 1)))
BREAK(sent_to_another,
      t->programs[0]->instructions[at(t->programs[0], transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_CARRY, 0))].peer = 2)
static void sent_before_it_is_made(team *t) {
    weft_program *p = t->programs[1];
    move(p, at(p, transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_CARRY, 0)),
         at(p, segment(WEFT_INSTRUCTION_FORWARD, MLP0, 0)));
}
static void received_late(team *t) {
    weft_program *p = t->programs[1];
    move(p, at(p, transfer(WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_CARRY_GRADIENT, 0)),
         at(p, segment(WEFT_INSTRUCTION_BACKWARD, MLP0, 0)));
}
BREAK(part_not_received, drop(t->programs[0], transfer(WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, 1)))
static void part_summed_where_it_is_made(team *t) {
    weft_program *p = t->programs[2];
    const int32_t send = at(p, transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, 0));
    weft_instruction sum = p->instructions[at(p, reduce(NORM_UNIT, 0, 0))];
    sum.unit = ROOT;
    insert_instruction(p, send + 1, sum);
}
static void part_sent_before_it_is_whole(team *t) {
    weft_program *p = t->programs[2];
    move(p, at(p, transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, 0)),
         at(p, segment(WEFT_INSTRUCTION_BACKWARD, HEAD, 0)));
}
static void sent_twice(team *t) {
    weft_program *p = t->programs[0];
    const int32_t send = at(p, transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_CARRY, 0));
    insert_instruction(p, send + 1, p->instructions[send]);
}
static void norm_of_a_sum_under_way(team *t) {
    weft_program *p = t->programs[1];
    move(p, wait_of(p, at(p, unit(WEFT_INSTRUCTION_GATHER, LAYER1, WEFT_PAYLOAD_SUM))),
         at(p, plain(WEFT_INSTRUCTION_NORM)));
}
static void send_ends_in_its_place(team *t) {
    weft_program *p = t->programs[0];
    const int32_t send = at(p, transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_CARRY, 0));
    remove_instruction(p, wait_of(p, send));
    p->instructions[send].queue = 0;
}
static void segment_of_another(team *t) {
    weft_instruction forward =
        t->programs[0]->instructions[at(t->programs[0], segment(WEFT_INSTRUCTION_FORWARD, EMBED, 0))];
    forward.segment = ATTN0;
    insert_instruction(t->programs[0], at(t->programs[0], segment(WEFT_INSTRUCTION_FORWARD, EMBED, 0)) + 1, forward);
}
/* Rank 1 sends its gradient of micro-batch 0 before it receives micro-batch 1, which rank 0 handles first: a
 * deadlock. */
static void two_that_wait_for_each_other(team *t) {
    weft_program *p = t->programs[0], *q = t->programs[1];
    const int32_t send = at(q, transfer(WEFT_INSTRUCTION_SEND, WEFT_PAYLOAD_CARRY_GRADIENT, 0));
    move(p, at(p, transfer(WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_CARRY_GRADIENT, 1)),
         at(p, transfer(WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_CARRY_GRADIENT, 0)));
    move(q, wait_of(q, send), send + 1);
}

/* Adds two collectives on each rank, of the shard group and across groups. The ranks in `swapped` have them in the
 * other order. */
static void two_groups(team *t, uint32_t swapped) {
    for (int32_t rank = 0; rank < 4; rank++) {
        weft_program *p = t->programs[rank];
        const int32_t gather = at(p, unit(WEFT_INSTRUCTION_GATHER, ROOT, WEFT_PAYLOAD_SUM));
        weft_instruction node = weft_instruction_of(WEFT_INSTRUCTION_GATHER),
                         release = weft_instruction_of(WEFT_INSTRUCTION_RELEASE);
        node.unit = release.unit = LAYER0;
        node.what = WEFT_PAYLOAD_PARAMETERS;
        remove_instruction(p, wait_of(p, gather));
        p->instructions[gather].queue = 0;
        insert_instruction(p, gather + ((swapped >> rank & 1) != 0), node);
        insert_instruction(p, gather + 2, release);
    }
}
BREAK(groups_that_overlap, two_groups(t, 1u << 1 | 1u << 2))

#define CASE(team, breaks) team, breaks, #breaks

static const struct {
    kind_of_team team;
    void (*breaks)(team *t);
    const char *name, *says[4]; /* parts of the message */
} cases[] = {
    {CASE(DDP, exchange_left_out), {"rank 1, instruction", "layers.0", "no REDUCE for micro-batch 4"}},
    {CASE(DDP, norm_left_out), {"rank 2, instruction", "STEP", "NORM must run before"}},
    {CASE(DDP, micro_batch_of_another),
     {"rank 1, instruction", "FORWARD embed micro-batch 3", "rank 0 has run the segment"}},
    {CASE(DDP, too_many_micro_batches),
     {"rank 0, instruction", "FORWARD embed micro-batch 3", "has run 2 micro-batches already"}},
    {CASE(DDP, reduces_in_another_order),
     {"rank 2, instruction", "REDUCE layers.1", "has had no BACKWARD for micro-batch 2 here"}},
    {CASE(DDP, reduce_not_waited_for), {"rank 0, instruction", "REDUCE layers.1 all", "no"}},
    {CASE(DDP, sum_not_gathered), {"rank 1, instruction", "NORM", "layers.1", "must GATHER it"}},
    {CASE(DDP, sum_gathered_early), {"rank 1, instruction", "GATHER layers.1 sum", "1 of the rank's 2 micro-batches"}},
    {CASE(DDP_FROZEN, sum_without_micro_batch_sums),
     {"rank 1, instruction", "GATHER layers.0 sum", "the unit is frozen"}},
    {CASE(PIPE, sum_without_micro_batch_sums),
     {"rank 1, instruction", "GATHER layers.0 sum", "only on its owner, rank 1"}},
    {CASE(DDP_FROZEN, refresh_of_a_frozen_unit),
     {"rank 0, instruction", "REFRESH layers.0", "no copy of this unit stale"}},
    {CASE(DDP, other_scope), {"rank 1, instruction", "REDUCE norm rank micro-batch 1", "of rank 0, has scope all"}},
    {CASE(DDP, scope_of_no_group), {"rank 0, instruction", "REDUCE layers.1 node", "not sharded"}},
    {CASE(DDP_LAST, no_second_hop), {"rank 1, instruction", "layers.0", "second hop"}},
    {CASE(DDP_LAST, second_hop_early),
     {"rank 0, instruction", "REDUCE layers.1 all", "1 of the rank's 2 micro-batches"}},
    {CASE(DDP_LAST, second_hop_twice), {"rank 0, instruction", "REDUCE layers.1 all", "was the second hop"}},
    {CASE(DDP_ALONE, second_hop_after_the_gather),
     {"rank 0, instruction", "REDUCE layers.1 all", "gathered as finished"}},
    {CASE(HOPS, across_without_node),
     {"rank 3, instruction", "REDUCE layers.1 across micro-batch", "names no micro-batch"}},
    {CASE(FULL, forward_of_what_is_not_live),
     {"rank 1, instruction", "FORWARD layers.1.attn", "unit layers.1, which is not live"}},
    {CASE(FULL, forward_before_the_wait),
     {"rank 1, instruction", "FORWARD layers.0.attn", "unit layers.0", "has not been waited for"}},
    {CASE(FULL, used_after_release),
     {"rank 0, instruction", "FORWARD layers.0.mlp", "unit layers.0, which is not live"}},
    {CASE(FULL, gathered_twice), {"rank 0, instruction", "GATHER layers.0", "has not been released"}},
    {CASE(FULL, released_under_way), {"rank 1, instruction", "RELEASE layers.0", "is under way"}},
    {CASE(FULL, gathered_at_the_step), {"rank 0, instruction", "STEP", "unit layers.0 is still gathered"}},
    {CASE(GRADIENTS, stale_copy), {"rank 1", "without REFRESH layers.1", "stale"}},
    {CASE(GRADIENTS, refreshed_before_the_step), {"rank 1, instruction", "REFRESH root", "STEP must run before"}},
    {CASE(GRADIENTS, refreshed_in_another_order),
     {"REFRESH layers.0", "of these 2 ranks", "has instruction", "REFRESH root"}},
    {CASE(PIPE, not_sent), {"rank 0", "without SEND embed carry micro-batch 1 peer 1"}},
    {CASE(PIPE, not_received),
     {"rank 1, instruction", "FORWARD layers.0.attn micro-batch 1", "no RECV of it from rank 0"}},
    {CASE(PIPE, sent_to_another),
     {"rank 0, instruction", "SEND embed carry micro-batch 0 peer 2", "is sent from rank 0 to rank 1"}},
    {CASE(PIPE, sent_before_it_is_made),
     {"rank 1, instruction", "SEND layers.0.mlp carry micro-batch 0", "no FORWARD for micro-batch 0"}},
    {CASE(PIPE, received_late),
     {"rank 1, instruction", "BACKWARD layers.0.mlp micro-batch 0", "from rank 2, has ended"}},
    {CASE(PIPE, part_not_received), {"rank 0, instruction", "BACKWARD embed micro-batch 1", "part that rank 2 makes"}},
    {CASE(PIPE, part_summed_where_it_is_made), {"rank 2, instruction", "REDUCE root", "the unit's sum is rank 0's"}},
    {CASE(PIPE, part_sent_before_it_is_whole),
     {"rank 2, instruction", "SEND root micro-batch gradient micro-batch 0",
      "head reads unit root and has had no BACKWARD for micro-batch 0 here"}},
    {CASE(PIPE, sent_twice), {"rank 0, instruction", "SEND embed carry micro-batch 0", "has done this already"}},
    {CASE(DDP, norm_of_a_sum_under_way),
     {"rank 1, instruction", "NORM", "which exchanges the sum of unit layers.1, has not been waited for"}},
    {CASE(PIPE, send_ends_in_its_place),
     {"rank 0, instruction", "SEND embed carry micro-batch 0", "is of queue 1 to 3"}},
    {CASE(PIPE, segment_of_another),
     {"rank 0, instruction", "FORWARD layers.0.attn micro-batch 0", "belongs to rank 1"}},
    {CASE(GPIPE, two_that_wait_for_each_other),
     {"rank 0, instruction", "RECV layers.0.mlp carry gradient micro-batch 1 peer 1", "2 of the 2 ranks never",
      "rank 1 waits in"}},
    {CASE(HYBRID, groups_that_overlap),
     {"rank 0, instruction", "GATHER layers.0", "4 of the 4 ranks never", "rank 1 waits in"}},
};

TESTS(a_broken_team_is_refused_by_name, LENGTH(cases)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_coverage coverage;
    team ranks;
    make(&ranks, cases[_i].team);
    ck_assert_msg(team_check(&ranks, &coverage, &err) == WEFT_OK, "the valid programs: %s", err.text);
    cases[_i].breaks(&ranks);
    ck_assert_msg(team_check(&ranks, &coverage, &err) == WEFT_E_PLUGIN, "accepted: %s", cases[_i].name);
    for (int i = 0; i < 4 && cases[_i].says[i] != NULL; i++) ck_assert_says(err, cases[_i].says[i]);
    team_free(&ranks);
}

/* A message received out of send order must have a tag that identifies it; otherwise the program is rejected. */
TEST(without_tags_messages_are_taken_in_order) {
    static const struct {
        int32_t what;
        const char *says;
    } rows[] = {{WEFT_PAYLOAD_CARRY, "rank 0 sends this before SEND layers.0.mlp carry micro-batch 1 peer 1"},
                {WEFT_PAYLOAD_CARRY_GRADIENT,
                 "rank 1 sends this before SEND layers.0.mlp carry gradient micro-batch 1 peer 0"}};
    for (size_t row = 0; row < LENGTH(rows); row++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_coverage coverage;
        weft_program *taker = NULL;
        team ranks;
        make(&ranks, GPIPE);
        ranks.job.spec.in_order = true;
        ck_assert_msg(team_check(&ranks, &coverage, &err) == WEFT_OK, "gpipe itself: %s", err.text);
        taker = ranks.programs[rows[row].what == WEFT_PAYLOAD_CARRY ? 1 : 0];
        move(taker, at(taker, transfer(WEFT_INSTRUCTION_RECV, rows[row].what, 1)),
             at(taker, transfer(WEFT_INSTRUCTION_RECV, rows[row].what, 0)));
        ck_assert_int_eq(team_check(&ranks, &coverage, &err), WEFT_E_PLUGIN);
        ck_assert_says(err, rows[row].says);
        ranks.job.spec.in_order = false;
        ck_assert_msg(team_check(&ranks, &coverage, &err) == WEFT_OK, "with tags: %s", err.text);
        team_free(&ranks);
    }
}

/* The same collectives, in one order. */
TEST(groups_that_overlap_may_exchange_in_one_order) {
    weft_error err = WEFT_ERROR_INIT;
    weft_coverage coverage;
    for (uint32_t swapped = 0; swapped < 16; swapped++) {
        team ranks;
        weft_status status = WEFT_OK;
        make(&ranks, HYBRID);
        two_groups(&ranks, swapped);
        status = team_check(&ranks, &coverage, &err);
        /* a ring: each rank waits for the last operation of its neighbour */
        if (swapped == 6 || swapped == 9) ck_assert_int_eq(status, WEFT_E_PLUGIN);
        else ck_assert_msg(status == WEFT_OK, "%u: %s", (unsigned)swapped, err.text);
        team_free(&ranks);
    }
}

/* ---- placements ---- */

#define MISPLACE(name, ...)                                                                                            \
    static void name(tiny_job *job) {                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }

MISPLACE(group_of_three, job->placements[LAYER0].group = 3)
MISPLACE(holding_unknown, job->placements[LAYER1].gradients = 7)
MISPLACE(updates_what_it_does_not_hold, job->placements[LAYER1].optimizer = WEFT_REPLICATED)
static void owned_among_replicas(tiny_job *job) {
    weft_placement *placement = &job->placements[NORM_UNIT];
    placement->parameters = placement->gradients = placement->optimizer = WEFT_OWNED;
    placement->owner = 0;
}
/* OWNED is all or nothing, also in a world of one rank. */
static void owned_in_part(tiny_job *job) {
    job->placements[LAYER0].parameters = WEFT_OWNED;
    job->placements[LAYER0].owner = 0;
}
static void owned_by_rank_1(tiny_job *job) {
    weft_placement *placement = &job->placements[LAYER0];
    placement->parameters = placement->gradients = placement->optimizer = WEFT_OWNED;
    placement->owner = 1;
}
MISPLACE(in_host_memory, job->placements[LAYER1].tier = WEFT_TIER_HOST)
MISPLACE(half_the_replicas, job->spec.view.replicas = 2)
MISPLACE(replicas_of_owners, job->spec.view.replicas = 3)
MISPLACE(owner_unknown, job->segment_views[MLP0].owner = 3)
MISPLACE(one_without_owner, job->segment_views[MLP0].owner = -1)
MISPLACE(owner_that_reads_nothing, job->placements[LAYER0].owner = 2)
static void three_readers(tiny_job *job) {
    job->reads[ATTN0][0] = ROOT;
    job->reads[ATTN0][1] = LAYER0;
    job->segment_views[ATTN0].n_units = 2;
}

static const struct {
    kind_of_team team;
    void (*breaks)(tiny_job *job);
    const char *says;
} placements[] = {
    {HYBRID, group_of_three, "unit layers.0 over groups of 3 ranks: the group must divide the world of 4"},
    {HYBRID, holding_unknown, "unit layers.1 with holding 7"},
    {HYBRID, updates_what_it_does_not_hold, "shards parameters or gradients of unit layers.1 but not its optimizer"},
    {HYBRID, owned_among_replicas, "places unit norm otherwise than the segments"},
    {DDP_ALONE, owned_in_part, "places unit layers.0 otherwise than the segments"},
    {DDP_ALONE, owned_by_rank_1, "assigns unit layers.0 to rank 1: ranks are 0 to 0"},
    {HYBRID, in_host_memory, "unit layers.1 in tier 1: this host keeps all units in the device's memory"},
    {HYBRID, half_the_replicas, "2 replicas of 4 ranks"},
    {PIPE, replicas_of_owners, "has 3 replicas"},
    {PIPE, owner_unknown, "segment layers.0.mlp to rank 3"},
    {PIPE, one_without_owner, "segment layers.0.mlp to rank -1"},
    {PIPE, owner_that_reads_nothing, "unit layers.0 to rank 2, which runs no segment that reads it"},
    {PIPE, three_readers, "unit root, which is trained, read on ranks 0, 1 and 2"},
};

static weft_status check_placed(const weft_job_spec *job, weft_error *err) {
    const weft_status status = weft_job_spec_check_placement(job, err);
    return status == WEFT_OK ? weft_job_spec_check_owners(job, err) : status;
}

TESTS(a_placement_that_no_program_can_serve_is_refused, LENGTH(placements)) {
    weft_error err = WEFT_ERROR_INIT;
    team ranks;
    make(&ranks, placements[_i].team);
    ck_assert_ok(check_placed(&ranks.job.spec, &err), err);
    placements[_i].breaks(&ranks.job);
    ck_assert_int_eq(check_placed(&ranks.job.spec, &err),
                     placements[_i].breaks == in_host_memory ? WEFT_E_UNSUPPORTED : WEFT_E_PLUGIN);
    ck_assert_says(err, placements[_i].says);
    team_free(&ranks);
}

/* ---- inexact sums ---- */

static void expect_why(const char *name, const char *keys, int32_t world, int32_t reduce, const char *says) {
    const tiny_options options = {
        .mode = WEFT_MODE_TRAIN, .micro_batches = 2, .tied = true, .world = world, .reduce = reduce};
    weft_error err = WEFT_ERROR_INIT;
    weft_coverage coverage;
    strategy by;
    team ranks;
    load_strategy(&by, name, keys);
    team_make(&ranks, &options, &by);
    ck_assert_ok(team_check(&ranks, &coverage, &err), err);
    ck_assert(!coverage.covered);
    ck_assert_msg(strstr(coverage.why, says) != NULL, "expected \"%s\" in \"%s\"", says, coverage.why);
    team_free(&ranks);
}

TEST(inexact_sums_are_explained) {
    const char *shared = "shard=hybrid shard_group=2 reduce_at=last";
    expect_why("ddp", NULL, 2, WEFT_REDUCE_FAST, "reduce = ordered or tree is covered");
    expect_why("ddp", "reduce_at=last", 2, WEFT_REDUCE_ORDERED, "reduce_at = each, or reduce = tree, is covered");
    expect_why("ddp", "reduce_at=last", 3, WEFT_REDUCE_ORDERED, "reduce_at = each is covered");
    expect_why("ddp", "reduce_at=last", 3, WEFT_REDUCE_TREE, "on a power of two of replicas");
    expect_why("fsdp", shared, 6, WEFT_REDUCE_TREE,
               "where the groups, and the micro-batches of a replica, are powers of two");
}

/* Micro-batches renumbered on all ranks: each occurs once, in another order. */
TEST(another_numbering_is_accepted_and_not_covered) {
    weft_error err = WEFT_ERROR_INIT;
    weft_coverage coverage;
    team ranks;
    make(&ranks, DDP);
    for (int32_t rank = 0; rank < 3; rank++)
        for (int32_t i = 0; i < ranks.programs[rank]->n_instructions; i++) {
            weft_instruction *instruction = &ranks.programs[rank]->instructions[i];
            if (instruction->micro_batch >= 0) instruction->micro_batch = instruction->micro_batch / 3 + 2 * rank;
        }
    ck_assert_ok(team_check(&ranks, &coverage, &err), err);
    ck_assert(!coverage.covered);
    ck_assert_msg(strstr(coverage.why, "another order") != NULL, "%s", coverage.why);
    team_free(&ranks);
}

int main(void) {
    printf("%d kinds of broken programs of several ranks\n", (int)LENGTH(cases));
    return run_tests(test_case("teams", 120, NULL, NULL));
}
