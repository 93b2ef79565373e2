/* `weft merge` streams: its memory does not grow with the base. Merging a base of four files needs less than one file's
 * size beyond the memory of a minimal merge. */
#include "model/bench.h"
#include "suite.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum { FILES = 4, LAYERS = 16, R = 2, IDS = 64 };

typedef struct sizes {
    int64_t hidden, inner;
} sizes;
static const sizes large = {256, 1024}, small = {32, 64};

typedef struct files {
    const char *directory;
    weft_tensor_spec specs[LAYERS * 2];
    char names[LAYERS * 2][128];
    int32_t n;
} files;

/* Returns the path of NAME in a directory; one result is valid at a time. */
static const char *in(const char *directory, const char *name) {
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void add(files *self, int64_t rows, int64_t columns, const char *format, int layer) {
    weft_tensor_spec *spec = &self->specs[self->n];
    (void)snprintf(self->names[self->n], sizeof self->names[self->n], format, layer);
    *spec = (weft_tensor_spec){.name = self->names[self->n], .dtype = WEFT_F32, .rank = 2};
    spec->dims[0] = rows;
    spec->dims[1] = columns;
    self->n++;
}

/* Writes arbitrary numbers. */
static void write_file(files *self, const char *name) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_writer *writer = NULL;
    ck_assert_ok(weft_tensor_writer_open(&writer, in(self->directory, name), self->specs, self->n, true, &err), err);
    for (int32_t i = 0; i < self->n; i++) {
        const int64_t n = self->specs[i].dims[0] * self->specs[i].dims[1];
        float *values = malloc((size_t)n * sizeof *values);
        for (int64_t k = 0; k < n; k++) values[k] = (float)(k % 61) * 0.001f;
        ck_assert_ok(weft_tensor_writer_write(writer, i, 0, values, n * 4, &err), err);
        free(values);
    }
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
}

/* Returns the size of its files. */
static int64_t write_base(const char *directory, sizes s) {
    weft_error err = WEFT_ERROR_INIT;
    char text[700];
    int64_t bytes = 0;
    (void)snprintf(text, sizeof text,
                   "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_act\": \"silu\", "
                   "\"hidden_size\": %lld, \"intermediate_size\": %lld, \"num_hidden_layers\": %d, "
                   "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"max_position_embeddings\": 64, "
                   "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, "
                   "\"vocab_size\": %d, \"torch_dtype\": \"float32\"}",
                   (long long)s.hidden, (long long)s.inner, LAYERS, IDS);
    write_text(scratch_path("base.json"), text);
    BENCH(b, scratch_path("base.json"), "all", true);
    bytes = 4 * weft_declared_numel(b->declared, false) / FILES;
    ck_assert_ok(init(b, 1, &err), err);
    ck_assert_ok(save(b, directory, WEFT_F32, bytes, &err), err);
    ck_assert_int_eq(access(in(directory, "model.safetensors.index.json"), F_OK), 0);
    bench_free(b);
    return bytes;
}

/* One linear of each layer is merged, and the others are copied. */
static void write_adapter(const char *directory, sizes s) {
    files self = {.directory = directory};
    for (int i = 0; i < LAYERS; i++) {
        add(&self, R, s.inner, "base_model.model.model.layers.%d.mlp.down_proj.lora_A.weight", i);
        add(&self, s.hidden, R, "base_model.model.model.layers.%d.mlp.down_proj.lora_B.weight", i);
    }
    write_file(&self, "adapter_model.safetensors");
    write_text(in(directory, "adapter_config.json"),
               "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"down_proj\"]}");
}

/* Returns the peak memory. */
static int64_t merge(const char *base, const char *adapter, const char *out, const char *dtype) {
    struct rusage usage;
    char program[4096];
    int status = 0;
    pid_t pid = 0;
    (void)snprintf(program, sizeof program, "%s/weft", getenv("WEFT_BUILD"));
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)execl(program, "weft", "merge", base, adapter, out, dtype == NULL ? NULL : "--dtype", dtype, NULL);
        _exit(127);
    }
    ck_assert_int_eq(wait4(pid, &status, 0, &usage), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "weft merge ends with %d", status);
    return (int64_t)usage.ru_maxrss * 1024;
}

TESTS(a_merge_holds_pieces_and_no_file, 2) {
    static const char *const dtypes[] = {NULL, "bf16"}, *const names[] = {"small", "large", "few", "many"};
    char at[4][256], out[256];
    int64_t file = 0, of_small = 0, of_large = 0;
    for (int i = 0; i < 4; i++) {
        (void)snprintf(at[i], sizeof at[i], "%s", scratch_path(names[i]));
        ck_assert_int_eq(mkdir(at[i], 0700), 0);
    }
    (void)write_base(at[0], small);
    file = write_base(at[1], large);
    write_adapter(at[2], small);
    write_adapter(at[3], large);
    (void)snprintf(out, sizeof out, "%s", scratch_path("out"));
    of_small = merge(at[0], at[2], out, dtypes[_i]);
    (void)snprintf(out, sizeof out, "%s", scratch_path("more"));
    of_large = merge(at[1], at[3], out, dtypes[_i]);
    ck_assert_msg(of_large - of_small < file, "%lld bytes more than of a small base, whose files have %lld here",
                  (long long)(of_large - of_small), (long long)file);
}

int main(void) {
    return run_tests(test_case("merge_memory", 300, scratch_make, scratch_remove));
}
