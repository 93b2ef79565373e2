/* tests/tensor/test_graph.c: behaviour of planned graphs: accessed memory, errors, and bit equality. Bit equality is
 * tested on both devices. */
#include "graph_models.h"
#include "suite.h"
#include "graph/record.h"
#include "tools/profile/profile.h"

#include <math.h>

enum { D = RIG_D, HD = RIG_HEAD };
enum { ROWS = 2, LENGTH = 9 };

/* In fp32 and bf16 on each device. */
enum { VARIANTS = 2 * RIG_DEVICES };

static void open_language_model(rig *r, int variant) {
    rig_open(r, variant % RIG_DEVICES, &rig_language_model, ROWS, LENGTH);
    if (variant >= RIG_DEVICES) rig_round(r);
}

/* The language model and all its segments in training. */
static void open_training(rig *r, rig_chain *chain, int variant) {
    open_language_model(r, variant);
    rig_chain_open(chain, r, WEFT_MODE_TRAIN, 0, 3);
}

static void close_training(rig *r, rig_chain *chain) {
    rig_chain_close(chain);
    rig_close(r);
}

#if !defined(__SANITIZE_ADDRESS__)
/* Counts the program's allocations and forwards them to the C library. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static long allocations;
void *malloc(size_t n) {
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    allocations++;
    return __libc_realloc(p, n);
}

TEST(running_allocates_nothing) {
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    long before = 0;
    open_training(&r, &chain, RIG_REFERENCE);
    before = allocations;
    for (int32_t s = 0; s < 4 && status == WEFT_OK; s++)
        status = weft_graph_forward(chain.runs[s].graph, &chain.runs[s].binding, false, &err);
    for (int32_t s = 3; s >= 0 && status == WEFT_OK; s--)
        status = weft_graph_backward(chain.runs[s].graph, &chain.runs[s].binding, &err);
    before = allocations - before; /* before Check's own allocations */
    rig_ok(status, &err);
    ck_assert_int_eq(before, 0);
    ck_assert_int_gt(allocations, 0);
    close_training(&r, &chain);
}
#endif

/* The slots of a run by name, for tests of all slots. */
enum { N_SLOTS = 12 };
static const char *const slot_names[N_SLOTS] = {"the micro-batch's ids",
                                                "the micro-batch's targets",
                                                "the micro-batch's weights",
                                                "the micro-batch's document starts",
                                                "the micro-batch's positions",
                                                "the carry (incoming)",
                                                "the carry (outgoing)",
                                                "the carry gradient (from the next segment)",
                                                "the carry gradient (for the previous segment)",
                                                "the tape",
                                                "scratch",
                                                "the parameter's gradient"};

static weft_slot_ref *slot_at(weft_graph_binding *b, weft_slot_ref *gradients, int32_t parameter, int i) {
    weft_slot_ref *slots[N_SLOTS] = {&b->ids,        &b->targets,  &b->weights,   &b->starts,
                                     &b->positions,  &b->carry_in, &b->carry_out, &b->d_carry_out,
                                     &b->d_carry_in, &b->tape,     &b->work,      &gradients[parameter]};
    return slots[i];
}

static weft_status run_both(const rig_run *run, weft_error *err) {
    weft_status status = weft_graph_forward(run->graph, &run->binding, false, err);
    if (status == WEFT_OK && run->sizes->has_backward) status = weft_graph_backward(run->graph, &run->binding, err);
    return status;
}

/* Makes slot i of a segment too small by its last element: the message must contain the segment, the slot and its
 * size. */
static void check_refusal(rig *r, rig_run *run, weft_slot_ref *slot, int i, int64_t used) {
    weft_error err = WEFT_ERROR_INIT;
    char there[64];
    const int64_t whole = slot->bytes;
    slot->bytes = used - 4;
    (void)snprintf(there, sizeof there, "only %lld are there", (long long)slot->bytes);
    ck_assert_msg(run_both(run, &err) == WEFT_E_HOST, "%s: four bytes too few were not noticed", slot_names[i]);
    ck_assert_msg(strstr(err.text, slot_names[i]) != NULL && strstr(err.text, there) != NULL &&
                      strstr(err.text, "segment part.") != NULL,
                  "%s: %s", slot_names[i], err.text);
    slot->bytes = whole;
}

TEST(a_slot_that_is_too_small_is_refused) {
    rig r;
    rig_chain chain;
    int refused = 0;
    open_training(&r, &chain, RIG_REFERENCE);
    rig_chain_forward(&chain);
    rig_chain_backward(&chain);
    for (int32_t s = 0; s < 4; s++) {
        rig_run *run = &chain.runs[s];
        int32_t n = 0;
        const int32_t parameter = weft_graph_reads(run->graph, &n)[0].parameter;
        for (int i = 0; i < N_SLOTS; i++) {
            weft_slot_ref *slot = slot_at(&run->binding, r.gradients, parameter, i);
            int64_t used = 0;
            weft_error err = WEFT_ERROR_INIT;
            slot->used = &used;
            rig_ok(run_both(run, &err), &err);
            slot->used = NULL;
            if (used == 0) continue;
            check_refusal(&r, run, slot, i, used);
            refused++;
        }
    }
    ck_assert_int_ge(refused, 24);
    close_training(&r, &chain);
}

TEST(a_slot_that_is_not_bound_is_refused) {
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    const weft_slot_ref none = {0};
    open_training(&r, &chain, RIG_REFERENCE);
    rig_chain_forward(&chain);
    chain.runs[2].binding.tape = none;
    chain.runs[2].binding.d_carry_out = chain.runs[2].binding.d_carry_in;
    ck_assert_int_eq(weft_graph_backward(chain.runs[2].graph, &chain.runs[2].binding, &err), WEFT_E_HOST);
    ck_assert_msg(strcmp(err.text, "segment part.2, linear down, backward: `x` is in the tape, which is not bound") ==
                      0,
                  "%s", err.text);
    close_training(&r, &chain);
}

/* Runs access exactly the planned bytes. */
TESTS(accesses_exactly_the_planned_bytes, RIG_DEVICES) {
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    open_training(&r, &chain, _i);
    for (int32_t s = 0; s < 4; s++) {
        const rig_run *run = &chain.runs[s];
        weft_graph_binding b = run->binding;
        int64_t tape = 0, work = 0, carry = 0, inside = 0;
        b.work.used = &work;
        b.tape.used = &tape;
        b.carry_out.used = &carry;
        b.ids.used = &inside;
        b.ids.start = 64;
        rig_ok(weft_graph_forward(run->graph, &b, false, &err), &err);
        ck_assert_int_eq(tape, run->sizes->tape);
        ck_assert_int_eq(work, run->sizes->forward_work);
        ck_assert_int_eq(carry, run->sizes->carry);
        ck_assert_int_eq(inside, s == 0 ? 64 + ROWS * LENGTH * 4 : 0);
    }
    for (int32_t s = 3; s >= 0; s--) {
        const rig_run *run = &chain.runs[s];
        weft_graph_binding b = run->binding;
        int64_t tape = 0, work = 0;
        b.work.used = &work;
        b.tape.used = &tape;
        rig_ok(weft_graph_backward(run->graph, &b, &err), &err);
        ck_assert_int_eq(work, run->sizes->backward_work);
        ck_assert_int_eq(tape, run->sizes->tape);
        work = 0;
        tape = 0;
        b.carry_out.ref.buffer = NULL;
        rig_ok(weft_graph_forward(run->graph, &b, true, &err), &err);
        ck_assert_int_eq(work, run->sizes->recompute_work);
        ck_assert_int_eq(tape, run->sizes->tape);
    }
    close_training(&r, &chain);
}

/* Values are (B,T) of `width` elements, aligned to 64 bytes; statistics of norms and attention are always fp32. */
static int64_t tape_bytes(const rig *r, const int64_t *widths, uint32_t statistics, int n) {
    int64_t end = 0;
    for (int i = 0; i < n; i++)
        end = (end + 63) / 64 * 64 +
              (int64_t)ROWS * LENGTH * widths[i] * (statistics >> i & 1 ? 4 : weft_dtype_bytes(r->dtype));
    return end;
}

/* The tape contains only the inputs of backward; sums and rotations work in place. In bf16 values take half the
 * bytes. */
TESTS(memory_is_what_backward_needs, 2) {
    const int64_t heads = RIG_HEADS * HD, kv = RIG_KV_HEADS * HD, places = ROWS * LENGTH;
    /* normed, rstd, rotated q and k, v, output, lse */
    const int64_t attention[] = {D, 1, heads, kv, kv, heads, RIG_HEADS};
    /* normed, rstd, gate, up, product */
    const int64_t mlp[] = {D, 1, RIG_F, RIG_F, RIG_F};
    const int64_t head[] = {D, 1};
    rig r;
    rig_chain chain;
    int64_t cell = 0;
    open_training(&r, &chain, _i * RIG_DEVICES + RIG_REFERENCE);
    cell = weft_dtype_bytes(r.dtype);
    for (int s = 0; s < 3; s++) ck_assert_int_eq(chain.runs[s].sizes->carry, (places * D * cell + 3) / 4 * 4);
    ck_assert_int_eq(chain.runs[0].sizes->tape, 0);
    ck_assert_int_eq(chain.runs[1].sizes->tape, tape_bytes(&r, attention, 1u << 1 | 1u << 6, 7));
    ck_assert_int_eq(chain.runs[2].sizes->tape, tape_bytes(&r, mlp, 1u << 1, 5));
    ck_assert_int_eq(chain.runs[3].sizes->tape, tape_bytes(&r, head, 1u << 1, 2));
    ck_assert_int_eq(chain.runs[1].sizes->forward_work, LENGTH * 8); /* the kernel's row of probabilities */
    ck_assert_int_eq(chain.runs[2].sizes->forward_work, 0);
    ck_assert_int_eq(chain.runs[3].sizes->forward_work_untaped, 0);
    /* gradients of the product, of gate and of up, each 64-byte aligned */
    if (_i == 1)
        ck_assert_int_eq(chain.runs[2].sizes->backward_work,
                         2 * ((places * RIG_F * cell + 63) / 64 * 64) + places * RIG_F * cell);
    ck_assert_double_eq(chain.runs[0].graph->passes[WEFT_PASS_UNTAPED].calls[0].bytes,
                        (double)places * (2.0 * D * (double)cell + 4.0));
    ck_assert(!chain.runs[0].sizes->backward_reads_carry && chain.runs[1].sizes->backward_reads_carry);
    close_training(&r, &chain);
}

/* Matmuls by size, half for causal attention; backward counts two of each. */
TEST(work_is_counted) {
    const double places = ROWS * LENGTH, q = RIG_HEADS * HD, kv = RIG_KV_HEADS * HD;
    const double attention = 2.0 * places * D * (2.0 * q + 2.0 * kv) + 2.0 * ROWS * LENGTH * LENGTH * q;
    const double mlp = 2.0 * places * D * 3.0 * RIG_F, head = 2.0 * places * D * RIG_V;
    rig r;
    rig_chain chain;
    open_training(&r, &chain, RIG_REFERENCE);
    ck_assert_double_eq(chain.runs[1].sizes->forward_flops, attention);
    ck_assert_double_eq(chain.runs[1].sizes->backward_flops, 2.0 * attention);
    ck_assert_double_eq(chain.runs[2].sizes->forward_flops, mlp);
    ck_assert_double_eq(chain.runs[2].sizes->backward_flops, 2.0 * mlp);
    ck_assert_double_eq(chain.runs[3].sizes->forward_flops, 0.0);
    ck_assert_double_eq(chain.runs[3].sizes->backward_flops, 3.0 * head); /* includes the logits */
    ck_assert_double_eq(chain.runs[0].sizes->forward_flops + chain.runs[0].sizes->backward_flops, 0.0);
    close_training(&r, &chain);
}

/* ---- a sum and the norm that reads it next are one call ---- */

FORWARD(normed_sum) {
    const weft_value sum = ops->add(g, carry, ops->linear(g, carry, r->weights[0]));
    return ops->add(g, sum, ops->rms_norm(g, sum, r->weights[1], 1e-5));
}

static void count_sums(void *context, const weft_graph *graph, const weft_call *call, double seconds) {
    weft_call_info info;
    weft_call_describe(&info, graph, call);
    *(int *)context += strcmp(info.operation, "add") == 0;
}

TESTS(a_sum_that_is_normed_is_one_call, RIG_DEVICES) {
    static const rig_weight weights[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {"n", WEFT_WEIGHT_GAIN, D, D}, {0}};
    const rig_model model = {
        .name = "sums", .weights = weights, .carry_width = D, .n_segments = 3, .forward = normed_sum};
    int sums = 0;
    const weft_call_sink sink = {&sums, count_sums};
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    rig_open(&r, _i, &model, ROWS, LENGTH);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 1, 1);
    chain.runs[1].binding.sink = &sink;
    rig_ok(weft_graph_forward(chain.runs[1].graph, &chain.runs[1].binding, false, &err), &err);
    ck_assert_int_eq(sums, 1); /* of two */
    close_training(&r, &chain);
}

TESTS(recompute_makes_the_same_tape, VARIANTS) {
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    open_training(&r, &chain, _i);
    rig_chain_forward(&chain);
    for (int32_t s = 1; s < 4; s++) {
        const rig_run *run = &chain.runs[s];
        const int64_t bytes = run->sizes->tape;
        weft_graph_binding b = run->binding;
        char *first = malloc((size_t)bytes), *again = malloc((size_t)bytes);
        rig_read(&r, first, b.tape.ref, bytes);
        b.tape = rig_slot(&r, run->sizes->tape);
        b.work.bytes = run->sizes->recompute_work;
        b.carry_out.bytes = 0;
        rig_ok(weft_graph_forward(run->graph, &b, true, &err), &err);
        rig_read(&r, again, b.tape.ref, bytes);
        ck_assert_mem_eq(first, again, (size_t)bytes);
        free(first);
        free(again);
    }
    close_training(&r, &chain);
}

/* Forward without a tape, then recomputation of the tape: the same gradients. */
TESTS(forward_without_a_tape_gives_the_same_carry, VARIANTS) {
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    open_training(&r, &chain, _i);
    rig_chain_forward(&chain);
    for (int32_t s = 0; s < 3; s++) {
        const rig_run *run = &chain.runs[s];
        const int64_t n = run->sizes->carry / weft_dtype_bytes(r.dtype);
        weft_graph_binding b = run->binding;
        float *taped = rig_numbers(&r, b.carry_out.ref, n), *untaped = NULL;
        const weft_slot_ref none = {0};
        b.tape = none;
        b.carry_out = rig_slot(&r, run->sizes->carry);
        b.work = rig_slot(&r, run->sizes->forward_work_untaped);
        rig_ok(weft_graph_forward(run->graph, &b, false, &err), &err);
        untaped = rig_numbers(&r, b.carry_out.ref, n);
        ck_assert_mem_eq(taped, untaped, (size_t)n * 4);
        free(taped);
        free(untaped);
    }
    close_training(&r, &chain);
}

/* Returns all gradients of the language model, concatenated. */
static float *all_gradients(const rig *r, int64_t *n) {
    float *all = NULL;
    *n = 0;
    for (int32_t i = 0; i < r->declared.n_parameters; i++) *n += r->parameters[i].numel;
    all = calloc((size_t)*n, sizeof *all);
    ck_assert_ptr_nonnull(all);
    for (int32_t i = 0, at = 0; i < r->declared.n_parameters; i++) {
        rig_read(r, all + at, r->gradients[i].ref, r->parameters[i].numel * 4);
        at += (int32_t)r->parameters[i].numel;
    }
    return all;
}

TESTS(bits_do_not_depend_on_scratch_or_on_what_ran_before, RIG_DEVICES) {
    rig r;
    rig_chain chain;
    int64_t n = 0;
    float *first = NULL, *again = NULL;
    open_training(&r, &chain, _i);
    rig_chain_forward(&chain);
    rig_chain_backward(&chain);
    first = all_gradients(&r, &n);
    for (int32_t s = 0; s < 4; s++) { /* scratch and tape at other addresses, filled with NaN */
        weft_graph_binding *b = &chain.runs[s].binding;
        const int64_t tape = b->tape.bytes;
        b->work = rig_slot(&r, b->work.bytes + 4096);
        b->work.ref.offset = 1088;
        b->tape = rig_slot(&r, tape + 4096);
        b->tape.ref.offset = 320;
    }
    rig_chain_forward(&chain);
    rig_chain_backward(&chain);
    again = all_gradients(&r, &n);
    ck_assert_mem_eq(first, again, (size_t)n * 4);
    rig_chain_backward(&chain); /* from the same tape */
    free(again);
    again = all_gradients(&r, &n);
    ck_assert_mem_eq(first, again, (size_t)n * 4);
    free(first);
    free(again);
    close_training(&r, &chain);
}

/* `adds` accumulates the finished gradient once: embedding and head, matrices, gains. */
TESTS(a_later_segment_adds_its_finished_gradient_once, RIG_DEVICES) {
    static const rig_model model = {"one segment",    .weights = rig_language_weights,
                                    .carry_width = D, .table_width = HD,
                                    .n_segments = 1,  .forward = rig_language_whole};
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    weft_graph *adding = NULL;
    weft_graph_spec spec = {.mode = WEFT_MODE_TRAIN, .dtype = WEFT_F32, .rows = ROWS, .length = LENGTH};
    int64_t n = 0;
    int32_t n_reads = 0;
    weft_graph_read *reads = NULL;
    float *written = NULL, *added = NULL;
    rig_open(&r, _i, &model, ROWS, LENGTH);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 0, 0);
    rig_chain_forward(&chain);
    rig_chain_backward(&chain);
    written = all_gradients(&r, &n);
    spec.kernels = r.kernels;
    spec.device = r.device;
    rig_ok(weft_graph_record(&adding, &r.declared, 0, &spec, &err), &err);
    reads = weft_graph_reads(adding, &n_reads);
    for (int32_t i = 0; i < n_reads; i++) reads[i].adds = true;
    weft_graph_plan(adding);
    ck_assert_int_eq(weft_graph_size(adding)->tape, chain.runs[0].sizes->tape);
    chain.runs[0].binding.work = rig_slot(&r, weft_graph_size(adding)->backward_work);
    for (int32_t i = 0; i < r.declared.n_parameters; i++) { /* onto the values themselves */
        float *values = rig_floats(&r, r.values[i], r.parameters[i].numel);
        rig_write(&r, r.gradients[i].ref, values, r.parameters[i].numel * 4);
        free(values);
    }
    rig_ok(weft_graph_backward(adding, &chain.runs[0].binding, &err), &err);
    added = all_gradients(&r, &n);
    for (int32_t i = 0, at = 0; i < r.declared.n_parameters; i++) {
        float *values = rig_floats(&r, r.values[i], r.parameters[i].numel);
        for (int64_t k = 0; k < r.parameters[i].numel; k++, at++)
            ck_assert_msg(added[at] == values[k] + written[at], "%s: %.9g is not %.9g + %.9g", r.parameters[i].name,
                          (double)added[at], (double)values[k], (double)written[at]);
        free(values);
    }
    free(written);
    free(added);
    weft_graph_destroy(adding);
    close_training(&r, &chain);
}

TEST(nothing_below_what_is_trained_keeps_a_tape) {
    static const rig_model model = {
        "head only",     .weights = rig_language_weights, .frozen = 0x3ffu, .carry_width = D, .table_width = HD,
        .n_segments = 4, .forward = rig_language_forward};
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    rig_open(&r, RIG_REFERENCE, &model, ROWS, LENGTH);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 0, 3);
    for (int32_t s = 0; s < 3; s++) {
        ck_assert(!chain.runs[s].sizes->has_backward);
        ck_assert_int_eq(chain.runs[s].sizes->tape, 0);
        ck_assert_int_eq(chain.runs[s].sizes->forward_work, chain.runs[s].sizes->forward_work_untaped);
        ck_assert_int_eq(weft_graph_backward(chain.runs[s].graph, &chain.runs[s].binding, &err), WEFT_E_HOST);
        ck_assert_ptr_nonnull(strstr(err.text, "no parameter of it or of an earlier segment is trained"));
    }
    ck_assert(chain.runs[3].sizes->has_backward);
    close_training(&r, &chain);
}

TESTS(evaluation_gives_the_loss_of_training, VARIANTS) {
    rig r;
    rig_chain train, evaluate;
    double trained = 0.0, evaluated = 0.0;
    open_language_model(&r, _i);
    rig_chain_open(&train, &r, WEFT_MODE_TRAIN, 0, 3);
    rig_chain_open(&evaluate, &r, WEFT_MODE_EVALUATE, 0, 3);
    trained = rig_chain_objective(&train);
    evaluated = rig_chain_objective(&evaluate);
    ck_assert(trained > 1.0);
    ck_assert_double_eq_tol(evaluated / trained, 1.0, 1e-6);
    ck_assert(!evaluate.runs[3].sizes->has_backward && evaluate.runs[3].sizes->tape == 0);
    rig_chain_close(&train);
    rig_chain_close(&evaluate);
    rig_close(&r);
}

/* A plugin's operator that fails without a message, and a kernel that fails with one. */
static weft_status silent(const weft_custom_call *call, weft_error *err) {
    return WEFT_E_NUMERIC;
}

FORWARD(failing) {
    static const weft_custom_op op = {
        .struct_size = (uint32_t)sizeof op, .name = "silent", .forward = silent, .backward = silent};
    const weft_value none = {0};
    if (s == 0) return ops->embedding(g, ops->ids(g), r->weights[0]);
    if (s == 1) return ops->custom(g, &op, &carry, 1, D, NULL, 0);
    return none;
}

/* The operator declares whether it can be captured (host/run/graph_capture.c). */
FORWARD(queueing) {
    static const weft_custom_op op = {.struct_size = (uint32_t)sizeof op,
                                      .flags = WEFT_CUSTOM_QUEUES,
                                      .name = "queueing",
                                      .forward = silent,
                                      .backward = silent};
    if (s == 1) return ops->custom(g, &op, &carry, 1, D, NULL, 0);
    return failing(r, s, g, ops, carry);
}

TESTS(an_operator_that_does_more_than_queue_is_known, 2) {
    const rig_model model = {"custom", .weights = rig_language_weights, .carry_width = D, .n_segments = 3,
                             .forward = _i == 0 ? failing : queueing};
    rig r;
    rig_chain chain;
    rig_open(&r, RIG_REFERENCE, &model, ROWS, LENGTH);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 0, 1);
    ck_assert_ptr_null(weft_graph_unqueued(chain.runs[0].graph));
    if (_i == 0) ck_assert_str_eq(weft_graph_unqueued(chain.runs[1].graph), "silent");
    else ck_assert_ptr_null(weft_graph_unqueued(chain.runs[1].graph));
    close_training(&r, &chain);
}

/* A device of an older SDK ends before the slot, one of a newer SDK may leave it empty. */
TEST(a_kernel_that_the_device_lacks_is_named) {
    weft_device_plugin device = {.struct_size = (uint32_t)offsetof(weft_device_plugin, scale)};
    const weft_kernel_run run = {.kernels = &device};
    weft_kernel_args args = {.scale = {.struct_size = sizeof args.scale}};
    for (int i = 0; i < 2; i++) {
        weft_error err = WEFT_ERROR_INIT;
        ck_assert_int_eq(weft_kernel_invoke(&weft_kernel_scale, &run, &args, &err), WEFT_E_UNSUPPORTED);
        ck_assert_says(err, "scale");
        device.struct_size = (uint32_t)sizeof device;
    }
}

TEST(a_failing_call_is_named) {
    static const rig_model model = {"failing", .weights = rig_language_weights, .carry_width = D, .n_segments = 3,
                                    .forward = failing};
    const int32_t ids[ROWS * LENGTH] = {1, 2, 99};
    rig r;
    rig_chain chain;
    weft_error err = WEFT_ERROR_INIT;
    rig_open(&r, RIG_REFERENCE, &model, ROWS, LENGTH);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 0, 1);
    ck_assert_int_eq(weft_graph_forward(chain.runs[1].graph, &chain.runs[1].binding, false, &err), WEFT_E_PLUGIN);
    ck_assert_str_eq(err.text,
                     "segment part.1, custom silent: a plugin failed in its forward without an error message, "
                     "which is a defect of it");
    rig_write(&r, r.ids.ref, ids, sizeof ids);
    ck_assert_int_eq(weft_graph_forward(chain.runs[0].graph, &chain.runs[0].binding, false, &err), WEFT_E_USER);
    ck_assert_says(err, "segment part.0, embedding embed: id 99");
    close_training(&r, &chain);
}

int main(void) {
    return run_tests(tcase_create("slots"));
}
