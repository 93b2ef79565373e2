/* tests/train/test_bounds.c: upper bounds of a step's memory for any sequence length.
 *
 * Planning allocates no memory, and test_memory.c checks that a run uses the planned memory. The sizes here are
 * therefore those of real models. */
#include "suite.h"
#include "train_rig.h"
#include "run/engine.h"

#define MIB ((int64_t)1 << 20)

static const fresh_shape shapes[] = {
    {288, 768, 6, 6, 6, 32000, 8192, false},     /* 24 M parameters */
    {768, 2048, 12, 12, 12, 32000, 8192, false}, /* 134 M */
    {384, 1024, 6, 6, 2, 32000, 8192, false},    /* grouped-query attention */
};
static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16"};
enum { N_SHAPES = 3, N_PRECISIONS = 2, N_CASES = N_SHAPES * N_PRECISIONS };

/* Plans sequences of one length, in one micro-batch, with AdamW and without activation checkpointing. */
static void plan_open(train_rig *rig, const fresh_shape *shape, int32_t rows, int32_t length, const char *precision) {
    const char *overrides[] = {"optimizer.plugin=adamw", "model.start=fresh", "device.threads=2", precision};
    const weft_plan_spec spec = {
        .training = true, .micro_batches = 1, .rows = rows, .n_lengths = 1, .lengths = {length}};
    fresh_model model;
    weft_error err = WEFT_ERROR_INIT;
    fresh_model_make(&model, shape);
    train_rig_open(rig, model.path, NULL, overrides, 4);
    ck_assert_ok(weft_engine_prepare(rig->engine, &spec, &err), err);
    fresh_model_remove(&model);
}

/* ---- sequences of 8,192 positions ---- */

TESTS(a_long_row_of_24_M_trains_in_under_3_GB, N_PRECISIONS) {
    train_rig rig;
    plan_open(&rig, &shapes[0], 1, 8192, precisions[_i]);
    printf("24 M, 1 x 8192, %s: %.0f MB planned\n", precisions[_i], (double)rig.engine->plan.bytes.total * 1e-6);
    ck_assert_int_lt(rig.engine->plan.bytes.total, 3000000000);
    ck_assert_int_gt(rig.engine->plan.bytes.total, 4 * 4 * weft_declared_numel(rig.engine->plan.declared, true));
    train_rig_close(&rig);
}

/* Doubling the length doubles every buffer of every pass over every segment. A T x T matrix in any of them would be
 * four times as large. */
static void check_doubled(const char *segment, const char *what, int64_t longer, int64_t shorter) {
    ck_assert_msg(10 * longer <= 22 * shorter, "%s of %s: %lld bytes for 8,192 places, and %lld for 4,096", what,
                  segment, (long long)longer, (long long)shorter);
}

TESTS(twice_as_long_is_twice_as_much, N_CASES) {
    const fresh_shape *shape = &shapes[_i / N_PRECISIONS];
    const char *precision = precisions[_i % N_PRECISIONS];
    train_rig longer, shorter;
    plan_open(&longer, shape, 1, 8192, precision);
    plan_open(&shorter, shape, 1, 4096, precision);
    for (int32_t s = 0; s < longer.engine->plan.train.job->spec.view.n_segments; s++) {
        const weft_graph_sizes *l = &longer.engine->plan.train.job->spec.segments[s];
        const weft_graph_sizes *h = &shorter.engine->plan.train.job->spec.segments[s];
        const char *name = longer.engine->plan.train.job->spec.view.segments[s].name;
        check_doubled(name, "the tape", l->tape, h->tape);
        check_doubled(name, "the carry", l->carry, h->carry);
        check_doubled(name, "scratch of FORWARD", l->forward_work, h->forward_work);
        check_doubled(name, "scratch of an untaped FORWARD", l->forward_work_untaped, h->forward_work_untaped);
        check_doubled(name, "scratch of BACKWARD", l->backward_work, h->backward_work);
    }
    check_doubled("the step", "the arena", longer.engine->plan.train.program->arena,
                  shorter.engine->plan.train.program->arena);
    train_rig_close(&longer);
    train_rig_close(&shorter);
}

/* ---- the head ---- */

/* Logits of a chunk of rows, 32 MiB at most, and the matmul workspace of a chunk on two threads. */
#define HEAD_MOST (40 * MIB)

static int64_t head_workspace(const weft_engine *engine, int64_t rows, int64_t vocab, bool grad) {
    const weft_head args = {.struct_size = (uint32_t)sizeof args,
                            .rows = rows,
                            .width = engine->plan.declared->carry_width,
                            .vocab = vocab,
                            .dtype = engine->plan.dtype};
    return grad ? engine->kernels->head_loss_grad_workspace(engine->device, &args)
                : engine->kernels->head_loss_workspace(engine->device, &args);
}

TESTS(the_kernel_never_holds_the_logits_of_a_long_batch, N_CASES) {
    static const int64_t rows[] = {1, 300, 8192, 100000, (int64_t)1 << 24};
    static const int64_t vocabularies[] = {2203, 32000, 262144};
    train_rig rig;
    plan_open(&rig, &shapes[_i / N_PRECISIONS], 1, 16, precisions[_i % N_PRECISIONS]);
    for (int i = 0; i < 30; i++) {
        const int64_t r = rows[i % 5], v = vocabularies[i / 5 % 3], bytes = head_workspace(rig.engine, r, v, i < 15);
        ck_assert_msg(bytes <= HEAD_MOST, "%lld rows of %lld logits: a workspace of %lld bytes", (long long)r,
                      (long long)v, (long long)bytes);
        ck_assert_int_ge(bytes, 4 * v); /* at least one row */
    }
    train_rig_close(&rig);
}

/* The plan does not hold them, either: 8 sequences of 8,192 positions have 8 GB of logits. The head's scratch is the
 * kernel's workspace and the gradient of its norm's output. */
TESTS(the_plan_never_holds_the_logits_of_a_long_batch, N_CASES) {
    const fresh_shape *shape = &shapes[_i / N_PRECISIONS];
    train_rig rig;
    const weft_job_spec *job = NULL;
    const weft_graph_sizes *head = NULL;
    int64_t gradient = 0;
    plan_open(&rig, shape, 8, 8192, precisions[_i % N_PRECISIONS]);
    job = &rig.engine->plan.train.job->spec;
    head = &job->segments[job->view.n_segments - 1];
    gradient = (int64_t)8 * 8192 * shape->hidden * weft_dtype_bytes(rig.engine->plan.dtype);
    ck_assert_int_le(head->forward_work, HEAD_MOST);
    ck_assert_int_ge(head->backward_work, gradient);
    ck_assert_int_le(head->backward_work, gradient + HEAD_MOST);
    ck_assert_int_le(head->tape, gradient + 4 * 8 * 8192 + 64); /* of a normed row and its rstd, as many bytes */
    train_rig_close(&rig);
}

/* ---- lifetimes ---- */

/* Returns the bytes per position kept at the end of FORWARD: only the inputs of BACKWARD. */
static int64_t bytes_of_place(const fresh_shape *s, int64_t cell) {
    const int64_t h = s->hidden, kv = h / s->heads * s->kv_heads, m = s->mlp;
    /* sum, normed, q, k, v, output; rstd, log-sum-exp */
    const int64_t attention = cell * (h + h + h + kv + kv + h) + 4 * (1 + s->heads);
    /* sum, normed, gate, up, product; rstd */
    const int64_t mlp = cell * (h + h + m + m + m) + 4;
    /* sum, normed, the sum's gradient; rstd */
    const int64_t head = cell * (h + h + h) + 4;
    return s->layers * (attention + mlp) + head + 4 * WEFT_MICRO_BATCH_PARTS;
}

/* Live memory in BACKWARD of the last two segments: everything kept by FORWARD, and scratch. In the second one the
 * head's tape is freed, and the head's carry gradient has replaced its carry. */
static int64_t fullest_moment(const weft_job_spec *job, int64_t activations) {
    const weft_graph_sizes *head = &job->segments[job->view.n_segments - 1], *mlp = head - 1;
    const int64_t first = activations + head->backward_work, second = activations - head->tape + mlp->backward_work;
    return first > second ? first : second;
}

/* Every buffer is freed after its last reader, and disjoint lifetimes share memory. The arena is therefore the peak of
 * live memory, for a step that allocates much more in total. */
static void check_lifetimes(const fresh_shape *shape, int32_t rows, int32_t length, const char *precision) {
    train_rig rig;
    const weft_program *program = NULL;
    int64_t apart = 0, activations = 0;
    plan_open(&rig, shape, rows, length, precision);
    program = rig.engine->plan.train.program;
    for (int32_t i = 0; i < program->n_slots; i++)
        if (program->slots[i].offset >= 0) apart += program->slots[i].bytes;
    activations = (int64_t)rows * length * bytes_of_place(shape, weft_dtype_bytes(rig.engine->plan.dtype));
    ck_assert_int_eq(program->arena, fullest_moment(&rig.engine->plan.train.job->spec, activations));
    ck_assert_int_lt(3 * program->arena, 2 * apart);
    train_rig_close(&rig);
}

TESTS(buffers_are_shared_by_lifetime, N_CASES) {
    const fresh_shape *shape = &shapes[_i / N_PRECISIONS];
    check_lifetimes(shape, 2, 512, precisions[_i % N_PRECISIONS]);  /* the head's scratch is the largest */
    check_lifetimes(shape, 1, 8192, precisions[_i % N_PRECISIONS]); /* the MLP's is */
}

int main(void) {
    return run_tests(test_case("bounds", 300, NULL, NULL));
}
