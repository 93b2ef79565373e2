/* Reading a model larger than a chunk: with several threads, in file order, only once, and so that all pages are
 * resident afterwards. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "llama.h"
#include "memory_device.h"
#include "model/convert.h"
#include "model/weights.h"
#include "layout_offset.h"

enum { MODEL_BYTES = 4 * (2 * 6000 * 512) }; /* minimum */

/* A model with its region on untouched pages. */
typedef struct model {
    weft_declared *declared;
    weft_layout *layout;
    weft_device_plugin kernels;
    weft_device device;
    weft_buffer buffer;
    weft_region region;
} model;

static void model_open(model *m, bool visible) {
    weft_error err = WEFT_ERROR_INIT;
    memset(m, 0, sizeof *m);
    m->declared = llama_declared(scratch_path("config.json"));
    ck_assert_ok(weft_declared_select(m->declared, "all", &err), err);
    ck_assert_ok(weft_layout_create(&m->layout, m->declared, &fixture_host, built_plugin("policy-block")->table, NULL,
                                    &err),
                 err);
    m->kernels = memory_kernels(visible);
    m->buffer.n = m->layout->numel * 4;
    m->buffer.bytes = mmap(NULL, (size_t)m->buffer.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(m->buffer.bytes, MAP_FAILED);
    m->region = (weft_region){.declared = m->declared,
                              .layout = m->layout,
                              .kernels = &m->kernels,
                              .device = &m->device,
                              .ref = {&m->buffer, 0}};
}

static void model_close(model *m) {
    (void)munmap(m->buffer.bytes, (size_t)m->buffer.n);
    weft_layout_destroy(m->layout);
    weft_declared_destroy(m->declared);
}

static weft_status load(model *m, weft_error *err) {
    return weft_weights_load(&m->region, scratch, err);
}

/* Saves fresh weights as dtype in the scratch directory. */
static void save_fresh(int32_t dtype) {
    weft_error err = WEFT_ERROR_INIT;
    model m;
    model_open(&m, true);
    ck_assert_ok(weft_weights_init(&m.region, 1, false, NULL, &err), err);
    ck_assert_int_eq(unlink(scratch_path("config.json")), 0);
    ck_assert_ok(weft_weights_save(&m.region, scratch, dtype, WEFT_SHARD_BYTES, NULL, &err), err);
    model_close(&m);
}

static void setup(void) {
    scratch_make();
    write_text(
        scratch_path("config.json"),
        "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 600, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 4, \"vocab_size\": 6000, \"max_position_embeddings\": 64, \"rms_norm_eps\": "
        "1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
}

static void check_against_file(const model *m) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    ck_assert_ok(weft_safetensors_open_directory(&file, scratch, &err), err);
    for (int32_t i = 0; i < m->declared->n_parameters; i++) {
        const weft_parameter *p = &m->declared->parameters[i];
        const weft_tensor *tensor = weft_safetensors_find(file, p->name);
        const int64_t offset = layout_offset(m->layout, p);
        float *wide = malloc((size_t)p->numel * sizeof *wide);
        must(weft_convert(wide, WEFT_F32, tensor->data, tensor->dtype, p->numel));
        must(memcmp(wide, m->buffer.bytes + offset, (size_t)p->numel * sizeof *wide) == 0);
        free(wide);
    }
    weft_safetensors_close(file);
}

TESTS(many_pieces_of_every_type_find_their_places, 6) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    weft_error err = WEFT_ERROR_INIT;
    model m;
    save_fresh(dtypes[_i / 2]);
    model_open(&m, _i % 2 == 0);
    memset(m.buffer.bytes, 0xFF, (size_t)m.buffer.n);
    ck_assert_ok(load(&m, &err), err);
    check_against_file(&m);
    model_close(&m);
}

/* Returns the KiB of mapped files in this process's resident memory. */
static long file_memory(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "re");
    ck_assert_ptr_nonnull(status);
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssFile: %ld kB", &kib) == 1) break;
    (void)fclose(status);
    return kib;
}

static int64_t page_faults(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt + usage.ru_majflt;
}

TEST(after_loading_every_page_is_there_and_none_twice) {
    weft_error err = WEFT_ERROR_INIT;
    model m;
    long files = 0;
    int64_t faults = 0;
    unsigned sum = 0;
    save_fresh(WEFT_F32);
    model_open(&m, true);
    ck_assert_int_ge(m.buffer.n, MODEL_BYTES);
    files = file_memory();
    ck_assert_int_ge(files, 0);
    ck_assert_ok(load(&m, &err), err);
    ck_assert_int_le(file_memory() - files, MODEL_BYTES / 1024 / 8);
    faults = page_faults();
    for (int64_t i = 0; i < m.buffer.n; i += 4096) sum += m.buffer.bytes[i];
    ck_assert_int_le(page_faults() - faults, 4); /* of a few thousand pages */
    ck_assert_uint_gt(sum, 0);
    model_close(&m);
}

TESTS(a_file_that_shrinks_while_it_is_read_is_refused_not_a_crash, 4) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    const weft_tensor *tensors[64] = {NULL};
    model m;
    save_fresh(_i / 2 == 0 ? WEFT_F32 : WEFT_BF16);
    model_open(&m, _i % 2 == 0);
    ck_assert_int_le(m.declared->n_parameters, 64);
    ck_assert_ok(weft_safetensors_open_directory(&file, scratch, &err), err);
    for (int32_t i = 0; i < m.declared->n_parameters; i++)
        tensors[i] = weft_safetensors_find(file, m.declared->parameters[i].name);
    ck_assert_int_eq(truncate(scratch_path("model.safetensors"), 1 << 20), 0);
    ck_assert_int_eq(weft_weights_read(&m.region, file, tensors, &err), WEFT_E_DATA);
    ck_assert_says(err, "model.safetensors: ends at byte 1048576, within tensor '");
    ck_assert_says(err, "start again when the file is complete");
    weft_safetensors_close(file);
    model_close(&m);
}

int main(void) {
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, scratch_remove);
    tcase_set_timeout(tcase, 120);
    return run_tests(tcase);
}
