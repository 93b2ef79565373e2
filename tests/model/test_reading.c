/* Reading a model larger than a chunk: with several threads, in file order, only once, and so that all pages are
 * resident afterwards. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "bench.h"

enum { MODEL_BYTES = 4 * (2 * 6000 * 512), PAGE = 4096 }; /* minimum */

/* Saves fresh weights as dtype in the scratch directory. */
static void save_fresh(int32_t dtype) {
    weft_error err = WEFT_ERROR_INIT;
    BENCH(b, scratch_path("config.json"), "all", true);
    ck_assert_ok(init(b, 1, &err), err);
    ck_assert_int_eq(unlink(scratch_path("config.json")), 0);
    ck_assert_ok(save(b, scratch, dtype, WEFT_SHARD_BYTES, &err), err);
    bench_free(b);
}

static void setup(void) {
    scratch_make();
    write_text(
        scratch_path("config.json"),
        "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 600, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 4, \"vocab_size\": 6000, \"max_position_embeddings\": 64, \"rms_norm_eps\": "
        "1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
}

TESTS(many_pieces_of_every_type_find_their_places, 6) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    weft_error err = WEFT_ERROR_INIT;
    save_fresh(dtypes[_i / 2]);
    BENCH(b, scratch_path("config.json"), "all", _i % 2 == 0);
    ck_assert_ok(load(b, scratch, &err), err);
    check_against_files(b, scratch);
    bench_free(b);
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

/* Returns the region's first whole page, and their number. */
static unsigned char *pages_of(const bench *b, int64_t *n) {
    unsigned char *first = b->buffer.bytes + 256;
    first += (PAGE - (uintptr_t)first % PAGE) % PAGE;
    *n = (b->buffer.bytes + b->buffer.n - 256 - first) / PAGE;
    return first;
}

TEST(after_loading_every_page_is_there_and_none_twice) {
    weft_error err = WEFT_ERROR_INIT;
    unsigned char *pages = NULL;
    long files = 0;
    int64_t faults = 0, n = 0;
    unsigned sum = 0;
    save_fresh(WEFT_F32);
    BENCH(b, scratch_path("config.json"), "all", true);
    ck_assert_int_ge(b->buffer.n, MODEL_BYTES);
    pages = pages_of(b, &n);
    ck_assert_int_eq(madvise(pages, (size_t)(n * PAGE), MADV_DONTNEED), 0);
    files = file_memory();
    ck_assert_int_ge(files, 0);
    ck_assert_ok(load(b, scratch, &err), err);
    ck_assert_int_le(file_memory() - files, MODEL_BYTES / 1024 / 8);
    faults = page_faults();
    for (int64_t i = 0; i < n; i++) sum += pages[i * PAGE];
    ck_assert_int_le(page_faults() - faults, 4); /* of a few thousand pages */
    ck_assert_uint_gt(sum, 0);
    bench_free(b);
}

TESTS(a_file_that_shrinks_while_it_is_read_is_refused_not_a_crash, 4) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    const weft_tensor *tensors[64] = {NULL};
    save_fresh(_i / 2 == 0 ? WEFT_F32 : WEFT_BF16);
    BENCH(b, scratch_path("config.json"), "all", _i % 2 == 0);
    const weft_region region = whole(b);
    ck_assert_int_le(b->declared->n_parameters, 64);
    ck_assert_ok(weft_safetensors_open_directory(&file, scratch, &err), err);
    for (int32_t i = 0; i < b->declared->n_parameters; i++)
        tensors[i] = weft_safetensors_find(file, b->declared->parameters[i].name);
    ck_assert_int_eq(truncate(scratch_path("model.safetensors"), 1 << 20), 0);
    ck_assert_int_eq(weft_weights_read(&region, file, tensors, &err), WEFT_E_DATA);
    ck_assert_says(err, "model.safetensors: ends at byte 1048576, within tensor '");
    ck_assert_says(err, "start again when the file is complete");
    weft_safetensors_close(file);
    bench_free(b);
}

int main(void) {
    return run_tests(test_case("all", 120, setup, scratch_remove));
}
