/* tests/train/test_bits.c: factors that do and do not change the numbers of a training run.
 *
 * Threads (of the device and of OpenMP), targets of weight zero and padding change no bit. The split of sequences into
 * micro-batches and of documents into sequences selects different kernels and sizes, and so changes the last bits;
 * these results agree within a tolerance. */
#include "golden.h"
#include "instruction_set.h"
#include "suite.h"
#include "train_rig.h"
#include "layout_offset.h"

#include <dlfcn.h>
#include <math.h>
#include <sys/wait.h>

#define ADAMW "optimizer.plugin=adamw", "optimizer.weight_decay=0.01"

static const char *const golden[] = {"llama-tied", "llama-gqa", "llama-bf16", "llama-fp16"};
static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16"};
enum { N_GOLDEN = 4, N_PRECISIONS = 2 };

/* ---- threads ---- */

typedef struct trained {
    float *parameters;
    int64_t n;
    double loss, norm; /* of the last step */
} trained;

static trained train_with(const char *model, row_data *data, int32_t micro_batches, const char *threads,
                          const char *precision, uint64_t steps) {
    const char *overrides[] = {ADAMW, threads, precision,
                               model[0] == '/' ? "model.start=fresh" : "model.start=weights"};
    weft_step_result last = {0};
    trained out = {0};
    train_rig rig;
    train_rig_begin(&rig, model, data, micro_batches, false, overrides, 5);
    instruction_set_check(rig.engine->device_info.isa);
    for (uint64_t s = 1; s <= steps; s++) last = train_rig_step(&rig, s);
    out.parameters = train_rig_parameters(&rig);
    out.n = rig.engine->plan.layout->numel;
    out.loss = last.loss_sum;
    out.norm = last.norm;
    train_rig_close(&rig);
    return out;
}

/* The quick suite and the sanitizers, which are many times slower, see the kernels of a step in fewer steps. */
static uint64_t n_steps(void) {
#if defined(__SANITIZE_ADDRESS__)
    return 5;
#else
    return is_full() ? 20 : 3;
#endif
}

static void same_for_all_threads(const char *model, row_data *data, int32_t micro_batches, const char *precision) {
    static const char *const threads[] = {"device.threads=1", "device.threads=2", "device.threads=3",
                                          "device.threads=8"};
    const trained one = train_with(model, data, micro_batches, threads[0], precision, n_steps());
    ck_assert(isfinite(one.norm) && one.norm > 0.0);
    for (int i = is_full() ? 1 : 2; i < 4; i++) {
        const trained more = train_with(model, data, micro_batches, threads[i], precision, n_steps());
        ck_assert_msg(same_floats(one.parameters, more.parameters, one.n) && one.loss == more.loss &&
                          one.norm == more.norm,
                      "%s, %s: other bits with %s", model, precision, threads[i]);
        free(more.parameters);
    }
    free(one.parameters);
}

START_TEST(threads_change_no_bit_of_a_small_model) {
    const char *model = golden[_i % N_GOLDEN], *precision = precisions[_i / N_GOLDEN];
    row_data data;
    row_data_golden(&data, model);
    same_for_all_threads(model, &data, 1, precision);
    same_for_all_threads(model, &data, data.rows, precision);
    row_data_free(&data);
}
END_TEST

/* Models large enough that the device splits every kernel. */
typedef struct cut_case {
    const char *cuts;
    fresh_shape shape;
    int32_t rows, length, micro_batches;
} cut_case;

static const cut_case cut_cases[] = {
    {"many tiles, sums over many places", {96, 256, 3, 6, 2, 1000, 64, false}, 8, 64, 2},
    /* 90 positions of width 48 are one tile; the MLP's second matmul, and the gradients of its and the head's input,
     * have a long inner dimension */
    {"one tile and 1100 or 2203 inside", {48, 1100, 1, 3, 1, 2203, 64, false}, 4, 45, 2},
    /* weight gradients have a long inner dimension, and the head has more than one chunk */
    {"one tile and 1100 places inside", {48, 128, 1, 3, 1, 521, 288, false}, 4, 275, 1},
    /* fp32 uses panels on AVX2, too: 640 positions, inner dimension 520 or 640 */
    {"many places and 520 inside", {48, 520, 1, 3, 1, 300, 160, false}, 4, 160, 1},
    /* the MLP's second matmul has inner dimension 1040, which is two steps, and 208 columns: one thread splits by
     * columns, several threads differently */
    {"many places, two steps and 208 columns", {208, 1040, 1, 2, 1, 300, 128, false}, 4, 128, 1},
};

START_TEST(threads_change_no_bit_of_a_larger_model) {
    const cut_case *c = &cut_cases[_i / N_PRECISIONS];
    fresh_model model;
    row_data data;
    fresh_model_make(&model, &c->shape);
    row_data_random(&data, c->rows, c->length, c->shape.vocabulary, 11);
    same_for_all_threads(model.path, &data, c->micro_batches, precisions[_i % N_PRECISIONS]);
    row_data_free(&data);
    fresh_model_remove(&model);
}
END_TEST

/* ---- OpenMP's own threads ---- */

/* Results of a training run in a child process. */
typedef struct digest {
    uint64_t parameters; /* FNV-1a of their bytes */
    double loss, norm;
    int team; /* OpenMP's default team size */
} digest;

static uint64_t hash_floats(const float *values, int64_t n) {
    const unsigned char *bytes = (const unsigned char *)values;
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < n * 4; i++) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

/* Queries the OpenMP library that the device uses. */
static int team_of_device(void) {
    const char *folder = getenv("WEFT_PLUGIN_PATH");
    char path[4096];
    void *file = NULL;
    int (*max_threads)(void) = NULL;
    (void)snprintf(path, sizeof path, "%s/weft-device-cpu.so", folder == NULL ? "" : folder);
    file = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    ck_assert_msg(file != NULL, "%s is not loaded", path);
    *(void **)&max_threads = dlsym(file, "omp_get_max_threads");
    ck_assert(max_threads != NULL);
    return max_threads();
}

static void train_and_tell(int to, const char *model, const cut_case *c, row_data *data, const char *threads,
                           const char *precision) {
    const trained t = train_with(model, data, c->micro_batches, threads, precision, 5);
    digest d;
    memset(&d, 0, sizeof d);
    d.parameters = hash_floats(t.parameters, t.n);
    d.loss = t.loss;
    d.norm = t.norm;
    d.team = team_of_device();
    if (write(to, &d, sizeof d) != (ssize_t)sizeof d) _exit(2);
    _exit(0);
}

/* OpenMP reads its variables when it is loaded, so each value needs a new process. */
static digest train_under(const char *omp_threads, const char *model, const cut_case *c, row_data *data,
                          const char *threads, const char *precision) {
    int ends[2], status = 0;
    pid_t child = -1;
    digest d;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)setenv("OMP_NUM_THREADS", omp_threads, 1);
        train_and_tell(ends[1], model, c, data, threads, precision);
    }
    (void)close(ends[1]);
    ck_assert_int_eq(read(ends[0], &d, sizeof d), (ssize_t)sizeof d);
    (void)close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(d.team, atoi(omp_threads));
    return d;
}

/* The default threads of OpenMP and of the matrix library change no bit, either. */
START_TEST(threads_of_openmp_change_no_bit) {
    const cut_case *c = &cut_cases[_i / N_PRECISIONS];
    const char *precision = precisions[_i % N_PRECISIONS];
    static const char *const threads[] = {"device.threads=1", "device.threads=2"};
    fresh_model model;
    row_data data;
    digest first, other;
    fresh_model_make(&model, &c->shape);
    row_data_random(&data, c->rows, c->length, c->shape.vocabulary, 11);
    first = train_under("1", model.path, c, &data, threads[0], precision);
    for (int i = 0; i < 2; i++) {
        other = train_under("8", model.path, c, &data, threads[i], precision);
        ck_assert_msg(other.parameters == first.parameters && other.loss == first.loss && other.norm == first.norm,
                      "%s, %s, %s: other bits with OMP_NUM_THREADS=8", c->cuts, precision, threads[i]);
    }
    row_data_free(&data);
    fresh_model_remove(&model);
}
END_TEST

/* ---- wrap policies ---- */

/* Returns the parameters in order of declaration; their offsets depend on the units. */
static float *in_declared_order(const train_rig *rig) {
    const weft_engine *engine = rig->engine;
    float *all = calloc((size_t)weft_declared_numel(engine->plan.declared, false), sizeof *all), *flat = NULL;
    int64_t at = 0;
    ck_assert_ptr_nonnull(all);
    flat = train_rig_parameters(rig);
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        memcpy(all + at, flat + layout_offset(engine->plan.layout, p) / 4, (size_t)p->numel * sizeof *all);
        at += p->numel;
    }
    free(flat);
    return all;
}

enum { WRAPPED_MAX = 64 }; /* parameters */

/* The caller frees out.parameters. */
static trained train_wrapped(const char *model, row_data *data, const char *const wrap[3],
                             int32_t unit_of[WRAPPED_MAX]) {
    const char *overrides[] = {ADAMW, wrap[0], wrap[1], wrap[2]};
    weft_step_result last = {0};
    trained out = {0};
    train_rig rig;
    train_rig_begin(&rig, model, data, data->rows, false, overrides, wrap[2] == NULL ? 4 : 5);
    for (uint64_t s = 1; s <= 10; s++) last = train_rig_step(&rig, s);
    out.parameters = in_declared_order(&rig);
    out.n = weft_declared_numel(rig.engine->plan.declared, false);
    out.loss = last.loss_sum;
    out.norm = last.norm;
    ck_assert_int_le(rig.engine->plan.declared->n_parameters, WRAPPED_MAX);
    for (int32_t i = 0; i < rig.engine->plan.declared->n_parameters; i++)
        unit_of[i] = rig.engine->plan.declared->parameters[i].unit;
    train_rig_close(&rig);
    return out;
}

static const struct {
    const char *model, *trainable;
} wrapped[] = {{"llama-tied", "train.trainable=all"}, {"llama-gqa", "train.trainable=*norm.weight,last:1"}};

TESTS(the_wrap_policy_changes_no_bit, LENGTH(wrapped)) {
    const char *const policies[][2] = {{"policy.plugin=block", NULL},
                                       {"policy.plugin=whole", NULL},
                                       {"policy.plugin=class", "policy.classes=LlamaAttention,mlp"},
                                       {"policy.plugin=class", "policy.classes=linear,embed"},
                                       {"policy.plugin=size", "policy.size=4k"},
                                       {"policy.plugin=size", "policy.size=1"}};
    row_data data;
    trained first = {0};
    int32_t units[6][WRAPPED_MAX] = {{0}};
    row_data_golden(&data, wrapped[_i].model);
    for (int i = 0; i < 6; i++) {
        const char *const wrap[] = {wrapped[_i].trainable, policies[i][0], policies[i][1]};
        const trained more = train_wrapped(wrapped[_i].model, &data, wrap, units[i]);
        if (i == 0) first = more;
        for (int before = 0; before < i; before++) ck_assert_mem_ne(units[i], units[before], sizeof units[i]);
        ck_assert_msg(same_floats(first.parameters, more.parameters, first.n) && first.loss == more.loss &&
                          first.norm == more.norm,
                      "%s: other bits with %s %s", wrapped[_i].model, wrap[1], wrap[2] == NULL ? "" : wrap[2]);
        if (i > 0) free(more.parameters);
    }
    free(first.parameters);
    row_data_free(&data);
}

/* ---- micro-batches and sequences ---- */

/* Returns loss, COUNT and gradients of one step over all sequences in this number of micro-batches. The engine stays
 * open. */
static weft_step_result one_step(train_rig *rig, const char *model, row_data *data, int32_t micro_batches) {
    const char *overrides[] = {ADAMW};
    train_rig_begin(rig, model, data, micro_batches, true, overrides, 2);
    return train_rig_step(rig, 1);
}

static void gradients_agree(const train_rig *a, const train_rig *b) {
    for (int32_t i = 0; i < a->engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &a->engine->plan.declared->parameters[i];
        const int64_t at = layout_offset(a->engine->plan.layout, p);
        float *x = read_floats(a->engine, weft_ref_at(a->engine->gradients.ref, at), p->numel);
        float *y = read_floats(b->engine, weft_ref_at(b->engine->gradients.ref, at), p->numel);
        ck_assert_msg(relative_error(x, y, p->numel) < 1e-5, "the gradient of %s differs by %.3g", p->name,
                      relative_error(x, y, p->numel));
        free(x);
        free(y);
    }
}

static void results_agree(const weft_step_result *a, const weft_step_result *b) {
    ck_assert_int_eq(a->n_targets, b->n_targets);
    ck_assert_double_lt(fabs(a->loss_sum / b->loss_sum - 1.0), 1e-6);
    ck_assert_double_lt(fabs(a->norm / b->norm - 1.0), 1e-5);
}

TESTS(micro_batches_of_one_row_agree_with_one_micro_batch_of_all, N_GOLDEN) {
    row_data data;
    train_rig whole, parts;
    weft_step_result a, b;
    row_data_golden(&data, golden[_i]);
    a = one_step(&whole, golden[_i], &data, 1);
    b = one_step(&parts, golden[_i], &data, data.rows);
    results_agree(&a, &b);
    gradients_agree(&whole, &parts);
    train_rig_close(&whole);
    train_rig_close(&parts);
    row_data_free(&data);
}

/* ---- documents in sequences ---- */

enum { DOCUMENTS = 9, VOCABULARY = 131, PLACES = 40 };
static const int32_t lengths[DOCUMENTS] = {41, 2, 17, 25, 9, 33, 3, 20, 12}; /* in ids */

static void document(int32_t *ids, int32_t d) {
    for (int32_t i = 0; i < lengths[d]; i++) ids[i] = (d * 41 + i * i * 7 + i * 3) % VOCABULARY;
}

/* Packs documents in another order, each at its first fit. */
static void pack(row_data *packed) {
    int32_t ids[PLACES + 1], rows = 0;
    row_data_make(packed, DOCUMENTS, PLACES);
    for (int32_t k = 0; k < DOCUMENTS; k++) {
        const int32_t d = (k * 4 + 2) % DOCUMENTS;
        int32_t row = 0;
        while (packed->used[row] + lengths[d] - 1 > PLACES) row++;
        document(ids, d);
        row_data_add(packed, row, ids, NULL, lengths[d]);
        if (row >= rows) rows = row + 1;
    }
    ck_assert_int_lt(rows, DOCUMENTS - 2);
    packed->rows = rows;
}

TEST(packed_documents_agree_with_separate_ones) {
    int32_t ids[PLACES + 1];
    row_data packed, separate;
    train_rig together, alone;
    weft_step_result a, b;
    pack(&packed);
    row_data_make(&separate, DOCUMENTS, PLACES);
    for (int32_t d = 0; d < DOCUMENTS; d++) {
        document(ids, d);
        row_data_add(&separate, d, ids, NULL, lengths[d]);
    }
    a = one_step(&together, "llama-gqa", &packed, 1);
    b = one_step(&alone, "llama-gqa", &separate, 1);
    ck_assert_int_eq(a.n_targets, 162 - DOCUMENTS); /* n - 1 per document */
    results_agree(&a, &b);
    gradients_agree(&together, &alone);
    ck_assert_double_lt(fabs(train_rig_evaluate(&together) / train_rig_evaluate(&alone) - 1.0), 1e-6);
    train_rig_close(&together);
    train_rig_close(&alone);
    row_data_free(&packed);
    row_data_free(&separate);
}

/* ---- zero weights ---- */

/* Changes targets with weight zero, and ids followed only by padding. Returns the number of changes. */
static int32_t change_what_weighs_nothing(row_data *data, int32_t vocabulary) {
    int32_t changed = 0;
    for (int32_t r = 0; r < data->rows; r++) {
        bool padding = true; /* from the sequence's end on */
        for (int32_t t = data->length - 1; t >= 0; t--) {
            const int64_t at = (int64_t)r * data->length + t;
            if (data->weights[at] != 0.0f) padding = false;
            else data->targets[at] = (data->targets[at] + 5 + t) % vocabulary;
            if (padding && data->starts[at] == t) padding = false; /* its first position has no other before it */
            if (padding) data->ids[at] = (data->ids[at] + 3 + t) % vocabulary;
            changed += data->weights[at] == 0.0f;
        }
    }
    return changed;
}

TESTS(targets_of_weight_zero_and_padding_change_no_bit, N_GOLDEN *N_PRECISIONS) {
    const int32_t vocabulary[] = {97, 131, 89, 61};
    const char *model = golden[_i % N_GOLDEN], *precision = precisions[_i / N_GOLDEN];
    row_data data;
    trained before, after;
    row_data_golden(&data, model);
    if (_i % N_GOLDEN == 0) /* the one without padding or masks */
        for (int32_t t = 3; t < data.length; t += 4) data.weights[data.length + t] = 0.0f;
    before = train_with(model, &data, 1, "device.threads=2", precision, 3);
    ck_assert_int_gt(change_what_weighs_nothing(&data, vocabulary[_i % N_GOLDEN]), 0);
    after = train_with(model, &data, 1, "device.threads=2", precision, 3);
    ck_assert(before.loss == after.loss && before.norm == after.norm);
    ck_assert(same_floats(before.parameters, after.parameters, before.n));
    free(before.parameters);
    free(after.parameters);
    row_data_free(&data);
}

/* A weight multiplies only its target's loss; COUNT does not change. */
TEST(weights_scale_the_loss_and_not_the_count) {
    row_data data;
    train_rig once, twice;
    weft_step_result a, b;
    row_data_golden(&data, "llama-gqa");
    a = one_step(&once, "llama-gqa", &data, 1);
    for (int64_t i = 0; i < (int64_t)data.rows * data.length; i++) data.weights[i] *= 2.0f;
    b = one_step(&twice, "llama-gqa", &data, 1);
    ck_assert_int_eq(a.n_targets, b.n_targets);
    ck_assert_double_lt(fabs(b.loss_sum / a.loss_sum / 2.0 - 1.0), 1e-6);
    ck_assert_double_lt(fabs(b.norm / a.norm / 2.0 - 1.0), 1e-5);
    train_rig_close(&once);
    train_rig_close(&twice);
    row_data_free(&data);
}

/* ---- data ---- */

TESTS(each_micro_batch_is_fetched_once_a_step, 2) {
    const char *overrides[] = {ADAMW,
                               _i == 0 ? "train.activation_checkpointing=no" : "train.activation_checkpointing=yes"};
    train_rig rig;
    train_rig_golden(&rig, "llama-tied", 3, true, overrides, 3);
    ck_assert_int_eq(rig.rows.micro_batches, 0);
    train_rig_steps(&rig, 4);
    ck_assert_int_eq(rig.rows.micro_batches, 12);
    ck_assert_int_eq(rig.rows.shapes, 12);
    (void)train_rig_evaluate(&rig);
    ck_assert_int_eq(rig.rows.micro_batches, 13);
    train_rig_close(&rig);
}

int main(void) {
    Suite *suite = NULL;
    TCase *tests = NULL, *threads = NULL;
    if (!instruction_set_is_here(getenv("WEFT_TEST_ISA"))) return INSTRUCTION_SET_SKIPPED;
    suite = suite_create("bits");
    tests = test_case("bits", 300, NULL, NULL);
    threads = test_case("threads", 300, NULL, NULL);
    tcase_add_loop_test(threads, threads_change_no_bit_of_a_small_model, 0, N_GOLDEN * N_PRECISIONS);
    tcase_add_loop_test(threads, threads_change_no_bit_of_a_larger_model, 0, LENGTH(cut_cases) * N_PRECISIONS);
    tcase_add_loop_test(threads, threads_of_openmp_change_no_bit, 0, is_full() ? LENGTH(cut_cases) * N_PRECISIONS : 1);
    add_registered_tests(tests);
    suite_add_tcase(suite, threads);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
