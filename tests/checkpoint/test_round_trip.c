/* Saved state is restored bit by bit, in every dtype, with and without frozen parameters; and the directory is a
 * model. */
#include "rig.h"

#include "base/safetensors.h"
#include "model/convert.h"
#include "model/weights.h"
#include "layout_offset.h"

/* Returns the number of tensors in a file of state/; -1: no such file. */
static int32_t tensors_in(uint64_t step, const char *name) {
    weft_safetensors *file = NULL;
    weft_error err = WEFT_ERROR_INIT;
    int32_t n = 0;
    if (!rig_exists(rig_file(step, name))) return -1;
    ck_assert_ok(weft_safetensors_open(&file, rig_file(step, name), &err), err);
    n = file->n_tensors;
    weft_safetensors_close(file);
    return n;
}

/* Writes the files of base/ in a dtype, from a fresh start. */
static void make_base(const char *dtype) {
    char override[64], from[300], to[300];
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    (void)snprintf(override, sizeof override, "checkpoint.dtype=%s", dtype);
    rig_start(&run, override, NULL);
    ck_assert_ok(rig_try_save_model(&run, scratch_path("made"), &run.session->text, &err), err);
    rig_close(&run);
    (void)snprintf(from, sizeof from, "%s/made", scratch);
    (void)snprintf(to, sizeof to, "%s/base", scratch);
    remove_tree(to);
    ck_assert_int_eq(rename(from, to), 0);
}

/* base, dtype, trainable -> tensors of master.safetensors (-1: no file) and of exp_avg.safetensors */
static const struct {
    const char *base, *dtype, *trainable;
    int32_t masters, states;
} cases[] = {
    {NULL, "fp32", "all", -1, 20},     {NULL, "auto", "all", -1, 20}, /* a fresh start is saved as fp32 */
    {NULL, "bf16", "all", 20, 20},     {NULL, "fp16", "all", 20, 20},
    {NULL, "bf16", "last:1", 20, 9}, /* frozen fp32 numbers are lossy in bf16, so their masters are saved, too */
    {NULL, "fp32", "last:1", -1, 9},   {"bf16", "auto", "all", 20, 20},
    {"bf16", "auto", "last:1", 9, 9}, /* frozen numbers come from bf16 files and need no masters */
    {"bf16", "fp32", "last:1", -1, 9}, {"bf16", "fp16", "last:1", 20, 9}, /* fp16 has fewer exponents than bf16 */
    {"fp16", "auto", "head", -2, 1}, /* the tied embedding, which is the head: one master */
};

/* For any compute dtype: the checkpoint has the masters and the state. */
TESTS(a_resumed_run_has_the_bits_of_one_that_never_stopped, 2 * LENGTH(cases)) {
    const char *precision = _i < (int)LENGTH(cases) ? "train.precision=fp32" : "train.precision=bf16";
    const int c = _i % (int)LENGTH(cases);
    char dtype[64], trainable[64], start[64], third[65], sixth[65];
    rig run;
    if (cases[c].base != NULL) make_base(cases[c].base);
    (void)snprintf(dtype, sizeof dtype, "checkpoint.dtype=%s", cases[c].dtype);
    (void)snprintf(trainable, sizeof trainable, "train.trainable=%s", cases[c].trainable);
    (void)snprintf(start, sizeof start, "model.start=%s", cases[c].base == NULL ? "fresh" : "weights");

    rig_start(&run, dtype, trainable, start, precision, NULL);
    rig_train(&run, 3);
    rig_save(&run);
    strcpy(third, rig_hash(&run));
    rig_train(&run, 6);
    strcpy(sixth, rig_hash(&run));
    ck_assert_str_ne(third, sixth);
    rig_close(&run);
    ck_assert_int_eq(tensors_in(3, "state/master.safetensors"), cases[c].masters == -2 ? 1 : cases[c].masters);
    ck_assert_int_eq(tensors_in(3, "state/exp_avg.safetensors"), cases[c].states);
    ck_assert_int_eq(tensors_in(3, "state/exp_avg_sq.safetensors"), cases[c].states);

    rig_reopen(&run, dtype, trainable, start, precision, NULL);
    ck_assert_uint_eq(run.state.step, 3);
    ck_assert_str_eq(rig_hash(&run), third);
    rig_train(&run, 6);
    ck_assert_str_eq(rig_hash(&run), sixth);
    rig_close(&run);
}

/* A run with steps that were not all updates: the optimizer's counter is restored, and differs from the step. */
TEST(the_number_of_updates_comes_back) {
    char sixth[65];
    rig run;
    rig_start(&run, NULL);
    run.session->engine->updates = 90; /* as left by another run */
    rig_load(&run);
    ck_assert_uint_eq(run.session->engine->updates, 0);
    rig_train(&run, 3);
    ck_assert_uint_eq(run.session->engine->updates, 3);
    run.session->engine->updates = 1; /* two steps had no target */
    rig_save(&run);
    rig_train(&run, 6);
    strcpy(sixth, rig_hash(&run));
    rig_close(&run);

    rig_reopen(&run, NULL);
    ck_assert_uint_eq(run.session->engine->updates, 1);
    rig_train(&run, 6);
    ck_assert_str_eq(rig_hash(&run), sixth);
    run.state.step = 3;
    rig_resume(&run);
    run.session->engine->updates = 3;
    rig_train(&run, 6);
    ck_assert_str_ne(rig_hash(&run), sixth); /* the counter has an effect */
    rig_close(&run);
}

TEST(a_second_resume_saves_the_same_type) {
    rig run;
    make_base("bf16");
    rig_start(&run, "model.start=weights", NULL);
    rig_train(&run, 2);
    rig_save(&run);
    rig_close(&run);
    rig_reopen(&run, "model.start=weights", NULL);
    run.state.step = 3; /* the same numbers under another name */
    rig_save(&run);
    rig_close(&run);
    check_same_file(rig_file(2, "model.safetensors"), rig_file(3, "model.safetensors"));
}

TEST(counters_and_losses_come_back) {
    weft_checkpoint_state got = {0};
    char path[4096];
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, NULL);
    run.state = (weft_checkpoint_state){
        .step = 11, .tokens = UINT64_C(123456789012345), .eval_loss = NAN, .best_loss = 0.1 + 0.2, .best_step = 9};
    rig_save(&run);
    ck_assert_ok(weft_checkpoint_newest(path, &got, rig_directory(), NULL, &fixture_host, &err), err);
    ck_assert_uint_eq(got.step, 11);
    ck_assert_uint_eq(got.tokens, UINT64_C(123456789012345));
    ck_assert(isnan(got.eval_loss));
    ck_assert(got.best_loss == 0.1 + 0.2);
    ck_assert_uint_eq(got.best_step, 9);
    ck_assert_str_eq(strrchr(path, '/'), "/step-11");
    rig_close(&run);
}

/* Returns the fp32 parameters of an engine, concatenated. */
static float *parameters_of(const rig *run, int64_t *n) {
    const weft_engine *engine = run->session->engine;
    float *out = calloc((size_t)weft_declared_numel(engine->plan.declared, false), sizeof *out);
    weft_error err = WEFT_ERROR_INIT;
    *n = 0;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        ck_assert_ok(
            engine->kernels->read(engine->device, NULL, out + *n, engine->parameter_refs[i], 4 * p->numel, &err), err);
        *n += p->numel;
    }
    return out;
}

/* The checkpoint's directory as [model] path, including the tokenizer. */
TESTS(a_checkpoint_is_a_model, 3) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    char dtype[64], path[4200];
    int64_t n = 0, m = 0;
    float *saved = NULL, *loaded = NULL;
    uint16_t narrow = 0;
    rig run;
    (void)snprintf(dtype, sizeof dtype, "checkpoint.dtype=%s", weft_dtype_name(dtypes[_i]));
    rig_start(&run, dtype, NULL);
    rig_train(&run, 2);
    rig_save(&run);
    saved = parameters_of(&run, &n);
    rig_close(&run);
    (void)snprintf(path, sizeof path, "model.path=%s", rig_file(2, ""));
    rig_start(&run, path, "model.start=weights", NULL);
    ck_assert_int_eq(run.session->engine->stored_dtype, dtypes[_i]);
    loaded = parameters_of(&run, &m);
    rig_close(&run);
    ck_assert_int_eq(n, m);
    for (int64_t i = 0; i < n && dtypes[_i] != WEFT_F32; i++) {
        ck_assert(weft_convert(&narrow, dtypes[_i], &saved[i], WEFT_F32, 1));
        ck_assert(weft_convert(&saved[i], WEFT_F32, &narrow, dtypes[_i], 1));
    }
    ck_assert_int_eq(memcmp(saved, loaded, (size_t)n * sizeof *saved), 0);
    free(saved);
    free(loaded);
}

TEST(the_model_directory_is_for_people) {
    static const char *const there[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    static const char *const not_there[] = {"state", "manifest.json", "model-old.safetensors"};
    char name[64];
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, NULL);
    for (int again = 0; again < 2; again++) {
        ck_assert_ok(rig_try_save_model(&run, scratch_path("out/model"), &run.session->text, &err), err);
        for (int i = 0; i < 4; i++) {
            (void)snprintf(name, sizeof name, "out/model/%s", there[i]);
            ck_assert_msg(rig_exists(scratch_path(name)), "%s", name);
        }
        for (int i = 0; i < 3; i++) {
            (void)snprintf(name, sizeof name, "out/model/%s", not_there[i]);
            ck_assert_msg(!rig_exists(scratch_path(name)), "%s", name);
        }
        ck_assert(!rig_exists(scratch_path("out/.model.tmp")));
        ck_assert(!rig_exists(scratch_path("out/.model.old")));
        if (again > 0) ck_assert(rig_exists(scratch_path("out/model/onnx/README.md")));
        write_bytes(scratch_path("out/model/model-old.safetensors"), "x", 1); /* of a replaced model */
        (void)mkdir(scratch_path("out/model/onnx"), 0777);                    /* no run wrote it, so it remains */
        write_bytes(scratch_path("out/model/onnx/README.md"), "x", 1);
    }
    rig_close(&run);
}

/* A device with memory invisible to the host. */
TEST(without_a_host_view_the_same_files_come_out) {
    static const char *const files[] = {"model.safetensors", "state/exp_avg.safetensors", "state/master.safetensors",
                                        "manifest.json"};
    weft_device_plugin blind = {0};
    char hash[65], *seen[4];
    size_t sizes[4], n = 0;
    rig run;
    rig_start(&run, "checkpoint.dtype=bf16", NULL);
    rig_train(&run, 2);
    rig_save(&run);
    strcpy(hash, rig_hash(&run));
    for (int i = 0; i < 4; i++) seen[i] = read_bytes(rig_file(2, files[i]), &sizes[i]);
    blind = *run.session->engine->kernels;
    ck_assert(blind.host_view != NULL);
    blind.host_view = NULL;
    run.session->engine->kernels = &blind;
    rig_save(&run);
    ck_assert_str_eq(rig_hash(&run), hash);
    for (int i = 0; i < 4; i++) {
        char *now = read_bytes(rig_file(2, files[i]), &n);
        ck_assert_uint_eq(n, sizes[i]);
        ck_assert_msg(memcmp(now, seen[i], n) == 0, "%s", files[i]);
        free(now);
        free(seen[i]);
    }
    rig_train(&run, 3);
    rig_resume(&run);
    ck_assert_str_eq(rig_hash(&run), hash);
    rig_close(&run);
}

/* Increments a word of device memory. */
static void change(rig *run, weft_ref ref) {
    uint32_t word = 0;
    weft_error err = WEFT_ERROR_INIT;
    const weft_engine *engine = run->session->engine;
    ck_assert_ok(engine->kernels->read(engine->device, NULL, &word, ref, 4, &err), err);
    word ^= 1;
    ck_assert_ok(engine->kernels->write(engine->device, NULL, ref, &word, 4, &err), err);
}

TEST(the_hash_sees_every_part_and_no_padding) {
    char before[65];
    const weft_engine *engine = NULL;
    const weft_parameter *last = NULL;
    rig run;
    rig_start(&run, "train.trainable=last:1", NULL);
    rig_train(&run, 1);
    engine = run.session->engine;
    strcpy(before, rig_hash(&run));
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        const weft_ref end = weft_ref_at(engine->parameter_refs[i], 4 * (p->numel - 1));
        change(&run, end);
        ck_assert_str_ne(rig_hash(&run), before);
        change(&run, end);
        if (p->trainable && p->numel % engine->plan.layout->grid != 0) last = p;
    }
    for (int64_t i = 0; i < engine->plan.n_states; i++) {
        change(&run, engine->state[i].ref);
        ck_assert_str_ne(rig_hash(&run), before);
        change(&run, engine->state[i].ref);
    }
    ck_assert_str_eq(rig_hash(&run), before);
    ck_assert_ptr_nonnull(last);
    change(&run, weft_ref_at(engine->parameters.ref, layout_offset(engine->plan.layout, last) + 4 * last->numel));
    ck_assert_str_eq(rig_hash(&run), before);
    rig_close(&run);
}

/* Returns the process's peak memory in KiB since the last reset. */
static long peak(bool reset) {
    char line[256];
    long kib = -1;
    FILE *file = reset ? fopen("/proc/self/clear_refs", "w") : fopen("/proc/self/status", "r");
    ck_assert_ptr_nonnull(file);
    if (reset) (void)fputs("5\n", file);
    while (!reset && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    (void)fclose(file);
    return kib;
}

TEST(saving_takes_a_few_mebibytes_whatever_the_size) {
    long before = 0, grown = 0;
    int64_t bytes = 0;
    rig run;
    rig_write_config(scratch_path("base"), 768, 2048);
    rig_start(&run, "checkpoint.dtype=bf16", NULL);
    bytes = 4 * weft_declared_numel(run.session->engine->plan.declared, false);
    ck_assert_int_gt(bytes, 36 << 20);
    (void)rig_hash(&run);
    peak(true);
    before = peak(false);
    rig_save(&run);
    grown = peak(false) - before;
#if !defined(__SANITIZE_ADDRESS__) /* which retains freed memory */
    ck_assert_msg(grown < 12 << 10, "saving %lld bytes took %ld KiB", (long long)bytes, grown);
#endif
    ck_assert_int_ge(grown, 0);
    rig_close(&run);
}

int main(void) {
    return run_tests(test_case("round trip", 300, rig_make, scratch_remove));
}
