/* tests/program/test_execute.c: instructions run in order with their slots; the trace records execution and memory
 * use. */
#include "jobs.h"
#include "tools/plan/print_program.h"

static const tiny_options plain = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2};
static const tiny_options checkpointing = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2, .checkpointing = true};
static const tiny_options one_micro_batch = {.mode = WEFT_MODE_TRAIN, .micro_batches = 1};
static const tiny_options generate = {.mode = WEFT_MODE_GENERATE, .micro_batches = 1};

/* An executor that records its calls and uses a share of each slot. */
typedef struct recorder {
    weft_trace *trace;
    const weft_program *program;
    weft_instruction seen[256];
    int32_t n_seen;
    int64_t percent;   /* used share of each slot */
    int32_t wide_slot; /* slot with a use one row (64 bytes) too large; -1: no slot */
    int32_t fail_at;   /* index of the failing call; -1: no failure */
    const char *fail_text;
    weft_status fail_status;
} recorder;

static void use(recorder *r, int32_t slot) {
    if (slot < 0) return;
    weft_trace_use(r->trace, slot, r->program->slots[slot].bytes * r->percent / 100 + (slot == r->wide_slot ? 64 : 0));
}

static weft_status record(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                          weft_error *err) {
    recorder *r = context;
    const int32_t call = r->n_seen;
    r->seen[r->n_seen++] = *instruction;
    if (slots != NULL) {
        const int32_t all[] = {slots->micro_batch, slots->carry_in,    slots->carry_out, slots->tape,
                               slots->work,        slots->d_carry_out, slots->d_carry_in};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) use(r, all[i]);
        for (int32_t u = 0; u < TINY_UNITS; u++) use(r, slots->gradients[u]);
    }
    if (call != r->fail_at) return WEFT_OK;
    return r->fail_text == NULL ? r->fail_status : weft_error_set(err, r->fail_status, "%s", r->fail_text);
}

typedef struct bench {
    tiny_job job;
    weft_program *program;
    weft_trace *trace;
    recorder recorder;
    weft_exec_table table;
    weft_error err;
} bench;

static void bench_open(bench *b, const tiny_options *options, int32_t capacity) {
    const weft_error empty = WEFT_ERROR_INIT;
    weft_exec_table table = {.context = &b->recorder};
    for (int32_t kind = WEFT_INSTRUCTION_COUNT; kind <= WEFT_INSTRUCTION_REFRESH; kind++) table.run[kind] = record;
    memset(b, 0, sizeof *b);
    b->err = empty;
    b->program = tiny_program(&b->job, options);
    ck_assert_ok(weft_program_place(b->program, &b->job.spec, &b->err), b->err);
    b->trace = weft_trace_create(capacity);
    b->recorder.trace = b->trace;
    b->recorder.program = b->program;
    b->recorder.percent = 100;
    b->recorder.wide_slot = b->recorder.fail_at = -1;
    b->table = table;
}

static weft_status run(bench *b, uint64_t step) {
    b->recorder.n_seen = 0;
    return weft_program_execute(b->program, 0, b->program->n_instructions, &b->job.spec, &b->table, b->trace, step,
                                &b->err);
}

static void bench_close(bench *b) {
    weft_program_destroy(b->program);
    weft_trace_destroy(b->trace);
}

TEST(instructions_run_once_each_in_their_order) {
    bench b;
    bench_open(&b, &checkpointing, 100);
    ck_assert_ok(run(&b, 1), b.err);
    ck_assert_int_eq(b.recorder.n_seen, b.program->n_instructions);
    for (int32_t i = 0; i < b.program->n_instructions; i++)
        ck_assert_mem_eq(&b.recorder.seen[i], &b.program->instructions[i], sizeof(weft_instruction));
    bench_close(&b);
}

TEST(the_trace_holds_every_instruction_with_its_times) {
    bench b;
    uint64_t before = 0;
    bench_open(&b, &plain, 100);
    ck_assert_int_eq(run(&b, 7), WEFT_OK);
    ck_assert_int_eq(weft_trace_count(b.trace), b.program->n_instructions);
    for (int32_t i = 0; i < b.program->n_instructions; i++) {
        const weft_trace_entry *entry = weft_trace_entry_at(b.trace, i);
        ck_assert_int_eq(entry->instruction, i);
        ck_assert_uint_eq(entry->step, 7);
        ck_assert(entry->start_ns >= before && entry->end_ns >= entry->start_ns && entry->start_ns > 0);
        before = entry->end_ns;
    }
    ck_assert_ptr_null(weft_trace_entry_at(b.trace, b.program->n_instructions));
    ck_assert_ptr_null(weft_trace_entry_at(b.trace, -1));
    bench_close(&b);
}

TEST(the_ring_keeps_the_newest) {
    bench b;
    bench_open(&b, &plain, 10);
    for (uint64_t step = 1; step <= 3; step++) ck_assert_int_eq(run(&b, step), WEFT_OK);
    ck_assert_int_eq(weft_trace_count(b.trace), 10);
    for (int32_t i = 0; i < 10; i++) {
        ck_assert_int_eq(weft_trace_entry_at(b.trace, i)->instruction, b.program->n_instructions - 10 + i);
        ck_assert_uint_eq(weft_trace_entry_at(b.trace, i)->step, 3);
    }
    bench_close(&b);
}

/* Returns the bytes of slots with storage that are used by instruction i or before, and still live, by definition. */
static int64_t live_by_hand(const bench *b, int32_t i, int64_t percent) {
    int64_t sum = 0;
    for (int32_t k = 0; k < b->program->n_slots; k++) {
        const weft_slot *slot = &b->program->slots[k];
        if (slot->offset >= 0 && slot->first <= i && i <= slot->last)
            sum += (slot->bytes * percent / 100 + 63) / 64 * 64;
    }
    return sum;
}

TESTS(the_high_water_mark_is_of_what_was_used, 6) {
    const tiny_options *jobs[] = {&plain, &checkpointing, &one_micro_batch, &generate, &plain, &plain};
    const int64_t percent = _i < 4 ? 100 : _i == 4 ? 40 : 0;
    bench b;
    int64_t most = 0;
    bench_open(&b, jobs[_i], 100);
    b.recorder.percent = percent;
    ck_assert_int_eq(run(&b, 1), WEFT_OK);
    for (int32_t i = 0; i < b.program->n_instructions; i++) {
        const int64_t live = live_by_hand(&b, i, percent);
        ck_assert_int_eq(weft_trace_entry_at(b.trace, i)->live, live);
        if (live > most) most = live;
    }
    ck_assert_int_eq(b.trace->high_water, most);
    if (percent == 100) ck_assert_int_eq(most, b.program->peak);
    else ck_assert_int_lt(most, b.program->peak / 2);
    ck_assert(percent > 0 || (most == 0 && b.trace->used[0] == 0));
    b.recorder.percent = 100; /* the peak of a later run counts */
    ck_assert_int_eq(run(&b, 2), WEFT_OK);
    ck_assert_int_eq(b.trace->high_water, b.program->peak);
    bench_close(&b);
}

/* Returns the index of an existing slot. */
static int32_t slot_of(const weft_program *program, int32_t kind, int32_t segment, int32_t unit, int32_t micro_batch) {
    for (int32_t k = 0; k < program->n_slots; k++) {
        const weft_slot *slot = &program->slots[k];
        if (slot->kind == kind && slot->segment == segment && slot->unit == unit && slot->micro_batch == micro_batch)
            return k;
    }
    ck_abort_msg("no such slot");
    return -1;
}

TEST(a_slot_one_row_too_small_is_caught) {
    bench b;
    int32_t tape = 0;
    bench_open(&b, &plain, 100);
    tape = slot_of(b.program, WEFT_SLOT_TAPE, 3, -1, 1);
    b.program->slots[tape].bytes -= 64;
    b.recorder.wide_slot = tape; /* the workspace keeps its size */
    ck_assert_int_eq(run(&b, 5), WEFT_E_HOST);
    ck_assert_str_eq(
        b.err.text,
        "step 5, instruction 20, FORWARD layers.1.attn micro-batch 1: it uses 1344 bytes of slot 32 (tape), "
        "which has 1280");
    ck_assert_int_eq(b.recorder.n_seen, 21); /* no instruction ran after it */
    bench_close(&b);
}

TEST(every_slot_too_small_is_caught) {
    bench b;
    bench_open(&b, &checkpointing, 100);
    for (int32_t k = 0; k < b.program->n_slots; k++) {
        b.recorder.wide_slot = k;
        b.program->slots[k].bytes -= 64;
        b.err.text[0] = '\0';
        ck_assert_int_eq(run(&b, 1), WEFT_E_HOST);
        ck_assert_int_eq(b.recorder.n_seen - 1, b.program->slots[k].first);
        b.program->slots[k].bytes += 64;
    }
    b.recorder.wide_slot = -1;
    ck_assert_int_eq(run(&b, 1), WEFT_OK);
    bench_close(&b);
}

static weft_status touch_dead(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    recorder *r = context;
    weft_trace_use(r->trace, slot_of(r->program, WEFT_SLOT_TAPE, 3, -1, 0), 64);
    return WEFT_OK;
}

TEST(a_dead_slot_is_not_touched) {
    bench b;
    bench_open(&b, &plain, 100);
    b.table.run[WEFT_INSTRUCTION_NORM] = touch_dead;
    ck_assert_int_eq(run(&b, 2), WEFT_E_HOST);
    ck_assert_msg(strstr(b.err.text, "instruction 33, NORM: it uses slot") != NULL &&
                      strstr(b.err.text, "(tape), which is live from instruction 4 to 10 only") != NULL,
                  "%s", b.err.text);
    bench_close(&b);
}

TEST(a_failure_is_given_step_and_instruction) {
    bench b;
    bench_open(&b, &plain, 100);
    b.recorder.fail_at = 9;
    b.recorder.fail_text = "NaN in the gradient";
    b.recorder.fail_status = WEFT_E_NUMERIC;
    ck_assert_int_eq(run(&b, 12), WEFT_E_NUMERIC);
    ck_assert_str_eq(b.err.text, "step 12, instruction 9, BACKWARD layers.1.mlp micro-batch 0: NaN in the gradient");
    ck_assert_int_eq(b.recorder.n_seen, 10);
    ck_assert_int_eq(weft_trace_entry_at(b.trace, weft_trace_count(b.trace) - 1)->instruction, 9);
    b.err.text[0] = '\0';
    b.recorder.fail_text = NULL;
    b.recorder.fail_status = WEFT_E_STOPPED;
    ck_assert_int_eq(run(&b, 13), WEFT_E_STOPPED);
    ck_assert_str_eq(b.err.text,
                     "step 13, instruction 9, BACKWARD layers.1.mlp micro-batch 0: failed without a message");
    b.recorder.fail_at = -1; /* the next run starts afresh */
    ck_assert_int_eq(run(&b, 14), WEFT_OK);
    ck_assert_int_eq(b.trace->high_water, b.program->peak);
    bench_close(&b);
}

TEST(a_single_micro_batch_gradient_is_the_sum_itself) {
    bench b;
    int32_t slot = 0;
    bench_open(&b, &one_micro_batch, 100);
    slot = slot_of(b.program, WEFT_SLOT_MICRO_BATCH_GRADIENT, -1, 1, 0);
    ck_assert_int_eq(b.program->slots[slot].offset, -1);
    ck_assert_int_eq(b.program->slots[slot].bytes, 2112); /* 2064 */
    b.recorder.wide_slot = slot;                          /* it has no storage, but a size */
    ck_assert_int_eq(run(&b, 1), WEFT_E_HOST);
    bench_close(&b);
    bench_open(&b, &plain, 100);
    ck_assert_int_ge(b.program->slots[slot_of(b.program, WEFT_SLOT_MICRO_BATCH_GRADIENT, -1, 1, 0)].offset, 0);
    bench_close(&b);
}

TEST(slots_live_as_the_header_says) {
    bench b;
    const weft_program *p = NULL;
    const weft_slot *slot = NULL;
    bench_open(&b, &checkpointing, 100);
    p = b.program;
    slot = &p->slots[slot_of(p, WEFT_SLOT_MICRO_BATCH, -1, -1, 1)];
    ck_assert_int_eq(slot->first, find_instruction(p, WEFT_INSTRUCTION_FORWARD, 0, -1, 1));
    ck_assert_int_eq(slot->last, find_instruction(p, WEFT_INSTRUCTION_BACKWARD, 0, -1, 1));
    slot = &p->slots[slot_of(p, WEFT_SLOT_CARRY, 2, -1, 0)];
    ck_assert_int_eq(slot->first, find_instruction(p, WEFT_INSTRUCTION_FORWARD, 2, -1, 0));
    ck_assert_int_eq(slot->last, find_instruction(p, WEFT_INSTRUCTION_BACKWARD, 3, -1, 0));
    slot = &p->slots[slot_of(p, WEFT_SLOT_CARRY, TINY_DEAF - 1, -1, 0)];
    ck_assert_int_eq(slot->last, find_instruction(p, WEFT_INSTRUCTION_RECOMPUTE, TINY_DEAF, -1, 0));
    slot = &p->slots[slot_of(p, WEFT_SLOT_TAPE, 2, -1, 0)];
    ck_assert_int_eq(slot->first, find_instruction(p, WEFT_INSTRUCTION_RECOMPUTE, 2, -1, 0));
    ck_assert_int_eq(slot->last, find_instruction(p, WEFT_INSTRUCTION_BACKWARD, 2, -1, 0));
    slot = &p->slots[slot_of(p, WEFT_SLOT_TAPE, 5, -1, 0)]; /* never recomputed */
    ck_assert_int_eq(slot->first, find_instruction(p, WEFT_INSTRUCTION_FORWARD, 5, -1, 0));
    slot = &p->slots[slot_of(p, WEFT_SLOT_CARRY_GRADIENT, 2, -1, 0)];
    ck_assert_int_eq(slot->first, find_instruction(p, WEFT_INSTRUCTION_BACKWARD, 3, -1, 0));
    ck_assert_int_eq(slot->last, find_instruction(p, WEFT_INSTRUCTION_BACKWARD, 2, -1, 0));
    slot = &p->slots[slot_of(p, WEFT_SLOT_MICRO_BATCH_GRADIENT, -1, 2, 1)];
    ck_assert_int_eq(slot->first, find_instruction(p, WEFT_INSTRUCTION_BACKWARD, 4, -1, 1));
    ck_assert_int_eq(slot->last, find_instruction(p, WEFT_INSTRUCTION_REDUCE, -1, 2, 1));
    bench_close(&b);
    bench_open(&b, &plain, 100);
    slot = &b.program->slots[slot_of(b.program, WEFT_SLOT_CARRY, TINY_DEAF - 1, -1, 0)];
    ck_assert_int_eq(slot->last, find_instruction(b.program, WEFT_INSTRUCTION_FORWARD, TINY_DEAF, -1, 0));
    ck_assert_int_eq(
        b.program->instruction_slots[find_instruction(b.program, WEFT_INSTRUCTION_BACKWARD, TINY_DEAF, -1, 0)].carry_in,
        -1);
    bench_close(&b);
}

static int64_t work_of(const weft_program *program, int32_t kind, int32_t segment) {
    const int32_t i = find_instruction(program, kind, segment, -1, 0);
    return program->slots[program->instruction_slots[i].work].bytes;
}

TEST(each_pass_over_a_segment_has_its_own_scratch) {
    bench b;
    bench_open(&b, &checkpointing, 100);
    ck_assert_int_eq(work_of(b.program, WEFT_INSTRUCTION_FORWARD, 1), 512);   /* 510, without a tape */
    ck_assert_int_eq(work_of(b.program, WEFT_INSTRUCTION_RECOMPUTE, 1), 256); /* 210 */
    ck_assert_int_eq(work_of(b.program, WEFT_INSTRUCTION_BACKWARD, 1), 768);  /* 710 */
    bench_close(&b);
    bench_open(&b, &plain, 100);
    ck_assert_int_eq(work_of(b.program, WEFT_INSTRUCTION_FORWARD, 1), 320); /* 310 */
    bench_close(&b);
}

TEST(categories_add_up_to_the_peak) {
    bench b;
    const weft_program *p = NULL;
    int64_t sum = 0;
    bench_open(&b, &checkpointing, 100);
    p = b.program;
    ck_assert_int_eq(p->peak, live_by_hand(&b, p->peak_instruction, 100));
    for (int32_t i = 0; i < b.program->n_instructions; i++) ck_assert_int_le(live_by_hand(&b, i, 100), p->peak);
    for (int c = 0; c < WEFT_N_MEMORY_CATEGORIES; c++) sum += p->category[c];
    ck_assert_int_eq(sum, p->peak);
    ck_assert(p->category[WEFT_MEMORY_GRADIENTS] > 0 && p->category[WEFT_MEMORY_WORKSPACE] > 0);
    ck_assert_int_eq(p->category[WEFT_MEMORY_PARAMETERS], 0);
    bench_close(&b);
}

/* Returns the printed program. */
static char *text_of(const bench *b) {
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    weft_program_print(b->program, &b->job.spec, -1, to);
    fclose(to);
    return text;
}

TEST(programs_are_printed_by_name) {
    bench b;
    weft_instruction_slots *slots = NULL;
    char *text = NULL;
    int lines = 0;
    bench_open(&b, &one_micro_batch, 100);
    text = text_of(&b);
    for (const char *at = text; *at != '\0'; at++) lines += *at == '\n';
    ck_assert_int_eq(lines, b.program->n_instructions + 2);
    ck_assert_msg(strstr(text, "    0      0  COUNT\n") != NULL, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "BACKWARD layers.1.attn micro-batch 0  micro-batch 256@"));
    ck_assert_ptr_nonnull(strstr(text, "layers.1 2176@sum"));
    free(text);
    slots = b.program->instruction_slots;
    b.program->instruction_slots = NULL; /* as if it were not placed */
    text = text_of(&b);
    b.program->instruction_slots = slots;
    ck_assert_ptr_nonnull(strstr(text, "FORWARD head micro-batch 0\n"));
    free(text);
    bench_close(&b);
}

int main(void) {
    return run_tests(test_case("programs", 120, NULL, NULL));
}
