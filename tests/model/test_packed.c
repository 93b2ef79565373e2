/* Packed parameters between files and the region: numbers are packed when read or drawn, packed bytes are copied
 * unchanged, and files name the packing. */
#include <weft/blocks.h>

#include "bench.h"
#include "model/convert.h"
#include "suite.h"

enum { BLOCK = 64, BYTES = 68 };

static void setup(void) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2, "
        "\"vocab_size\": 97, \"num_attention_heads\": 4, \"torch_dtype\": \"float32\"}\n";
    scratch_make();
    write_bytes(scratch_path("config.json"), config, sizeof config - 1);
}

static bool is_linear_of_a_block(const weft_parameter *p) {
    return p->role == WEFT_WEIGHT_LINEAR && strstr(p->name, "layers") != NULL;
}

/* LLaMA with packed linears in its blocks, as if declared by its plugin. */
static bench bench_packed(bool visible) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *declared = llama_declared(scratch_path("config.json"));
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (is_linear_of_a_block(&declared->parameters[p])) declared->parameters[p].dtype = WEFT_I8X64;
    ck_assert_ok(weft_declared_select(declared, "*norm.weight", &err), err);
    return bench_of(declared, visible);
}

#define PACKED(name, visible) bench name##_bench = bench_packed(visible), *name = bench_bind(&name##_bench)

static const char *directory_of(const char *name, char path[512]) {
    (void)snprintf(path, 512, "%s/%s", scratch, name);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    return path;
}

/* Each parameter of `b` equals that of `plain`, packed or unpacked. */
static void check_packed(const bench *b, const bench *plain) {
    for (int32_t i = 0; i < b->declared->n_parameters; i++) {
        const weft_parameter *p = &b->declared->parameters[i];
        const float *from = values(plain, p->name);
        const char *to = (const char *)values(b, p->name);
        weft_i8x64 block;
        if (!is_linear_of_a_block(p)) {
            ck_assert_msg(memcmp(to, from, (size_t)p->numel * sizeof *from) == 0, "%s", p->name);
            continue;
        }
        for (int64_t k = 0; k < p->numel / BLOCK; k++) {
            weft_i8x64_pack(&block, from + k * BLOCK);
            ck_assert_msg(memcmp(to + k * BYTES, &block, BYTES) == 0, "block %lld of %s", (long long)k, p->name);
        }
    }
}

/* In fp32, and in bf16, whose numbers are packed without conversion. */
TESTS(numbers_are_packed_as_they_are_read, 4) {
    const int32_t dtype = _i % 2 == 0 ? WEFT_F32 : WEFT_BF16;
    weft_error err = WEFT_ERROR_INIT;
    char path[512];
    BENCH(plain, scratch_path("config.json"), "all", true);
    PACKED(b, _i / 2 == 0);
    ck_assert_ok(init(plain, 5, &err), err);
    ck_assert_ok(save(plain, directory_of("plain", path), dtype, WEFT_SHARD_BYTES, &err), err);
    ck_assert_ok(load(plain, path, &err), err);
    ck_assert_ok(load(b, path, &err), err);
    check_packed(b, plain);
    bench_free(plain);
    bench_free(b);
}

TESTS(a_fresh_start_packs_what_is_drawn, 2) {
    weft_error err = WEFT_ERROR_INIT;
    BENCH(plain, scratch_path("config.json"), "all", true);
    PACKED(b, _i == 0);
    ck_assert_ok(init(plain, 9, &err), err);
    ck_assert_ok(init(b, 9, &err), err);
    check_packed(b, plain);
    bench_free(plain);
    bench_free(b);
}

/* For any other dtype of the file, also with several shards; a rank's cells have the same hash as in a reader's
 * chunks. */
TESTS(bytes_are_given_and_taken_as_they_are, 4) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16};
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    int packed = 0;
    char path[512];
    PACKED(a, true);
    PACKED(b, true);
    ck_assert_ok(init(a, 3, &err), err);
    ck_assert_ok(save(a, directory_of("saved", path), dtypes[_i % 2], _i < 2 ? WEFT_SHARD_BYTES : 40000, &err), err);
    ck_assert_ok(weft_safetensors_open_directory(&files, path, &err), err);
    ck_assert(_i < 2 ? files->n_files == 1 : files->n_files > 2);
    for (int32_t i = 0; i < files->n_tensors; i++) {
        const weft_tensor *t = &files->tensors[i];
        const weft_parameter *p = &a->declared->parameters[weft_declared_find(a->declared, t->name)];
        ck_assert_int_eq(weft_packed_cell(t, 256),
                         is_linear_of_a_block(p) ? 4 * BYTES : 256 * weft_dtype_bytes(t->dtype));
        if (!is_linear_of_a_block(p)) continue;
        packed++;
        ck_assert(t->dtype == WEFT_U8 && t->rank == 3 && t->dims[0] == p->dims[0]);
        ck_assert(t->dims[1] == p->dims[1] / BLOCK && t->dims[2] == BYTES);
        ck_assert_int_eq(memcmp(t->data, values(a, p->name), (size_t)t->bytes), 0);
    }
    ck_assert_int_eq(packed, 14);
    weft_safetensors_close(files);
    ck_assert_ok(load(b, path, &err), err);
    if (dtypes[_i % 2] == WEFT_F32) ck_assert(same_region(a, b));
    bench_free(a);
    bench_free(b);
}

/* Masters: packed parameters are in the model's own files, bit by bit. */
TEST(masters_leave_out_what_is_packed) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    PACKED(b, true);
    const weft_region region = whole(b);
    ck_assert_ok(init(b, 3, &err), err);
    ck_assert_ok(weft_weights_save_file(&region, scratch_path("master.safetensors"), false, NULL, &err), err);
    ck_assert_ok(weft_safetensors_open(&file, scratch_path("master.safetensors"), &err), err);
    ck_assert_int_eq(file->n_tensors, b->declared->n_parameters - 14);
    for (int32_t i = 0; i < file->n_tensors; i++) ck_assert_int_eq(file->tensors[i].dtype, WEFT_F32);
    weft_safetensors_close(file);
    bench_free(b);
}

static const struct {
    const char *name;
    int64_t dims[3];
    int32_t rank;
    const char *text;
} misfits[] = {
    {"model.layers.0.self_attn.q_proj.weight", {64, 1, 67}, 3, "q_proj.weight is (64, 1, 67), not (64, 1, 68)"},
    {"model.layers.0.self_attn.q_proj.weight", {64, 68}, 2, "q_proj.weight is (64, 68), not (64, 1, 68)"},
    {"model.layers.1.mlp.down_proj.weight", {64, 1, 68}, 3, "down_proj.weight is (64, 1, 68), not (64, 2, 68)"},
    {"lm_head.weight", {97, 1, 68}, 3, "lm_head.weight is (97, 1, 68), not (97, 64)"},
    {"lm_head.weight", {97, 64}, 2, "lm_head.weight is U8"},
};

/* Writes a model file with one packed tensor in another shape. */
static void write_misfit(const bench *b, int i) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_spec specs[64];
    weft_tensor_writer *writer = NULL;
    for (int32_t p = 0; p < b->declared->n_parameters; p++) {
        specs[p] = weft_packed_spec(&b->declared->parameters[p], WEFT_F32);
        if (strcmp(specs[p].name, misfits[i].name) != 0) continue;
        specs[p].dtype = WEFT_U8;
        specs[p].rank = misfits[i].rank;
        memcpy(specs[p].dims, misfits[i].dims, sizeof misfits[i].dims);
    }
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("model.safetensors"), specs, b->declared->n_parameters,
                                         true, &err),
                 err);
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
}

TESTS(bytes_of_another_shape_are_refused, LENGTH(misfits)) {
    weft_error err = WEFT_ERROR_INIT;
    PACKED(b, true);
    write_misfit(b, _i);
    ck_assert_int_eq(load(b, scratch, &err), WEFT_E_DATA);
    ck_assert_says(err, misfits[_i].text);
    bench_free(b);
}

int main(void) {
    return run_tests(test_case("packed", 0, setup, scratch_remove));
}
