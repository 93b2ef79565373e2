/* tests/program/test_check.c: the checker accepts programs of strategies and rejects incorrect ones with a specific
 * message.
 *
 * The job: embed, two layers of attn and mlp, head; two micro-batches; unit layers.0 is frozen in some cases. */
#include "mutants.h"
#include "suite.h"

#include "program/stages.h"

enum { NONE = -1 };
enum { EMBED, ATTN0, MLP0, ATTN1, MLP1, HEAD };
enum { ROOT, LAYER0, LAYER1, NORM_UNIT };

static const tiny_options plain = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2};
static const tiny_options tied = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2, .tied = true};
static const tiny_options frozen = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2, .frozen = 1u << ROOT | 1u << LAYER0};
static const tiny_options checkpointing = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2, .checkpointing = true};
static const tiny_options evaluate = {.mode = WEFT_MODE_EVALUATE, .micro_batches = 1};

static int32_t at(const weft_program *program, int32_t kind, int32_t segment, int32_t unit, int32_t micro_batch) {
    const int32_t i = find_instruction(program, kind, segment, unit, micro_batch);
    ck_assert_msg(i >= 0, "the valid program has no %s", weft_instruction_kind_name(kind));
    return i;
}

static weft_instruction *instruction_of(weft_program *program, int32_t kind, int32_t segment, int32_t unit,
                                        int32_t micro_batch) {
    return &program->instructions[at(program, kind, segment, unit, micro_batch)];
}

static void drop(weft_program *program, int32_t kind, int32_t segment, int32_t unit, int32_t micro_batch) {
    remove_instruction(program, at(program, kind, segment, unit, micro_batch));
}

static void twice(weft_program *program, int32_t kind, int32_t segment, int32_t unit, int32_t micro_batch) {
    const int32_t i = at(program, kind, segment, unit, micro_batch);
    insert_instruction(program, i + 1, program->instructions[i]);
}

static void move(weft_program *program, int32_t from, int32_t to) {
    const weft_instruction instruction = program->instructions[from];
    remove_instruction(program, from);
    insert_instruction(program, to, instruction);
}

static void add(weft_program *program, int32_t where, int32_t kind, int32_t segment, int32_t unit,
                int32_t micro_batch) {
    weft_instruction instruction = weft_instruction_of(kind);
    instruction.segment = segment;
    instruction.unit = unit;
    instruction.micro_batch = micro_batch;
    if (kind == WEFT_INSTRUCTION_GATHER) instruction.what = WEFT_PAYLOAD_PARAMETERS;
    if (kind == WEFT_INSTRUCTION_REDUCE) instruction.scope = WEFT_SCOPE_RANK;
    if (kind == WEFT_INSTRUCTION_SEND || kind == WEFT_INSTRUCTION_RECV) {
        instruction.what = WEFT_PAYLOAD_CARRY;
        instruction.peer = 0;
        instruction.queue = 1;
    }
    insert_instruction(program, where, instruction);
}

/* Modifications that break a program. */
#define BREAK(name, ...)                                                                                               \
    static void name(weft_program *p) {                                                                                \
        __VA_ARGS__;                                                                                                   \
    }
BREAK(no_count, drop(p, WEFT_INSTRUCTION_COUNT, NONE, NONE, NONE))
BREAK(count_twice, twice(p, WEFT_INSTRUCTION_COUNT, NONE, NONE, NONE))
BREAK(count_late, move(p, 0, at(p, WEFT_INSTRUCTION_BACKWARD, HEAD, NONE, 0)))
BREAK(no_forward, drop(p, WEFT_INSTRUCTION_FORWARD, MLP0, NONE, 1))
BREAK(no_last_forward, drop(p, WEFT_INSTRUCTION_FORWARD, HEAD, NONE, 1))
BREAK(forward_twice, twice(p, WEFT_INSTRUCTION_FORWARD, ATTN1, NONE, 0))
static void forward_early(weft_program *p) {
    const int32_t i = at(p, WEFT_INSTRUCTION_FORWARD, ATTN0, NONE, 1);
    swap_instructions(p, i, i + 1);
}
BREAK(no_backward, drop(p, WEFT_INSTRUCTION_BACKWARD, ATTN1, NONE, 1))
BREAK(no_lowest_backward, drop(p, WEFT_INSTRUCTION_BACKWARD, EMBED, NONE, 0))
BREAK(backward_twice, twice(p, WEFT_INSTRUCTION_BACKWARD, MLP1, NONE, 0))
static void backward_upside_down(weft_program *p) {
    const int32_t i = at(p, WEFT_INSTRUCTION_BACKWARD, MLP1, NONE, 0);
    swap_instructions(p, i, i + 1);
}
BREAK(backward_of_frozen,
      add(p, at(p, WEFT_INSTRUCTION_BACKWARD, ATTN1, NONE, 0) + 1, WEFT_INSTRUCTION_BACKWARD, MLP0, NONE, 0))
static void backward_out_of_micro_batch_order(weft_program *p) {
    const int32_t norm = at(p, WEFT_INSTRUCTION_NORM, NONE, NONE, NONE);
    for (int32_t i = 0, end = norm; i < end;) { /* all REDUCEs last, in order, so that they are not the error */
        if (p->instructions[i].kind != WEFT_INSTRUCTION_REDUCE) i++;
        else move(p, i, norm - 1), end--;
    }
    for (int32_t i = 1; i < norm; i++)
        if (p->instructions[i].kind != WEFT_INSTRUCTION_REDUCE)
            p->instructions[i].micro_batch = 1 - p->instructions[i].micro_batch;
}
BREAK(no_reduce, drop(p, WEFT_INSTRUCTION_REDUCE, NONE, LAYER0, 1))
BREAK(reduce_twice, twice(p, WEFT_INSTRUCTION_REDUCE, NONE, LAYER1, 0))
static void reduce_early(weft_program *p) {
    const int32_t i = at(p, WEFT_INSTRUCTION_REDUCE, NONE, LAYER1, 0);
    swap_instructions(p, i - 1, i);
}
BREAK(reduce_before_tied_user,
      move(p, at(p, WEFT_INSTRUCTION_REDUCE, NONE, ROOT, 0), at(p, WEFT_INSTRUCTION_BACKWARD, HEAD, NONE, 0) + 1))
BREAK(reduce_of_frozen,
      add(p, at(p, WEFT_INSTRUCTION_NORM, NONE, NONE, NONE), WEFT_INSTRUCTION_REDUCE, NONE, LAYER0, 0))
BREAK(reduce_out_of_micro_batch_order,
      move(p, at(p, WEFT_INSTRUCTION_REDUCE, NONE, NORM_UNIT, 0), at(p, WEFT_INSTRUCTION_NORM, NONE, NONE, NONE) - 1))
BREAK(no_norm, drop(p, WEFT_INSTRUCTION_NORM, NONE, NONE, NONE))
static void norm_early(weft_program *p) {
    const int32_t i = at(p, WEFT_INSTRUCTION_NORM, NONE, NONE, NONE);
    swap_instructions(p, i - 1, i);
}
BREAK(norm_twice, twice(p, WEFT_INSTRUCTION_NORM, NONE, NONE, NONE))
BREAK(no_step, drop(p, WEFT_INSTRUCTION_STEP, NONE, NONE, NONE))
BREAK(step_twice, twice(p, WEFT_INSTRUCTION_STEP, NONE, NONE, NONE))
static void step_early(weft_program *p) {
    const int32_t i = at(p, WEFT_INSTRUCTION_STEP, NONE, NONE, NONE);
    swap_instructions(p, i - 1, i);
}
BREAK(micro_batch_too_large, instruction_of(p, WEFT_INSTRUCTION_FORWARD, EMBED, NONE, 1)->micro_batch = 2)
BREAK(segment_unknown, instruction_of(p, WEFT_INSTRUCTION_BACKWARD, HEAD, NONE, 0)->segment = 6)
BREAK(unit_unknown, instruction_of(p, WEFT_INSTRUCTION_REDUCE, NONE, LAYER0, 0)->unit = 4)
BREAK(unit_on_forward, instruction_of(p, WEFT_INSTRUCTION_FORWARD, ATTN0, NONE, 0)->unit = 1)
BREAK(micro_batch_on_step, instruction_of(p, WEFT_INSTRUCTION_STEP, NONE, NONE, NONE)->micro_batch = 0)
BREAK(peer_on_reduce, instruction_of(p, WEFT_INSTRUCTION_REDUCE, NONE, ROOT, 0)->peer = 0)
BREAK(gather, add(p, 1, WEFT_INSTRUCTION_GATHER, NONE, LAYER0, NONE))
BREAK(release, add(p, 3, WEFT_INSTRUCTION_RELEASE, NONE, LAYER0, NONE))
BREAK(send_to_itself, add(p, 3, WEFT_INSTRUCTION_SEND, ATTN0, NONE, 0))
BREAK(recv_from_itself, add(p, 3, WEFT_INSTRUCTION_RECV, ATTN0, NONE, 0))
BREAK(wait_for_nothing, add(p, 3, WEFT_INSTRUCTION_WAIT, NONE, NONE, NONE))
BREAK(refresh, add(p, p->n_instructions, WEFT_INSTRUCTION_REFRESH, NONE, LAYER0, NONE))
BREAK(kind_unknown, p->instructions[5].kind = 14)
BREAK(other_queue, instruction_of(p, WEFT_INSTRUCTION_REDUCE, NONE, LAYER1, 0)->queue = 1)
static void waits_for_itself(weft_program *p) {
    p->instructions[5].kind = WEFT_INSTRUCTION_WAIT;
    p->instructions[5].waits = 5;
    p->instructions[5].segment = p->instructions[5].micro_batch = -1;
}
BREAK(flags_set, p->instructions[5].flags = 1)
BREAK(instruction_cut_short, p->instructions[5].struct_size = 8)
BREAK(recompute_without_checkpointing,
      add(p, at(p, WEFT_INSTRUCTION_BACKWARD, MLP1, NONE, 0), WEFT_INSTRUCTION_RECOMPUTE, MLP1, NONE, 0))
BREAK(recompute_twice, twice(p, WEFT_INSTRUCTION_RECOMPUTE, MLP1, NONE, 0))
static void recompute_late(weft_program *p) {
    const int32_t i = at(p, WEFT_INSTRUCTION_RECOMPUTE, MLP1, NONE, 0);
    swap_instructions(p, i, i + 1);
}
BREAK(recompute_early, move(p, at(p, WEFT_INSTRUCTION_RECOMPUTE, MLP1, NONE, 0), 1))
BREAK(empty, p->n_instructions = 0)
BREAK(evaluation_counts, add(p, 0, WEFT_INSTRUCTION_COUNT, NONE, NONE, NONE))
BREAK(evaluation_without_head, drop(p, WEFT_INSTRUCTION_FORWARD, HEAD, NONE, 0))

#define CASE(job, breaks) &(job), breaks, #breaks

static const struct {
    const tiny_options *job;
    void (*breaks)(weft_program *program);
    const char *name, *says[3]; /* parts of the message */
} cases[] = {
    {CASE(plain, no_count), {"instruction 6, BACKWARD head micro-batch 0", "COUNT must run before"}},
    {CASE(plain, count_twice), {"instruction 1, COUNT", "instruction 0 has done this already"}},
    {CASE(plain, count_late), {"BACKWARD head micro-batch 0", "COUNT must run before"}},
    {CASE(plain, no_forward), {"FORWARD layers.1.attn micro-batch 1", "layers.0.mlp", "no FORWARD"}},
    {CASE(plain, no_last_forward), {"BACKWARD head micro-batch 1", "there is no tape"}},
    {CASE(plain, forward_twice), {"FORWARD layers.1.attn micro-batch 0", "instruction 4 has done this"}},
    {CASE(plain, forward_early), {"FORWARD layers.0.mlp micro-batch 1", "layers.0.attn"}},
    {CASE(plain, no_backward), {"REDUCE layers.1 rank micro-batch 1", "layers.1.attn"}},
    {CASE(plain, no_lowest_backward), {"REDUCE root rank micro-batch 0", "segment embed reads"}},
    {CASE(plain, backward_twice), {"BACKWARD layers.1.mlp micro-batch 0", "already"}},
    {CASE(plain, backward_upside_down), {"BACKWARD layers.1.attn micro-batch 0", "layers.1.mlp"}},
    {CASE(frozen, backward_of_frozen), {"BACKWARD layers.0.mlp micro-batch 0", "no BACKWARD"}},
    {CASE(plain, backward_out_of_micro_batch_order),
     {"BACKWARD head micro-batch 0", "BACKWARD for micro-batch 1", "micro-batch order"}},
    {CASE(plain, no_reduce), {"NORM", "layers.0", "no REDUCE for micro-batch 1"}},
    {CASE(plain, reduce_twice), {"REDUCE layers.1 rank micro-batch 0", "already"}},
    {CASE(plain, reduce_early), {"REDUCE layers.1 rank micro-batch 0", "layers.1.attn"}},
    {CASE(tied, reduce_before_tied_user), {"REDUCE root rank micro-batch 0", "segment embed"}},
    {CASE(frozen, reduce_of_frozen), {"REDUCE layers.0 rank micro-batch 0", "frozen"}},
    {CASE(plain, reduce_out_of_micro_batch_order),
     {"REDUCE norm rank micro-batch 0", "micro-batch 1 of this unit", "in their order"}},
    {CASE(plain, no_norm), {"STEP", "NORM must run before"}},
    {CASE(plain, norm_early), {"NORM", "root", "no REDUCE for micro-batch 1"}},
    {CASE(plain, norm_twice), {"NORM", "already"}},
    {CASE(plain, no_step), {"ends after", "without STEP"}},
    {CASE(plain, step_twice), {"STEP", "it follows STEP"}},
    {CASE(plain, step_early), {"STEP", "NORM must run before"}},
    {CASE(plain, micro_batch_too_large), {"FORWARD embed micro-batch 2", "its micro-batch is 2", "has 2"}},
    {CASE(plain, segment_unknown), {"BACKWARD segment 6 micro-batch 0", "its segment is 6"}},
    {CASE(plain, unit_unknown), {"REDUCE unit 4 rank micro-batch 0", "its unit is 4"}},
    {CASE(plain, unit_on_forward), {"FORWARD layers.0.attn", "its unit is 1", "must be -1"}},
    {CASE(plain, micro_batch_on_step), {"STEP micro-batch 0", "must be -1"}},
    {CASE(plain, peer_on_reduce), {"REDUCE root rank micro-batch 0 peer 0", "its peer is 0"}},
    {CASE(plain, gather), {"instruction 1, GATHER layers.0", "not sharded"}},
    {CASE(plain, release), {"RELEASE layers.0", "no gathered copy here"}},
    {CASE(plain, send_to_itself), {"SEND layers.0.attn carry micro-batch 0 peer 0", "is a replica"}},
    {CASE(plain, recv_from_itself), {"RECV layers.0.attn carry micro-batch 0 peer 0", "is a replica"}},
    {CASE(plain, wait_for_nothing), {"instruction 3, WAIT", "its waits is -1"}},
    {CASE(plain, refresh), {"REFRESH layers.0", "no copy of this unit stale"}},
    {CASE(plain, kind_unknown), {"instruction 5", "unknown kind 14", "no such kind"}},
    {CASE(plain, other_queue), {"REDUCE layers.1 rank micro-batch 1", "instruction", "has not been waited for"}},
    {CASE(plain, waits_for_itself), {"instruction 5, WAIT for instruction 5", "its waits is 5", "has 5, numbered"}},
    {CASE(plain, flags_set), {"instruction 5", "its flags are 1"}},
    {CASE(plain, instruction_cut_short), {"instruction 5", "struct_size is 8"}},
    {CASE(plain, recompute_without_checkpointing), {"RECOMPUTE layers.1.mlp micro-batch 0", "checkpointing is off"}},
    {CASE(checkpointing, recompute_twice), {"RECOMPUTE layers.1.mlp micro-batch 0", "already"}},
    {CASE(checkpointing, recompute_late), {"RECOMPUTE layers.1.mlp micro-batch 0", "has already run"}},
    {CASE(checkpointing, recompute_early),
     {"RECOMPUTE layers.1.mlp micro-batch 0", "its FORWARD for micro-batch 0 must run before"}},
    {CASE(plain, empty), {"rank 0", "ends after 0 instructions", "FORWARD embed for 0 micro-batches"}},
    {CASE(evaluate, evaluation_counts), {"instruction 0, COUNT", "evaluation and generation run FORWARDs"}},
    {CASE(evaluate, evaluation_without_head), {"without FORWARD head micro-batch 0"}},
};

static weft_status check_one(const weft_program *program, const tiny_job *job, weft_error *err) {
    weft_coverage coverage;
    return weft_programs_check(&coverage, &program, &job->spec, err);
}

TESTS(a_broken_program_is_refused_by_name, LENGTH(cases)) {
    tiny_job job;
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = tiny_program(&job, cases[_i].job);
    ck_assert_msg(check_one(program, &job, &err) == WEFT_OK, "the valid program: %s", err.text);
    cases[_i].breaks(program);
    ck_assert_msg(check_one(program, &job, &err) == WEFT_E_PLUGIN, "accepted: %s", cases[_i].name);
    for (int i = 0; i < 3 && cases[_i].says[i] != NULL; i++) ck_assert_says(err, cases[_i].says[i]);
    weft_program_destroy(program);
}

TEST(every_program_of_single_is_accepted) {
    int32_t n = 0;
    for (int32_t bits = 0; bits < 3 * 3 * 16 * 4; bits++) {
        const tiny_options options = {.mode = bits % 3,
                                      .micro_batches = 1 + bits / 3 % 3,
                                      .tied = bits / 9 % 2 != 0,
                                      .frozen = (uint32_t)(bits / 18 % 16),
                                      .checkpointing = bits / 288 % 2 != 0};
        tiny_job job;
        weft_error err = WEFT_ERROR_INIT;
        weft_program *program = NULL;
        if (options.mode == WEFT_MODE_TRAIN && options.frozen == 15) continue; /* no trained parameter */
        program = tiny_program(&job, &options);
        ck_assert_ok(check_one(program, &job, &err), err);
        ck_assert_ok(weft_program_place(program, &job.spec, &err), err);
        check_slots(program);
        weft_program_destroy(program);
        n++;
    }
    ck_assert_int_gt(n, 500);
}

/* Any order that the job permits is accepted: all FORWARDs before the first BACKWARD is a valid step, too. */
TEST(another_right_order_is_accepted) {
    tiny_job job;
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = tiny_program(&job, &plain);
    for (int32_t to = 1, i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_FORWARD) move(program, i, to++);
    ck_assert_int_eq(program->instructions[TINY_SEGMENTS + 1].micro_batch, 1);
    ck_assert_ok(check_one(program, &job, &err), err);
    weft_program_destroy(program);
}

TEST(rejects_a_job_without_trained_parameters) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = 1, .frozen = 15};
    tiny_job job;
    weft_error err = WEFT_ERROR_INIT;
    tiny_make(&job, &options);
    ck_assert_int_eq(weft_job_spec_check(&job.spec, &err), WEFT_E_USER);
    ck_assert_says(err, "no parameter is trained");
}

TEST(a_trainable_unit_that_nothing_reads_is_the_users_mistake) {
    tiny_job job;
    weft_error err = WEFT_ERROR_INIT;
    tiny_make(&job, &plain);
    job.reads[HEAD][0] = LAYER1; /* no segment reads unit norm any more */
    ck_assert_int_eq(weft_job_spec_check(&job.spec, &err), WEFT_E_USER);
    ck_assert_says(err, "unit norm");
}

TEST(single_wants_one_rank) {
    tiny_job job;
    weft_error err = WEFT_ERROR_INIT;
    tiny_make(&job, &plain);
    job.spec.view.world = 4;
    ck_assert_int_eq(weft_job_replicas(&job.spec, NULL, load_single(), NULL, &err), WEFT_E_USER);
    ck_assert_says(err, "this job has 4");
}

TEST(single_owns_every_unit) {
    tiny_job job;
    weft_program *program = tiny_program(&job, &plain);
    ck_assert_int_eq(job.spec.view.replicas, 1);
    for (int u = 0; u < TINY_UNITS; u++) {
        ck_assert_int_eq(job.placements[u].parameters, WEFT_OWNED);
        ck_assert_int_eq(job.placements[u].optimizer, WEFT_OWNED);
        ck_assert_int_eq(job.placements[u].owner, 0);
    }
    weft_program_destroy(program);
}

/* Strategies with invalid results. */
static int32_t answer_replicas, answer_holding, answer_owner, answer_more;
static weft_status answer_status;

static weft_status bad_replicas(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                                weft_error *err) {
    *out = answer_replicas;
    return answer_status;
}

static weft_status bad_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                             weft_placement *units, int32_t *owners, weft_error *err) {
    for (int32_t u = 0; u < job->n_units; u++) {
        weft_placement *placement = weft_placement_at(job, units, u);
        placement->parameters = placement->gradients = placement->optimizer = answer_holding;
        placement->owner = answer_owner;
    }
    return WEFT_OK;
}

static weft_status bad_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                               const weft_emitter *emitter, weft_error *err) {
    struct {
        weft_instruction known;
        int64_t more; /* as in a newer SDK */
    } instruction = {weft_instruction_of(WEFT_INSTRUCTION_RECOMPUTE), answer_more};
    instruction.known.struct_size = (uint32_t)sizeof instruction;
    instruction.known.segment = 1;
    instruction.known.micro_batch = 0;
    ck_assert_int_eq(emitter->emit(emitter->program, &instruction.known), 0);
    ck_assert_int_eq(emitter->emit(emitter->program, &instruction.known), 1);
    return WEFT_OK;
}

/* Calls the three slots until one result is invalid. */
static void expect_blame(const char *says) {
    const weft_strategy_plugin wrong = {(uint32_t)sizeof wrong, 0, bad_replicas, bad_place, bad_compile};
    tiny_job job;
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = NULL;
    weft_status status = WEFT_OK;
    tiny_make(&job, &plain);
    status = weft_job_replicas(&job.spec, NULL, &wrong, NULL, &err);
    if (status == WEFT_OK) status = weft_job_place(&job.spec, NULL, &wrong, NULL, &err);
    if (status == WEFT_OK) status = weft_program_compile(&program, NULL, &wrong, NULL, &job.spec, 0, &err);
    ck_assert_int_ne(status, WEFT_OK);
    ck_assert_msg(strstr(err.text, says) != NULL, "expected \"%s\" in \"%s\"", says, err.text);
    weft_program_destroy(program);
}

TEST(wrong_answers_of_a_strategy_are_refused) {
    answer_replicas = 2;
    expect_blame("requests 2 replicas");
    answer_replicas = 1;
    answer_holding = 7;
    expect_blame("unit root with holding 7");
    answer_holding = WEFT_OWNED;
    answer_owner = 1;
    expect_blame("unit root to rank 1");
    answer_owner = 0;
    expect_blame("instruction 0, RECOMPUTE layers.0.attn micro-batch 0: a strategy emits no RECOMPUTE");
    answer_more = 1;
    expect_blame("instruction 0, RECOMPUTE layers.0.attn micro-batch 0: the strategy plugin sets fields after "
                 "the 48 bytes");
    answer_status = WEFT_E_PLUGIN;
    expect_blame("failed in its replicas without an error message");
}

/* A larger capacity would overflow. */
TEST(a_program_that_cannot_grow_records_it) {
    const weft_instruction step = weft_instruction_of(WEFT_INSTRUCTION_STEP);
    weft_program program = {.n_instructions = 1 << 30, .capacity = 1 << 30};
    ck_assert_int_eq(weft_program_emit(&program, &step), -1);
    ck_assert(program.out_of_memory);
}

TEST(checkpointing_adds_a_recompute_where_the_tape_would_wait) {
    tiny_job job;
    weft_program *program = tiny_program(&job, &checkpointing);
    for (int32_t m = 0; m < 2; m++)
        for (int32_t s = 0; s < TINY_SEGMENTS; s++) {
            const int32_t again = find_instruction(program, WEFT_INSTRUCTION_RECOMPUTE, s, NONE, m);
            if (s == HEAD) ck_assert_int_eq(again, -1); /* its BACKWARD follows directly after its FORWARD */
            else ck_assert_int_eq(again + 1, at(program, WEFT_INSTRUCTION_BACKWARD, s, NONE, m));
        }
    weft_program_destroy(program);
}

TEST(checkpointing_keeps_what_waits_for_what) {
    tiny_options options = plain;
    strategy ddp;
    team ranks;
    weft_program *program = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_coverage coverage;
    int32_t waits = 0;
    options.world = 2;
    load_strategy(&ddp, "ddp", NULL);
    team_make(&ranks, &options, &ddp);
    program = copy_program(ranks.programs[0]);
    ranks.job.spec.activation_checkpointing = true;
    for (int32_t rank = 0; rank < 2; rank++) weft_program_rewrite(ranks.programs[rank], &ranks.job.spec);
    ck_assert_int_gt(ranks.programs[0]->n_instructions, program->n_instructions);
    for (int32_t i = 0, was = 0; i < ranks.programs[0]->n_instructions; i++) {
        const weft_instruction *instruction = &ranks.programs[0]->instructions[i],
                               *before = &program->instructions[was];
        if (instruction->kind == WEFT_INSTRUCTION_RECOMPUTE) continue;
        ck_assert_int_eq(instruction->kind, before->kind);
        if (instruction->kind == WEFT_INSTRUCTION_WAIT) {
            const weft_instruction *now = &ranks.programs[0]->instructions[instruction->waits],
                                   *then = &program->instructions[before->waits];
            ck_assert(now->kind == then->kind && now->unit == then->unit && now->micro_batch == then->micro_batch);
            waits++;
        }
        was++;
    }
    ck_assert_int_gt(waits, 4);
    ck_assert_ok(team_check(&ranks, &coverage, &err), err);
    weft_program_destroy(program);
    team_free(&ranks);
}

int main(void) {
    printf("%d kinds of broken programs\n", (int)LENGTH(cases));
    return run_tests(test_case("programs", 120, NULL, NULL));
}
