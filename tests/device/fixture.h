/* device/fixture.h: shared parts of the device kernel tests.
 *
 * The environment selects the device (device_choice.h).
 *
 * A case is a function that puts its operands into buffers, runs one kernel, and reads the results. `every_way` runs it
 * with operands at different offsets, and, on a device with the key `threads`, with 1, 2, 3 and 8 threads. It checks
 * that all results have the same bits. Every operand is surrounded by canaries, results and workspaces start as NaN,
 * and a workspace has exactly the requested size. */
#ifndef WEFT_TEST_DEVICE_FIXTURE_H
#define WEFT_TEST_DEVICE_FIXTURE_H

#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include <weft/device.h>

#include "config/config.h"
#include "device_choice.h"
#include "instruction_set.h"
#include "suite.h"

#define CANARY      64
#define CANARY_BYTE 0x5A
#define MAX_BUFFERS 24
#define WAYS        4

/* An assertion without cost while it holds, for loops over elements: Check's own assertion writes to a file each
 * time. */
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                                   \
    } while (0)
#define HOLDS(condition) EXPECT(condition, "%s", #condition)

static const int way_threads[WAYS] = {1, 2, 3, 8};
static const int64_t way_shift[WAYS] = {0, 64, 4,
                                        36}; /* bytes before an fp32 operand, half of it before a 16-bit one */

/* Activation types; a test's loop index selects one. */
static const int32_t dtypes[3] = {WEFT_F32, WEFT_BF16, WEFT_F16};

static const weft_plugin *plugin;
static const weft_device_plugin *table;
static weft_device *devices[WAYS];
static weft_host host;
static void *plugin_file; /* handle of dlopen */

/* Fails on warnings, such as those about unreleased buffers. */
static void host_log(const weft_host *h, int32_t level, const char *text) {
    (void)h;
    ck_assert_msg(level > WEFT_LOG_WARN, "%s", text);
}
static void *host_alloc(const weft_host *h, size_t bytes, size_t alignment) {
    (void)h;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void host_release(const weft_host *h, void *memory) {
    (void)h;
    free(memory);
}

static int64_t held __attribute__((unused)); /* allocations of counted_alloc that are not released */

static inline void *counted_alloc(const weft_host *h, size_t bytes, size_t alignment) {
    held++;
    return host_alloc(h, bytes, alignment);
}
static inline void counted_release(const weft_host *h, void *memory) {
    if (memory != NULL) held--;
    host_release(h, memory);
}

static const void *host_extension(const weft_host *h, const char *id) {
    (void)h;
    (void)id;
    return NULL;
}

/* ---- the device ---- */

/* True if the host sees device memory. The device then validates ids, positions and tables, which otherwise only a
 * kernel reads. */
static inline bool is_seen_by_the_host(void) {
    return table->host_view != NULL;
}
/* True for the CPU device, for tests of its threads, library and pages. */
static inline bool is_cpu(void) {
    return strcmp(device_choice(), "cpu") == 0;
}
/* True for AMX. It multiplies only bf16; the next lower instruction set computes and tests the rest. */
static inline bool is_amx(void) {
    const char *isa = getenv("WEFT_TEST_ISA");
    return isa != NULL && strcmp(isa, "amx-bf16") == 0;
}
/* The emulator runs kernels thread by thread, so the quick suite skips large and repetitive cases there. */
static inline bool is_slow(void) {
    return !is_cpu() && !is_full();
}
/* Returns the number of `dtypes` that the device supports. */
static inline int n_types(void) {
    return is_slow() ? 2 : 3; /* fp16 in the full suite */
}
/* Returns the number of type combinations of a matmul's operands and result. */
static inline int n_mixes(void) {
    return 2 * n_types() - 1;
}
/* True for a case of more multiply-adds than the quick suite has time for. */
static inline bool is_too_large(int64_t multiply_adds) {
    return is_slow() && multiply_adds > 3000000;
}

/* Creates a device with these keys, "device.threads=1". */
static weft_status create_device(weft_device **out, const weft_host *of, int32_t index, const char *const *overrides,
                                 size_t n, weft_error *err) {
    weft_config *config = NULL;
    void *keys = calloc(1, plugin->config_size + 1);
    weft_status status = weft_config_load(&config, NULL, overrides, n, err);
    ck_assert_msg(status == WEFT_OK, "%s", err->text);
    status = weft_config_fill(config, keys, "device", plugin->keys, plugin->n_keys, plugin->key_stride, err);
    ck_assert_msg(status == WEFT_OK, "%s", err->text);
    status = table->create(out, of, keys, index, err);
    weft_config_free(config);
    free(keys);
    return status;
}

static weft_device *make_device(int threads, int32_t index) {
    const char *overrides[DEVICE_CHOICE_MOST + 1];
    size_t n = device_choice_overrides(overrides);
    char of_threads[64];
    weft_error err = WEFT_ERROR_INIT;
    weft_device *device = NULL;
    (void)snprintf(of_threads, sizeof of_threads, "device.threads=%d", threads);
    if (is_cpu()) overrides[n++] = of_threads;
    ck_assert_msg(create_device(&device, &host, index, overrides, n, &err) == WEFT_OK, "%s", err.text);
    return device;
}

static void check_instruction_set(void) {
    weft_device_info info = {.struct_size = sizeof info};
    table->info(devices[0], &info);
    instruction_set_check(info.isa);
}

/* Finds the plugin's file in the first directory that has it. */
static void find_plugin(char *path, size_t size) {
    const char *directories = getenv("WEFT_PLUGIN_PATH");
    char *copy = NULL, *rest = NULL, *directory = NULL;
    ck_assert_msg(directories != NULL, "WEFT_PLUGIN_PATH names the folders of plugins");
    rest = copy = strdup(directories);
    while ((directory = strtok_r(rest, ":", &rest)) != NULL) {
        (void)snprintf(path, size, "%s/weft-device-%s.so", directory, device_choice());
        if (access(path, R_OK) == 0) break;
    }
    ck_assert_msg(directory != NULL, "no weft-device-%s.so in %s", device_choice(), directories);
    free(copy);
}

static void load_plugin(void) {
    weft_error err = WEFT_ERROR_INIT;
    const weft_plugin_list *list = NULL;
    weft_plugin_entry_fn *entry = NULL;
    char path[4096];
    int i = 0;
    find_plugin(path, sizeof path);
    plugin_file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(plugin_file != NULL, "%s", dlerror());
    *(void **)&entry = dlsym(plugin_file, "weft_plugin_entry");
    ck_assert(entry != NULL);
    host.struct_size = (uint32_t)sizeof host;
    host.sdk = WEFT_SDK_HEADERS;
    host.log = host_log;
    host.alloc = host_alloc;
    host.release = host_release;
    host.extension = host_extension;
    list = entry(&host, &err);
    ck_assert_ptr_nonnull(list);
    ck_assert_uint_eq(list->n_plugins, 1);
    plugin = list->plugins;
    table = plugin->table;
    for (i = 0; i < WAYS; i++) devices[i] = i == 0 || is_cpu() ? make_device(way_threads[i], 0) : devices[0];
    if (is_cpu()) check_instruction_set();
}

static void unload_plugin(void) {
    int i = 0;
    for (i = 0; i < WAYS; i++)
        if (i == 0 || devices[i] != devices[0]) table->destroy(devices[i]);
}

/* ---- 16-bit numbers ---- */

/* Rounds to nearest even, computed from the value and not from its bits: eight bits are kept. */
static inline float bf16_near(float x) {
    int exponent = 0;
    const float digits = frexpf(x, &exponent);
    return isfinite(x) ? ldexpf(rintf(ldexpf(digits, 8)), exponent - 8) : x;
}
/* Eleven bits, the last of which is at least 2^-24; 65520 and above are infinite. */
static inline float f16_near(float x) {
    int exponent = 0;
    float last = 0, near = 0;
    if (!isfinite(x)) return x;
    (void)frexpf(x, &exponent);
    last = ldexpf(1, exponent - 11 > -24 ? exponent - 11 : -24);
    near = rintf(x / last) * last;
    return fabsf(near) > 65504 ? copysignf(INFINITY, x) : near;
}
static inline float rounded(float x, int32_t dtype) {
    if (dtype == WEFT_F16) return f16_near(x);
    return dtype == WEFT_BF16 ? bf16_near(x) : x;
}
/* For a number exact in bf16. */
static inline uint16_t bf16_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    HOLDS((bits & 0xFFFFu) == 0);
    return (uint16_t)(bits >> 16);
}
static inline float float_of_bf16(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x = 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Computed from the value, not from its bits. */
static inline float float_of_f16(uint16_t half) {
    const int exponent = half >> 10 & 31, digits = half & 1023;
    float x = exponent > 0 ? ldexpf((float)(1024 + digits), exponent - 25) : ldexpf((float)digits, -24);
    if (exponent == 31) x = digits != 0 ? NAN : INFINITY;
    return half >> 15 != 0 ? -x : x;
}
/* For a number exact in fp16. */
static inline uint16_t f16_of(float x) {
    const uint32_t sign = signbit(x) ? 0x8000u : 0;
    uint32_t half = 0;
    int exponent = 0;
    float digits = 0;
    if (isnan(x)) return (uint16_t)(sign | 0x7E00u);
    if (isinf(x)) return (uint16_t)(sign | 0x7C00u);
    digits = frexpf(fabsf(x), &exponent);
    half = exponent < -13 || digits == 0 ? (uint32_t)ldexpf(fabsf(x), 24)
                                         : (uint32_t)(exponent + 14) << 10 | ((uint32_t)ldexpf(digits, 11) & 1023u);
    HOLDS(float_of_f16((uint16_t)(sign | half)) == x);
    return (uint16_t)(sign | half);
}
static inline uint16_t half_of(float x, int32_t dtype) {
    return dtype == WEFT_F16 ? f16_of(x) : bf16_of(x);
}
static inline float float_of_half(uint16_t half, int32_t dtype) {
    return dtype == WEFT_F16 ? float_of_f16(half) : float_of_bf16(half);
}

/* ---- one run of a case ---- */

typedef struct run {
    weft_device *device;
    int64_t shift;
    int64_t n_buffers;
    weft_buffer *buffers[MAX_BUFFERS];
    int64_t begins[MAX_BUFFERS], ends[MAX_BUFFERS]; /* of operands, surrounded by canaries */
    float *results;                                 /* all results, one after another */
    int64_t n_results;
} run;

/* Allocates a buffer of canaries for `shift` bytes, the operand, and more canaries. data NULL: filled with NaN. */
static weft_ref put_at(run *r, const void *data, int64_t bytes, int64_t shift) {
    weft_error err = WEFT_ERROR_INIT;
    const int64_t all = shift + bytes + CANARY;
    weft_ref ref = {NULL, 0};
    char *image = malloc((size_t)all);
    ck_assert_int_lt(r->n_buffers, MAX_BUFFERS);
    ck_assert_msg(table->alloc(r->device, &ref.buffer, all, &err) == WEFT_OK, "%s", err.text);
    if (is_seen_by_the_host()) ck_assert_uint_eq((uintptr_t)table->host_view(r->device, ref) % 4096, 0);
    memset(image, CANARY_BYTE, (size_t)all);
    memset(image + shift, 0xFF, (size_t)bytes);
    if (data != NULL && bytes > 0) memcpy(image + shift, data, (size_t)bytes);
    ck_assert_msg(table->write(r->device, NULL, ref, image, all, &err) == WEFT_OK, "%s", err.text);
    free(image);
    r->buffers[r->n_buffers] = ref.buffer;
    r->begins[r->n_buffers] = shift;
    r->ends[r->n_buffers++] = shift + bytes;
    ref.offset = shift;
    return ref;
}
static inline weft_ref put(run *r, const void *data, int64_t bytes) {
    return put_at(r, data, bytes, r->shift);
}
static weft_ref put_floats(run *r, const float *data, int64_t n) {
    return put_at(r, data, n * 4, r->shift);
}
static inline weft_ref put_doubles(run *r, const double *data, int64_t n) {
    return put_at(r, data, n * 8, r->shift / 8 * 8);
}
static inline weft_ref put_workspace(run *r, int64_t bytes) {
    return bytes == 0 ? (weft_ref){NULL, 0} : put_at(r, NULL, bytes, r->shift / 8 * 8);
}

static void get_bytes(run *r, weft_ref ref, int64_t bytes) {
    weft_error err = WEFT_ERROR_INIT;
    const int64_t words = (bytes + 3) / 4;
    r->results = realloc(r->results, (size_t)(r->n_results + words) * 4);
    memset(r->results + r->n_results, 0, (size_t)words * 4);
    ck_assert_int_eq(table->read(r->device, NULL, r->results + r->n_results, ref, bytes, &err), WEFT_OK);
    r->n_results += words;
}
static void get_floats(run *r, weft_ref ref, int64_t n) {
    get_bytes(r, ref, n * 4);
}

static void check_canaries(run *r, int64_t i, int64_t offset, int64_t bytes, const char *where) {
    weft_error err = WEFT_ERROR_INIT;
    unsigned char *canary = malloc((size_t)bytes + 1);
    const weft_ref at = {r->buffers[i], offset};
    ck_assert_msg(table->read(r->device, NULL, canary, at, bytes, &err) == WEFT_OK, "%s", err.text);
    for (int64_t j = 0; j < bytes; j++)
        EXPECT(canary[j] == CANARY_BYTE, "operand %lld was overrun at byte %lld %s it", (long long)i, (long long)j,
               where);
    free(canary);
}

static void end_run(run *r) {
    for (int64_t i = 0; i < r->n_buffers; i++) {
        check_canaries(r, i, 0, r->begins[i], "before");
        check_canaries(r, i, r->ends[i], CANARY, "behind");
        table->release(r->device, r->buffers[i]);
    }
    r->n_buffers = 0;
}

/* Activations have dtype in memory and fp32 in the test. */
static inline weft_ref put_cells(run *r, const float *data, int64_t n, int32_t dtype) {
    uint16_t *half = NULL;
    weft_ref ref;
    if (dtype == WEFT_F32) return put_floats(r, data, n);
    half = data == NULL ? NULL : malloc((size_t)(n > 0 ? n : 1) * sizeof *half);
    for (int64_t i = 0; half != NULL && i < n; i++) half[i] = half_of(data[i], dtype);
    ref = put_at(r, half, n * 2, r->shift / 2);
    free(half);
    return ref;
}
/* Matmul operands and results are aligned to 16 bytes, which the CPU does not need. */
static inline weft_ref put_matrix(run *r, const float *data, int64_t n, int32_t dtype) {
    const int64_t shift = r->shift;
    weft_ref ref;
    if (!is_cpu()) r->shift *= 8;
    ref = put_cells(r, data, n, dtype);
    r->shift = shift;
    return ref;
}
static inline void get_cells(run *r, weft_ref ref, int64_t n, int32_t dtype) {
    weft_error err = WEFT_ERROR_INIT;
    uint16_t *half = NULL;
    if (dtype == WEFT_F32) {
        get_floats(r, ref, n);
        return;
    }
    half = malloc((size_t)(n > 0 ? n : 1) * sizeof *half);
    ck_assert_int_eq(table->read(r->device, NULL, half, ref, n * 2, &err), WEFT_OK);
    r->results = realloc(r->results, (size_t)(r->n_results + n) * 4);
    for (int64_t i = 0; i < n; i++) r->results[r->n_results++] = float_of_half(half[i], dtype);
    free(half);
}

typedef void case_fn(run *r, const void *data);

/* Returns the results of the first way, which the caller frees, after checking that all other ways have the same
 * bits. */
static inline float *every_way(case_fn *body, const void *data, const char *name) {
    run first = {0};
    int i = 0;
    for (i = 0; i < WAYS; i++) {
        run r = {.device = devices[i], .shift = way_shift[i]};
        if ((is_slow() || (is_amx() && !is_full())) && i > 0 && i < WAYS - 1) continue; /* tiles in plain C are slow */
        body(&r, data);
        end_run(&r);
        if (i == 0) {
            first = r;
            continue;
        }
        ck_assert_int_eq(r.n_results, first.n_results);
        ck_assert_msg(memcmp(r.results, first.results, (size_t)r.n_results * 4) == 0,
                      "%s: %d threads at offset %lld give other bits than one thread at 0", name, way_threads[i],
                      (long long)way_shift[i]);
        free(r.results);
    }
    return first.results;
}

#define RUN(r, kernel, args)                                                                                           \
    do {                                                                                                               \
        weft_error run_err = WEFT_ERROR_INIT;                                                                          \
        const weft_status run_status = table->kernel((r)->device, NULL, (args), &run_err);                             \
        ck_assert_msg(run_status == WEFT_OK, #kernel ": %s", run_err.text);                                            \
    } while (0)

/* Checks that each ref is rejected by name if it is moved one element beyond its buffer's end, or if the buffer is
 * missing (unless optional). struct_size 0 is rejected too. */
typedef struct named_ref {
    weft_ref *ref;
    const char *name;
    int64_t element;
    bool optional;
} named_ref;

#define REF(args, field, element)                                                                                      \
    { &(args).field, "operand " #field, element, false }
#define OPTIONAL(args, field, element)                                                                                 \
    { &(args).field, "operand " #field, element, true }
#define WORKSPACE_REF(args)                                                                                            \
    { &(args).workspace, "workspace", 8, false }

/* Checks that a kernel is rejected with the status and a message with its name and the text. */
#define REJECTS(r, kernel, args, status, part)                                                                         \
    do {                                                                                                               \
        weft_error reject_err = WEFT_ERROR_INIT;                                                                       \
        ck_assert_int_eq(table->kernel((r)->device, NULL, (args), &reject_err), status);                               \
        ck_assert_says(reject_err, #kernel);                                                                           \
        ck_assert_says(reject_err, part);                                                                              \
    } while (0)

#define REFUSES(r, kernel, args, ...)                                                                                  \
    do {                                                                                                               \
        const named_ref refs[] = {__VA_ARGS__};                                                                        \
        weft_error e = WEFT_ERROR_INIT;                                                                                \
        for (size_t at = 0; at < sizeof(refs) / sizeof *refs; at++) {                                                  \
            const weft_ref kept = *refs[at].ref;                                                                       \
            refs[at].ref->offset += CANARY + refs[at].element;                                                         \
            ck_assert_msg(table->kernel((r)->device, NULL, (args), &e) == WEFT_E_HOST, #kernel " reaches beyond %s",   \
                          refs[at].name);                                                                              \
            ck_assert_msg(strstr(e.text, #kernel) && strstr(e.text, refs[at].name), "%s", e.text);                     \
            refs[at].ref->offset = -refs[at].element;                                                                  \
            ck_assert_int_eq(table->kernel((r)->device, NULL, (args), &e), WEFT_E_HOST);                               \
            *refs[at].ref = kept;                                                                                      \
            if (refs[at].optional) continue;                                                                           \
            refs[at].ref->buffer = NULL;                                                                               \
            ck_assert_int_eq(table->kernel((r)->device, NULL, (args), &e), WEFT_E_HOST);                               \
            *refs[at].ref = kept;                                                                                      \
        }                                                                                                              \
        (args)->struct_size = 0;                                                                                       \
        ck_assert_int_eq(table->kernel((r)->device, NULL, (args), &e), WEFT_E_HOST);                                   \
        (args)->struct_size = (uint32_t)sizeof *(args);                                                                \
    } while (0)

/* ---- numbers ---- */

/* Returns the fp64 stored in a result of two words. */
static inline double double_of(const float *words) {
    double x = 0;
    memcpy(&x, words, sizeof x);
    return x;
}

static uint64_t number_state;

/* Uniform in [-1, 1). */
static float number(void) {
    number_state = number_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(number_state >> 40) / (double)(1 << 23) - 1.0);
}
static float *numbers(int64_t n, float scale) {
    float *out = malloc((size_t)(n > 0 ? n : 1) * sizeof *out);
    int64_t i = 0;
    for (i = 0; i < n; i++) out[i] = number() * scale;
    return out;
}
/* Returns numbers exact in the type. */
static inline float *numbers_of(int32_t dtype, int64_t n, float scale) {
    float *out = numbers(n, scale);
    for (int64_t i = 0; i < n; i++) out[i] = rounded(out[i], dtype);
    return out;
}
static inline double *zeros(int64_t n) {
    return calloc((size_t)(n > 0 ? n : 1), sizeof(double));
}

/* Checks that the norm of the difference is within `limit` of the expected norm. No element may differ by more than 20
 * times that share of the largest one. floor: minimum magnitude of an element, for expected values that may cancel. */
static inline void expect_close_to(const char *name, const float *got, const double *want, int64_t n, double limit,
                                   double floor) {
    double off = 0, norm = floor * floor * (double)n, worst = 0, largest = floor;
    int64_t i = 0;
    for (i = 0; i < n; i++) {
        const double d = (double)got[i] - want[i];
        off += d * d;
        norm += want[i] * want[i];
        worst = fabs(d) <= worst ? worst : fabs(d);
        largest = fmax(largest, fabs(want[i]));
    }
    ck_assert_msg(sqrt(off) <= limit * sqrt(norm) + 1e-30, "%s: relative difference %.3g in norm, at most %.3g", name,
                  sqrt(off / (norm + 1e-300)), limit);
    ck_assert_msg(worst <= 20 * limit * largest + 1e-30, "%s: an element is off by %.3g of %.3g", name, worst, largest);
}
static inline void expect_close(const char *name, const float *got, const double *want, int64_t n, double limit) {
    expect_close_to(name, got, want, n, limit, 0);
}

/* Returns the allowed relative error of a sum of k products: tensor cores truncate sums. */
static inline double sum_error(int64_t k) {
    return is_cpu() ? 2e-6 : 2e-6 + 1.2e-9 * (double)k;
}

/* For results stored as dtype: fp32 as above; others within their last bit plus fp32's error. products: values that a
 * device may round to dtype before it adds to them; NULL: none. */
static inline void expect_sums(const char *name, const float *got, const double *want, const double *products,
                               int64_t n, int32_t dtype, double limit, double floor) {
    const double digit = dtype == WEFT_F16 ? 1.0 / 2048 : 1.0 / 256, least = dtype == WEFT_F16 ? 0x1p-24 : 0;
    double largest = floor;
    int64_t i = 0;
    if (dtype == WEFT_F32) {
        expect_close_to(name, got, want, n, limit, floor);
        return;
    }
    for (i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (i = 0; i < n; i++) {
        const double twice = products != NULL ? fabs(products[i]) * digit + least : 0;
        EXPECT(fabs((double)got[i] - want[i]) <= fabs(want[i]) * digit + twice + least + 20 * limit * largest,
               "%s in %s: element %lld is %.9g and should be %.9g", name, weft_dtype_name(dtype), (long long)i,
               (double)got[i], want[i]);
    }
}
static inline void expect_cells(const char *name, const float *got, const double *want, int64_t n, int32_t dtype,
                                double limit, double floor) {
    expect_sums(name, got, want, NULL, n, dtype, limit, floor);
}

static inline int run_device_suite(const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_unchecked_fixture(tests, load_plugin, unload_plugin);
    tcase_set_timeout(tests, 600);
    return run_tests_in_one_process(tests); /* an OpenMP team does not survive fork */
}

#endif
