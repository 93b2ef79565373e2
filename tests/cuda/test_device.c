/* The CUDA device's own functions on the emulator: streams, events, captured graphs and pinned memory. Each failing
 * call is reported by name and leaks nothing. Also the requirements on a machine. tests/device compares the operators
 * with plain C. */
#include <weft/capture.h>
#include <weft/choices.h>
#include <weft/dry_run.h>
#include <weft/ranges.h>
#include <weft/roofline.h>
#include <weft/transfer.h>
#include <weft_emulator.h>

#include "../../plugins/common/machine.h"
#include "device/fixture.h"
#include "base/units.h"
#include "model/region.h"

static weft_error err = WEFT_ERROR_INIT;

static const weft_device_transfer *transfer;
static const weft_device_capture *capture;
static const weft_device_choices *choices;

/* ---- a counting host ---- */

static weft_host counting;

static void quiet_log(const weft_host *h, int32_t level, const char *text) {
    (void)h, (void)level, (void)text;
}

/* ---- one object of each kind ---- */

/* Cache directory of compiled updates, so that each is compiled once; tests of compiling calls do not use it. */
static char kept_in[4200], cache[4300];

static void use_cache(bool use) {
    (void)snprintf(kept_in, sizeof kept_in, "%s/tests/cuda/compiled", getenv("WEFT_BUILD"));
    (void)snprintf(cache, sizeof cache, "device.cache=%s", use ? kept_in : "none");
}

WEFT_HP(toy_hp, float lr;)
WEFT_ELEMENTWISE(toy_update, toy_hp, 1, s0 += g; w -= hp->lr * range->lr_scale * s0;)

enum { SIDE = 24, N = SIDE * SIDE };

/* The objects of a step. Each is NULL until it is created. */
typedef struct everything {
    weft_device *device;
    weft_buffer *memory, *work;
    weft_stream *side;
    weft_captured_graph *recording;
    float *pinned;
    float got[N];
} everything;

static weft_status make_device_for(everything *e, int32_t index, const char *more) {
    char keys[200];
    const char *overrides[3] = {"device.workspace=1Mi", cache, keys};
    (void)snprintf(keys, sizeof keys, "device.%s", more);
    return create_device(&e->device, &counting, index, overrides, 3, &err);
}

static weft_ref at(const everything *e, int64_t part) {
    return (weft_ref){e->memory, part * N * 4};
}

static weft_status multiply(everything *e, int32_t dtype_c) {
    weft_matmul m = {
        .struct_size = sizeof m, .a = at(e, 0), .b = at(e, 1), .c = at(e, 2), .m = SIDE, .n = SIDE, .k = SIDE};
    m.lda = m.ldb = m.ldc = SIDE;
    m.dtype_a = m.dtype_b = dtype_c;
    m.dtype_c = dtype_c;
    m.has_bias = 1;
    m.bias = at(e, 0);
    m.workspace = (weft_ref){e->work, 0};
    return table->matmul(e->device, NULL, &m, &err);
}

static const weft_elementwise *kernel = &toy_update;

static weft_status update(everything *e) {
    const weft_range range = {sizeof range, 0, 0, N, 1.0f, 1.0f};
    const float numbers_of_step[2] = {0.5f, 1.0f}; /* hp, coefficient */
    const int32_t skip = 0;
    const weft_update_region region = {.struct_size = sizeof region,
                                       .weight = at(e, 0),
                                       .gradient = at(e, 1),
                                       .states = {at(e, 3)},
                                       .ranges = at(e, 4),
                                       .n = N,
                                       .n_ranges = 1,
                                       .range_stride = sizeof range};
    const weft_update u = {.struct_size = sizeof u,
                           .kernel = kernel,
                           .hp = {e->memory, 4 * N * 4 + 64},
                           .coefficient = {e->memory, 4 * N * 4 + 68},
                           .skip = {e->memory, 4 * N * 4 + 72},
                           .regions = &region,
                           .n_regions = 1,
                           .region_stride = sizeof region};
    weft_status status = table->write(e->device, NULL, region.ranges, &range, sizeof range, &err);
    if (status == WEFT_OK) status = table->write(e->device, NULL, u.hp, numbers_of_step, 8, &err);
    if (status == WEFT_OK) status = table->write(e->device, NULL, u.skip, &skip, 4, &err);
    return status == WEFT_OK ? table->update(e->device, NULL, &u, &err) : status;
}

/* Sets the algorithms of its matmuls, as a resume does. */
static weft_status take_ways(everything *e) {
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < choices->count(e->device) && status == WEFT_OK; i++) {
        weft_device_choice way = {.struct_size = sizeof way};
        choices->get(e->device, i, &way);
        status = choices->take(e->device, &way, &err);
    }
    return status;
}

static weft_status attend(everything *e) {
    const weft_ref q = {e->memory, 5 * N * 4}, starts = {e->memory, 5 * N * 4 + 1024};
    const weft_attention a = {.struct_size = sizeof a,
                              .q = q,
                              .k = q,
                              .v = q,
                              .starts = starts,
                              .o = {e->memory, 5 * N * 4 + 512},
                              .batch = 1,
                              .length = 4,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 8,
                              .scale = 1.0,
                              .dtype = WEFT_F32};
    const weft_status status = table->fill(e->device, NULL, starts, 0, 4, &err);
    return status == WEFT_OK ? table->attention(e->device, NULL, &a, &err) : status;
}

static weft_status go_between_streams(everything *e) {
    weft_event *m = NULL;
    weft_status status = table->record_event(e->device, NULL, &m, &err);
    if (status == WEFT_OK) status = table->wait(e->device, e->side, m, &err);
    if (status == WEFT_OK) status = transfer->upload(e->device, e->side, at(e, 1), e->pinned, N * 4, &err);
    if (status == WEFT_OK) status = transfer->download(e->device, e->side, e->pinned, at(e, 0), N * 4, &err);
    if (status == WEFT_OK) status = table->record_event(e->device, e->side, &m, &err);
    if (status != WEFT_OK) return status;
    if (transfer->reached(e->device, m, &err) < 0) {
        weft_error unheard = WEFT_ERROR_INIT;
        (void)transfer->await(e->device, m, &unheard);
        return (weft_status)err.code;
    }
    return transfer->await(e->device, m, &err);
}

static weft_status record(everything *e) {
    weft_status status = table->synchronize(e->device, NULL, &err);
    if (status == WEFT_OK) status = table->synchronize(e->device, e->side, &err);
    if (status == WEFT_OK) status = capture->begin(e->device, NULL, &err);
    if (status != WEFT_OK) return status;
    status = table->copy(e->device, NULL, at(e, 2), at(e, 0), N * 4, &err);
    if (status == WEFT_OK) {
        status = capture->end(e->device, NULL, &e->recording, &err);
    } else {
        weft_error unheard = WEFT_ERROR_INIT;
        (void)capture->end(e->device, NULL, &e->recording, &unheard);
    }
    if (status == WEFT_OK) status = capture->replay(e->device, NULL, e->recording, &err);
    return status;
}

static weft_status make(everything *e) {
    weft_device_info info = {.struct_size = sizeof info};
    weft_status status = make_device_for(e, 0, "share=yes");
    if (status == WEFT_OK) table->info(e->device, &info); /* the next call reports its failure */
    if (status == WEFT_OK) status = table->alloc(e->device, &e->memory, 6 * N * 4, &err);
    if (status == WEFT_OK) status = table->alloc(e->device, &e->work, (int64_t)2 << 20, &err);
    if (status == WEFT_OK) status = table->stream_create(e->device, &e->side, &err);
    if (status == WEFT_OK) status = transfer->take(e->device, (void **)&e->pinned, N * 4, &err);
    return status;
}

static weft_status play(everything *e) {
    float numbers_in[N];
    weft_status status;
    for (int i = 0; i < N; i++) numbers_in[i] = e->pinned[i] = (float)(i % 7);
    status = table->write(e->device, NULL, at(e, 0), numbers_in, sizeof numbers_in, &err);
    if (status == WEFT_OK) status = table->fill(e->device, NULL, at(e, 1), 0x3F800000u, 3 * N, &err);
    if (status == WEFT_OK) status = multiply(e, WEFT_F32);
    if (status == WEFT_OK) status = table->convert(e->device, NULL, at(e, 5), WEFT_BF16, at(e, 2), WEFT_F32, N, &err);
    if (status == WEFT_OK) status = multiply(e, WEFT_BF16);
    if (status == WEFT_OK) status = take_ways(e);
    if (status == WEFT_OK) status = attend(e);
    if (status == WEFT_OK) status = update(e);
    if (status == WEFT_OK) status = go_between_streams(e);
    if (status == WEFT_OK) status = record(e);
    return status == WEFT_OK ? table->read(e->device, NULL, e->got, at(e, 2), N * 4, &err) : status;
}

static void unmake(everything *e) {
    if (e->device == NULL) return;
    if (e->recording != NULL) capture->destroy(e->device, e->recording);
    if (e->pinned != NULL) transfer->give_back(e->device, e->pinned);
    if (e->side != NULL) table->stream_destroy(e->device, e->side);
    if (e->work != NULL) table->release(e->device, e->work);
    if (e->memory != NULL) table->release(e->device, e->memory);
    table->destroy(e->device);
}

static void start_counting(void) {
    counting = host;
    counting.alloc = counted_alloc;
    counting.release = counted_release;
    counting.log = quiet_log;
    held = 0;
    err = (weft_error)WEFT_ERROR_INIT;
}

static void setup(void) {
    load_plugin();
    use_cache(false);
    transfer = table->extension(devices[0], WEFT_DEVICE_TRANSFER);
    capture = table->extension(devices[0], WEFT_DEVICE_CAPTURE);
    choices = table->extension(devices[0], WEFT_DEVICE_CHOICES);
    ck_assert(transfer != NULL && capture != NULL && choices != NULL);
}

TEST(one_of_everything_works) {
    start_counting();
    everything e = {0};
    ck_assert_msg(make(&e) == WEFT_OK && play(&e) == WEFT_OK, "%s", err.text);
    /* w -= 0.5 (s + g) with s of ones and g of ones; copied by the captured graph. */
    for (int i = 0; i < N; i++) ck_assert_float_eq(e.got[i], (float)(i % 7) - 1.0f);
    for (int i = 0; i < N; i++) ck_assert_float_eq(e.pinned[i], (float)(i % 7) - 1.0f);
    unmake(&e);
    ck_assert_int_eq(held, 0);
}

/* ---- each call fails once ---- */

/* The call, its error code, and a part of the message; NULL: the name of the call. */
typedef struct failing {
    const char *call;
    int code;
    const char *says;
} failing;

static const failing calls[] = {
    {"cudaDriverGetVersion", 999, NULL},
    {"cudaRuntimeGetVersion", 999, NULL},
    {"cudaGetDeviceCount", 999, NULL},
    {"cudaGetDeviceProperties", 999, NULL},
    {"cudaSetDevice", 46, NULL},
    {"cudaMemGetInfo", 999, NULL},
    {"cudaStreamCreateWithFlags", 46, NULL},
    {"cudaEventCreateWithFlags", 46, NULL},
    {"cudaHostAlloc", 2, ""},
    {"cudaHostAlloc", 46, NULL},
    {"cudaMalloc", 2, "has no memory for a buffer of"},
    {"cudaMalloc", 46, NULL},
    {"cudaMemcpyAsync", 1, "on device cuda: cudaMemcpyAsync answered invalid argument (cudaErrorInvalidValue, 1)"},
    {"cudaLaunchKernel", 701, "LaunchKernel answered"},
    {"cudaFuncSetAttribute", 1, NULL},
    {"cudaEventRecord", 400, "on device cuda: cudaEventRecord answered invalid resource handle"},
    {"cudaEventQuery", 400, NULL},
    {"cudaEventSynchronize", 400, NULL},
    {"cudaStreamWaitEvent", 400, NULL},
    {"cudaStreamSynchronize", 719, NULL},
    {"cudaStreamBeginCapture", 1, NULL},
    {"cudaStreamEndCapture", 904, NULL},
    {"cudaGraphInstantiate", 1, NULL},
    {"cudaGraphLaunch", 1, NULL},
    {"cublasLtCreate", 3, NULL},
    {"cublasLtMatmulPreferenceCreate", 3, NULL},
    {"cublasLtMatmulPreferenceSetAttribute", 7, NULL},
    {"cublasLtMatmulDescCreate", 3, NULL},
    {"cublasLtMatmulDescSetAttribute", 7, NULL},
    {"cublasLtMatrixLayoutCreate", 3, "describing a matrix of the product "},
    {"cublasLtMatmulAlgoGetHeuristic", 15, "cuBLASLt has no algorithm for"},
    {"cublasLtMatmulAlgoGetHeuristic", 14, NULL},
    {"cublasLtMatmulAlgoCheck", 14, NULL},
    {"cublasLtMatmul", 13, NULL},
    {"nvrtcVersion", 11, NULL},
    {"nvrtcCreateProgram", 2, NULL},
    {"nvrtcCompileProgram", 11, NULL},
    {"nvrtcGetCUBINSize", 11, NULL},
    {"nvrtcGetCUBIN", 11, NULL},
    {"cuModuleLoadData", 209, NULL},
    {"cuModuleGetFunction", 500, NULL},
    {"cuLaunchKernel", 701, NULL},
};

/* Calls that make an object, and the calls that destroy it. */
static const char *const pairs[][2] = {
    {"cudaMalloc", "cudaFree"},
    {"cudaStreamCreateWithFlags", "cudaStreamDestroy"},
    {"cudaEventCreateWithFlags", "cudaEventDestroy"},
    {"cudaHostAlloc", "cudaFreeHost"},
    {"cudaGraphInstantiate", "cudaGraphExecDestroy"},
    {"cublasLtCreate", "cublasLtDestroy"},
    {"cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy"},
    {"cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy"},
    {"cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy"},
    {"nvrtcCreateProgram", "nvrtcDestroyProgram"},
    {"cuModuleLoadData", "cuModuleUnload"},
};

/* Returns the number of calls per step. */
static long long count_calls(const char *call) {
    start_counting();
    everything e = {0};
    const long long before = emulator_calls(call);
    ck_assert_msg(make(&e) == WEFT_OK && play(&e) == WEFT_OK, "%s", err.text);
    unmake(&e);
    return emulator_calls(call) - before;
}

static void fail_once(const failing *f, long long which) {
    start_counting();
    everything e = {0};
    char plant[128];
    weft_status status;
    (void)snprintf(plant, sizeof plant, "%s:%lld=%d", f->call, which, f->code);
    emulator_plant(plant);
    status = make(&e);
    if (status == WEFT_OK) status = play(&e);
    unmake(&e);
    ck_assert_msg(status != WEFT_OK, "%s, call %lld: is not told", f->call, which);
    ck_assert_int_eq(err.code, status);
    ck_assert_msg(strstr(err.text, f->says == NULL ? f->call : f->says) != NULL && strlen(err.text) > 20,
                  "%s, call %lld: %s", f->call, which, err.text);
    ck_assert_msg(held == 0, "%s, call %lld: %lld pieces of memory are left", f->call, which, (long long)held);
    for (size_t i = 0; i < LENGTH(pairs); i++) { /* the failed call created nothing */
        const long long left = emulator_calls(pairs[i][0]) - emulator_calls(pairs[i][1]);
        ck_assert_msg(left == (strcmp(pairs[i][0], f->call) == 0), "%s, call %lld: %lld of %s are left", f->call, which,
                      left, pairs[i][0]);
    }
    emulator_plant(NULL);
}

TESTS(a_call_that_fails_is_told_and_leaves_nothing, LENGTH(calls)) {
    const failing *f = &calls[_i];
    /* A cached module that cannot be loaded is compiled again. */
    use_cache(strncmp(f->call, "nvrtc", 5) != 0 && strncmp(f->call, "cuModule", 8) != 0);
    const long long all = count_calls(f->call);
    ck_assert_msg(all > 0, "%s is never called", f->call);
    for (long long which = 1; which <= all; which++) {
        /* Errors of the final waits cannot be reported any more: the last calls of streams and staging. */
        const bool is_at_end = (strcmp(f->call, "cudaStreamSynchronize") == 0 && which == all) ||
                               (strcmp(f->call, "cudaEventSynchronize") == 0 && which > all - 4) ||
                               (strcmp(f->call, "cudaSetDevice") == 0 && which > all - 6);
        if (!is_at_end) fail_once(f, which);
    }
}

/* ---- compiled code ---- */

/* Runs a step on a separate device and returns the number of compilations. */
static long long count_compiled(void) {
    start_counting();
    everything e = {0};
    const long long before = emulator_calls("nvrtcCompileProgram");
    ck_assert_msg(make(&e) == WEFT_OK && play(&e) == WEFT_OK, "%s", err.text);
    for (int i = 0; i < N; i++) ck_assert_float_eq(e.got[i], (float)(i % 7) - 1.0f);
    unmake(&e);
    return emulator_calls("nvrtcCompileProgram") - before;
}

static void run_in(const char *directory, const char *command) {
    char text[4400];
    (void)snprintf(text, sizeof text, "cd %s && %s", directory, command);
    ck_assert_msg(system(text) == 0, "%s", text);
}

TEST(an_update_is_compiled_once_and_kept) {
    char directory[] = "/tmp/weft-compiled-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(cache, sizeof cache, "device.cache=%s/a/b", directory);
    ck_assert_int_eq(count_compiled(), 1);
    ck_assert_int_eq(count_compiled(), 0);
    run_in(directory, "test $(ls a/b | wc -l) = 1 && test $(stat -c %a a/b) = 700");
    /* Damaged, truncated or empty files are made again, and complete afterwards. */
    run_in(directory, "printf x | dd of=$(ls -d a/b/*) bs=1 seek=100 conv=notrunc status=none");
    ck_assert_int_eq(count_compiled(), 1);
    run_in(directory, "truncate -s 200 a/b/*");
    ck_assert_int_eq(count_compiled(), 1);
    run_in(directory, "truncate -s 0 a/b/*");
    ck_assert_int_eq(count_compiled(), 1);
    ck_assert_int_eq(count_compiled(), 0);
    run_in(directory, "rm -r a");
    /* A cache that cannot be written does not stop a run; a directory that cannot be created does. */
    (void)snprintf(cache, sizeof cache, "device.cache=/proc/self"); /* a directory without write access */
    start_counting();
    everything e = {0};
    ck_assert_int_eq(make(&e), WEFT_OK); /* it exists */
    ck_assert_int_eq(play(&e), WEFT_OK);
    unmake(&e);
    run_in(directory, "touch a");
    (void)snprintf(cache, sizeof cache, "device.cache=%s/a/c", directory);
    memset(&e, 0, sizeof e);
    ck_assert_int_eq(make(&e), WEFT_E_USER);
    ck_assert_msg(strstr(err.text, "/a/c in [device] cannot be created") != NULL, "%s", err.text);
    ck_assert_int_eq(held, 0);
    run_in(directory, "rm a && rmdir ../$(basename $(pwd))");
    use_cache(false);
}

static int lacks; /* log lines about a missing cache directory */
static void count_lacks(const weft_host *h, int32_t level, const char *text) {
    (void)h;
    lacks += level == WEFT_LOG_WARN && strstr(text, "has no directory for compiled updates") != NULL;
}

/* Compiles two updates; returns how often the device logs that it cannot cache them. */
static int play_without_place(const char *setting) {
    const weft_elementwise other = toy_update;
    start_counting();
    everything e = {0};
    counting.log = count_lacks;
    lacks = 0;
    (void)snprintf(cache, sizeof cache, "%s", setting);
    ck_assert_msg(make(&e) == WEFT_OK && play(&e) == WEFT_OK, "%s", err.text);
    kernel = &other;
    ck_assert_msg(update(&e) == WEFT_OK && table->synchronize(e.device, NULL, &err) == WEFT_OK, "%s", err.text);
    kernel = &toy_update;
    unmake(&e);
    use_cache(false);
    return lacks;
}

TEST(that_nothing_can_be_kept_is_told_once) {
    const long long before = emulator_calls("nvrtcCompileProgram");
    ck_assert_int_eq(unsetenv("XDG_CACHE_HOME"), 0);
    ck_assert_int_eq(setenv("HOME", "/proc/none", 1), 0);
    ck_assert_int_eq(play_without_place("device.cache=auto"), 1);
    ck_assert_int_eq(emulator_calls("nvrtcCompileProgram") - before, 2);
    ck_assert_int_eq(play_without_place("device.cache=none"), 0); /* no directory was requested */
}

/* ---- chunks of the head ---- */

/* Few large chunks, because each one reads and writes the complete gradient of w; but at most 1 GiB of logits. */
TEST(chunks_of_the_head_are_large) {
    const int64_t mib = 1 << 20;
    weft_head h = {.struct_size = sizeof h, .rows = 8192, .width = 2048, .vocab = 128256, .dtype = WEFT_BF16};
    int64_t bytes = table->head_loss_grad_workspace(devices[0], &h);
    ck_assert_int_ge(bytes, 2048 * h.vocab * 4);
    ck_assert_int_le(bytes, 1024 * mib + 16 * mib);
    h.vocab = 262144;
    bytes = table->head_loss_grad_workspace(devices[0], &h);
    ck_assert_int_ge(bytes, 1024 * mib);
    ck_assert_int_le(bytes, 1024 * mib + 16 * mib);
}

/* ---- measured algorithms ---- */

enum { EDGE = 128, DEEP = 16384 }; /* small partial sums, and enough work to be measured */

typedef struct measuring {
    const char *times; /* percentages by algorithm; NULL: all equal */
    const char *plant; /* planted failures */
    const char *taken; /* the value that a resume sets before; NULL: none */
    int64_t k;
    bool off;           /* the key `measure` */
    weft_status status; /* of choose */
    weft_device_choice choice;
    long long matmuls, left; /* calls; allocations that are not freed */
} measuring;

/* Selects the algorithm of a matmul as rank 0 does, on a new device. Returns its id, or -1. */
static int measure(measuring *t) {
    start_counting();
    everything e = {0};
    const int64_t k = t->k > 0 ? t->k : DEEP;
    const weft_matmul m = {.struct_size = sizeof m,
                           .m = EDGE,
                           .n = EDGE,
                           .k = k,
                           .lda = k,
                           .ldb = EDGE,
                           .ldc = EDGE,
                           .dtype_a = WEFT_BF16,
                           .dtype_b = WEFT_BF16,
                           .dtype_c = WEFT_F32};
    int way = -1;
    ck_assert_msg(make_device_for(&e, 0, t->off ? "measure=no" : "measure=yes") == WEFT_OK, "%s", err.text);
    ck_assert_int_gt(table->matmul_workspace(e.device, &m), 0);
    t->choice = (weft_device_choice){.struct_size = sizeof t->choice};
    choices->get(e.device, 0, &t->choice);
    if (t->taken != NULL) {
        (void)snprintf(t->choice.value, sizeof t->choice.value, "%s", t->taken);
        ck_assert_int_eq(choices->take(e.device, &t->choice, &err), WEFT_OK);
    }
    (void)setenv("WEFT_EMULATOR_TIMES", t->times == NULL ? "" : t->times, 1);
    emulator_plant(t->plant);
    t->matmuls = emulator_calls("cublasLtMatmul");
    t->left = emulator_calls("cudaMalloc") - emulator_calls("cudaFree");
    t->status = choices->choose(e.device, &t->choice, &err);
    t->matmuls = emulator_calls("cublasLtMatmul") - t->matmuls;
    t->left = emulator_calls("cudaMalloc") - emulator_calls("cudaFree") - t->left;
    emulator_plant(NULL);
    (void)unsetenv("WEFT_EMULATOR_TIMES");
    table->destroy(e.device);
    ck_assert_int_eq(held, 0);
    ck_assert_int_eq(t->status == WEFT_OK, sscanf(t->choice.note, "way %d", &way) == 1);
    return way;
}

/* Percentages: `percent` for algorithm `which`, 100 for others. */
static const char *times_of(int which, int percent) {
    static char out[64];
    int n = 0;
    for (int i = 0; i < 4; i++) n += snprintf(out + n, sizeof out - (size_t)n, "%d,", i == which ? percent : 100);
    return out;
}

/* The fastest of cuBLASLt's algorithms is used, unless the first one is almost as fast. The first run stores it for
 * later runs, and a resume uses the checkpoint's. */
TEST(the_fastest_algorithm_is_selected_and_stored) {
    char directory[] = "/tmp/weft-measured-XXXXXX";
    measuring one = {.off = true}, again = {0}, resumed = {0}, small = {.k = 64};
    everything e = {0};
    start_counting();
    ck_assert_ptr_nonnull(mkdtemp(directory));
    use_cache(false);
    const int first = measure(&one), other = (first + 2) % 4;
    ck_assert_int_eq(one.matmuls, 0);
    one.off = false;
    ck_assert_int_eq(make_device_for(&e, 0, "measure=yes"), WEFT_E_USER); /* without a cache */
    (void)snprintf(cache, sizeof cache, "device.cache=%s", directory);
    small.times = one.times = times_of(other, 90);
    (void)measure(&small);
    ck_assert_int_eq(small.matmuls, 0);
    ck_assert_int_eq(measure(&one), other);
    ck_assert_int_gt(one.matmuls, 4 * 4);
    ck_assert_int_eq(one.left, 0);
    again.times = times_of(first, 50);
    ck_assert_int_eq(measure(&again), other);
    ck_assert_int_eq(again.matmuls, 0);
    run_in(directory, "test $(ls | wc -l) = 1 && truncate -s 100 *");
    again.times = times_of(other, 99);
    ck_assert_int_eq(measure(&again), first); /* measured again: almost as fast */
    ck_assert_int_gt(again.matmuls, 0);
    ck_assert_int_eq(measure(&resumed), first);
    resumed.taken = one.choice.value;
    ck_assert_int_eq(measure(&resumed), other);
    ck_assert_int_eq(resumed.matmuls, 0);
    run_in(directory, "rm * && rmdir ../$(basename $(pwd))");
    use_cache(false);
}

/* Too little memory leaves the first algorithm, and so does a cache that cannot be written. Other errors are returned.
 * All free what they took. */
TEST(failed_measurements_leave_nothing) {
    char directory[] = "/tmp/weft-measured-XXXXXX";
    const char *const failures[] = {"cudaEventCreate:1=999", "cudaEventElapsedTime:3=999", "cublasLtMatmul:5=13"};
    measuring one = {.off = true};
    ck_assert_ptr_nonnull(mkdtemp(directory));
    use_cache(false);
    const int first = measure(&one);
    one.off = false;
    one.times = times_of((first + 2) % 4, 90);
    (void)snprintf(cache, sizeof cache, "device.cache=/proc/self"); /* a directory without write access */
    ck_assert_int_eq(measure(&one), first);
    (void)snprintf(cache, sizeof cache, "device.cache=%s", directory);
    one.plant = "cudaMalloc:1=2";
    ck_assert_int_eq(measure(&one), first);
    ck_assert_int_eq(one.matmuls, 0);
    for (int i = 0; i < 3; i++) {
        one.plant = failures[i];
        ck_assert_int_eq(measure(&one), -1);
        ck_assert_int_eq(one.status, WEFT_E_DEVICE);
        ck_assert_int_eq(one.left, 0);
    }
    run_in(directory, "rmdir ../$(basename $(pwd))"); /* nothing is stored */
    use_cache(false);
}

WEFT_HP(wrong_hp, float lr;)
static const weft_elementwise wrong_update = {(uint32_t)sizeof(weft_elementwise),
                                              0,
                                              "wrong_update",
                                              "wrong_hp",
                                              wrong_hp_fields,
                                              "s0 += g; w -= hp->lr * momentum;",
                                              1,
                                              NULL};

static void begin_dry_run(const everything *e) {
    const weft_device_dry_run *dry = table->extension(e->device, WEFT_DEVICE_DRY_RUN);
    ck_assert_msg(dry->begin(e->device, &err) == WEFT_OK, "%s", err.text);
}
static void end_dry_run(const everything *e) {
    const weft_device_dry_run *dry = table->extension(e->device, WEFT_DEVICE_DRY_RUN);
    dry->end(e->device);
}

TEST(an_authors_mistake_is_shown) {
    start_counting();
    everything e = {0};
    ck_assert_int_eq(make(&e), WEFT_OK);
    const weft_ref x = at(&e, 3);
    const weft_update_region region = {
        .struct_size = sizeof region, .weight = at(&e, 0), .gradient = at(&e, 1), .states = {x}};
    const weft_update u = {.struct_size = sizeof u,
                           .kernel = &wrong_update,
                           .hp = x,
                           .coefficient = x,
                           .skip = x,
                           .regions = &region,
                           .n_regions = 1,
                           .region_stride = sizeof region};
    for (int is_dry = 0; is_dry < 2; is_dry++) {
        err = (weft_error)WEFT_ERROR_INIT;
        if (is_dry) begin_dry_run(&e);
        const weft_status status = table->update(e.device, NULL, &u, &err);
        if (is_dry) end_dry_run(&e);
        ck_assert_int_eq(status, WEFT_E_PLUGIN);
        ck_assert_msg(strstr(err.text, "update wrong_update cannot be compiled for the GPU") != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, "wrong_update:2") != NULL && strstr(err.text, "momentum") != NULL, "%s",
                      err.text);
    }
    unmake(&e);
    ck_assert_int_eq(held, 0);
}

/* The code compiled by a dry run is used later; nothing is loaded before. */
TEST(a_dry_run_compiles_and_loads_nothing) {
    const long long compiled = emulator_calls("nvrtcCompileProgram"), loaded = emulator_calls("cuModuleLoadData");
    start_counting();
    everything e = {0};
    ck_assert_int_eq(make(&e), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        begin_dry_run(&e);
        ck_assert_msg(update(&e) == WEFT_OK, "%s", err.text);
        end_dry_run(&e);
    }
    ck_assert_int_eq(emulator_calls("nvrtcCompileProgram") - compiled, 1);
    ck_assert_int_eq(emulator_calls("cuModuleLoadData") - loaded, 0);
    ck_assert_msg(play(&e) == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(emulator_calls("nvrtcCompileProgram") - compiled, 1);
    ck_assert_int_eq(emulator_calls("cuModuleLoadData") - loaded, 1);
    unmake(&e);
    ck_assert_int_eq(held, 0);
}

/* ---- one launch for all regions of a type ---- */

/* Returns the launches of an update of n regions, some with a bf16 weight, every second with a copy, and one empty. */
static int64_t launches_of(const everything *e, int32_t n, int32_t narrow) {
    const weft_ref x = at(e, 3);
    const weft_device_dry_run *dry = NULL;
    weft_dry_counts counts = {.struct_size = sizeof counts};
    weft_update_region *regions = calloc((size_t)n + 1, sizeof *regions);
    const weft_update u = {.struct_size = sizeof u,
                           .kernel = &toy_update,
                           .hp = x,
                           .coefficient = x,
                           .skip = x,
                           .regions = regions,
                           .n_regions = n + 1,
                           .region_stride = sizeof *regions};
    for (int32_t i = 0; i <= n; i++)
        regions[i] = (weft_update_region){.struct_size = sizeof *regions,
                                          .weight = x,
                                          .gradient = x,
                                          .states = {x},
                                          .ranges = x,
                                          .n = i < n ? 4 : 0,
                                          .n_ranges = 1,
                                          .range_stride = sizeof(weft_range),
                                          .weight_dtype = i < narrow ? WEFT_BF16 : WEFT_F32,
                                          .copy = {i % 2 == 0 ? x.buffer : NULL, x.offset},
                                          .copy_dtype = WEFT_F16};
    ck_assert_int_eq(weft_device_dry_run_find(&dry, table, e->device, &err), WEFT_OK);
    ck_assert_int_eq(dry->begin(e->device, &err), WEFT_OK);
    ck_assert_msg(table->update(e->device, NULL, &u, &err) == WEFT_OK, "%s", err.text);
    dry->counts(e->device, &counts);
    dry->end(e->device);
    free(regions);
    return counts.kernels;
}

TEST(an_update_is_one_launch_for_each_type) {
    start_counting();
    everything e = {0};
    ck_assert_int_eq(make(&e), WEFT_OK);
    ck_assert_int_eq(launches_of(&e, 0, 0), 0);
    ck_assert_int_eq(launches_of(&e, 1, 0), 1);
    ck_assert_int_eq(launches_of(&e, 46, 0), 1);
    ck_assert_int_eq(launches_of(&e, 370, 0), 1);
    ck_assert_int_eq(launches_of(&e, 371, 0), 2);
    ck_assert_int_eq(launches_of(&e, 60, 20), 2);
    unmake(&e);
    ck_assert_int_eq(held, 0);
}

/* ---- calls that cannot be captured ---- */

static void refuse_in_recording(const char *what, weft_status status) {
    weft_captured_graph *none = NULL;
    weft_error second = WEFT_ERROR_INIT;
    ck_assert_msg(status == WEFT_E_HOST, "%s: %d", what, status);
    ck_assert_msg(strstr(err.text, what) != NULL && strstr(err.text, "while a step was recorded") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(capture->end(devices[0], NULL, &none, &second), WEFT_E_HOST); /* the failed call ended it */
    ck_assert_ptr_null(none);
}

TEST(what_cannot_be_recorded_ends_the_recording) {
    weft_device *d = devices[0];
    weft_buffer *b = NULL, *other = NULL;
    weft_event *m = NULL;
    void *pinned = NULL;
    char bytes[8] = {0};
    ck_assert_int_eq(table->alloc(d, &b, 64, &err), WEFT_OK);
    ck_assert_int_eq(transfer->take(d, &pinned, 64, &err), WEFT_OK);
    const weft_ref ref = {b, 0};
    ck_assert_int_eq(table->record_event(d, NULL, &m, &err), WEFT_OK);
#define RECORDING ck_assert_msg(capture->begin(d, NULL, &err) == WEFT_OK, "%s", err.text)
    RECORDING;
    refuse_in_recording("alloc", table->alloc(d, &other, 64, &err));
    RECORDING;
    refuse_in_recording("read", table->read(d, NULL, bytes, ref, 8, &err));
    RECORDING;
    refuse_in_recording("write", table->write(d, NULL, ref, bytes, 8, &err));
    RECORDING;
    refuse_in_recording("synchronize", table->synchronize(d, NULL, &err));
    RECORDING;
    refuse_in_recording("take", transfer->take(d, &pinned, 64, &err));
    RECORDING;
    refuse_in_recording("begin", capture->begin(d, NULL, &err));
    RECORDING;
    ck_assert_int_lt(transfer->reached(d, m, &err), 0);
    refuse_in_recording("reached", (weft_status)err.code);
    RECORDING;
    refuse_in_recording("await", transfer->await(d, m, &err));
    transfer->give_back(d, pinned);
    table->release(d, b);
}

/* A captured graph reads the memory's contents at replay, in the order of its streams. */
TEST(a_recording_reads_anew) {
    weft_device *d = devices[0];
    weft_buffer *b = NULL;
    weft_stream *side = NULL;
    weft_captured_graph *recording = NULL;
    weft_event *m = NULL;
    uint32_t *pinned = NULL, got[2] = {0};
    ck_assert_int_eq(table->alloc(d, &b, 64, &err), WEFT_OK);
    ck_assert_int_eq(table->stream_create(d, &side, &err), WEFT_OK);
    ck_assert_int_eq(transfer->take(d, (void **)&pinned, 64, &err), WEFT_OK);
    const weft_ref first = {b, 0}, second = {b, 4};
    ck_assert_int_eq(capture->begin(d, NULL, &err), WEFT_OK);
    ck_assert_int_eq(transfer->upload(d, NULL, first, pinned, 4, &err), WEFT_OK);
    ck_assert_int_eq(table->record_event(d, NULL, &m, &err), WEFT_OK);
    ck_assert_int_eq(table->wait(d, side, m, &err), WEFT_OK);
    ck_assert_int_eq(table->copy(d, side, second, first, 4, &err), WEFT_OK);
    ck_assert_int_eq(table->record_event(d, side, &m, &err), WEFT_OK);
    ck_assert_int_eq(table->wait(d, NULL, m, &err), WEFT_OK);
    ck_assert_msg(capture->end(d, NULL, &recording, &err) == WEFT_OK, "%s", err.text);
    for (uint32_t i = 1; i < 4; i++) {
        pinned[0] = i * 1000;
        ck_assert_int_eq(capture->replay(d, NULL, recording, &err), WEFT_OK);
        ck_assert_int_eq(table->read(d, NULL, got, first, 8, &err), WEFT_OK);
        ck_assert_uint_eq(got[0], i * 1000);
        ck_assert_uint_eq(got[1], i * 1000);
    }
    capture->destroy(d, recording);
    transfer->give_back(d, pinned);
    table->stream_destroy(d, side);
    table->release(d, b);
}

/* ---- streams ---- */

/* Everything runs in one stream without a wait on the default stream: its work is not done before a wait. */
TEST(calls_run_in_the_stream_that_they_are_given) {
    enum { BYTES = 64 };
    weft_device *d = devices[0];
    weft_stream *side = NULL;
    weft_buffer *b = NULL;
    weft_event *m = NULL;
    float from[BYTES / 4], got[2 * BYTES / 4], *pinned = NULL;
    ck_assert_int_eq(table->alloc(d, &b, 4 * BYTES, &err), WEFT_OK);
    ck_assert_int_eq(table->stream_create(d, &side, &err), WEFT_OK);
    ck_assert_int_eq(transfer->take(d, (void **)&pinned, 2 * BYTES, &err), WEFT_OK);
    const weft_ref one = {b, 0}, two = {b, BYTES}, three = {b, 2 * BYTES}, four = {b, 3 * BYTES};
    for (int i = 0; i < BYTES / 4; i++) from[i] = pinned[i] = (float)(i + 1);
    ck_assert_int_eq(table->write(d, side, one, from, BYTES, &err), WEFT_OK);
    ck_assert_int_eq(table->copy(d, side, two, one, BYTES, &err), WEFT_OK);
    ck_assert_int_eq(table->read(d, side, got, one, 2 * BYTES, &err), WEFT_OK);
    for (int i = 0; i < 2 * BYTES / 4; i++) ck_assert_float_eq(got[i], from[i % (BYTES / 4)]);
    ck_assert_int_eq(table->fill(d, side, two, 0x3F800000u, BYTES / 4, &err), WEFT_OK);
    ck_assert_int_eq(table->convert(d, side, three, WEFT_BF16, two, WEFT_F32, BYTES / 4, &err), WEFT_OK);
    ck_assert_int_eq(table->convert(d, side, four, WEFT_F32, three, WEFT_BF16, BYTES / 4, &err), WEFT_OK);
    ck_assert_int_eq(table->read(d, side, got, four, BYTES, &err), WEFT_OK);
    for (int i = 0; i < BYTES / 4; i++) ck_assert_float_eq(got[i], 1.0f);
    ck_assert_int_eq(transfer->upload(d, side, four, pinned, BYTES, &err), WEFT_OK);
    ck_assert_int_eq(transfer->download(d, side, pinned + BYTES / 4, four, BYTES, &err), WEFT_OK);
    ck_assert_int_eq(table->record_event(d, side, &m, &err), WEFT_OK);
    ck_assert_int_eq(transfer->await(d, m, &err), WEFT_OK); /* and its dependencies are done */
    for (int i = 0; i < BYTES / 4; i++) ck_assert_float_eq(pinned[BYTES / 4 + i], from[i]);
    transfer->give_back(d, pinned);
    table->stream_destroy(d, side);
    table->release(d, b);
}

/* ---- requirements on a machine ---- */

static void expect_no_device(const char *variable, const char *value, int32_t index, const char *keys,
                             const char *says) {
    start_counting();
    everything e = {0};
    (void)setenv(variable, value, 1);
    ck_assert_msg(make_device_for(&e, index, keys) != WEFT_OK, "%s=%s", variable, value);
    ck_assert_msg(strstr(err.text, says) != NULL, "%s=%s: %s", variable, value, err.text);
    ck_assert_int_eq(held, 0);
    (void)unsetenv(variable);
}

/* Chunks travel to the GPU and back through two pinned buffers (model/region.h). The host waits only for the
 * needed one, and each chunk is correct although copies run only at a wait. */
TEST(pieces_travel_while_the_next_is_worked_on) {
    enum { PIECES = 7, WORDS = 3000 };
    const int64_t bytes = WORDS * 4;
    everything e = {0};
    start_counting();
    weft_double_buffer double_buffer;
    long long waits = 0, pageable = 0;
    ck_assert_msg(make_device_for(&e, 0, "share=yes") == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(table->alloc(e.device, &e.memory, PIECES * bytes, &err), WEFT_OK);
    ck_assert_int_eq(weft_double_buffer_open(&double_buffer, table, e.device, bytes, &err), WEFT_OK);
    waits = emulator_calls("cudaEventSynchronize");
    pageable = emulator_calls("pageableCopy");
    for (int i = 0; i < PIECES; i++) {
        void *room = NULL;
        ck_assert_int_eq(weft_double_buffer_take(&double_buffer, 1, &room, &err), WEFT_OK);
        ck_assert_int_eq(emulator_calls("cudaEventSynchronize") - waits, i < 2 ? 0 : i - 1);
        for (int j = 0; j < WORDS; j++) ((int32_t *)room)[j] = i * WORDS + j;
        ck_assert_int_eq(weft_double_buffer_send(&double_buffer, (weft_ref){e.memory, i * bytes}, bytes, &err),
                         WEFT_OK);
    }
    ck_assert_int_eq(weft_double_buffer_close(&double_buffer, &err), WEFT_OK);
    ck_assert_int_eq(weft_double_buffer_open(&double_buffer, table, e.device, bytes, &err), WEFT_OK);
    ck_assert_int_eq(weft_double_buffer_fetch(&double_buffer, (weft_ref){e.memory, 0}, bytes, &err), WEFT_OK);
    for (int i = 0; i < PIECES; i++) {
        const bool more = i + 1 < PIECES;
        void *there = NULL;
        waits = emulator_calls("cudaEventSynchronize");
        if (more)
            ck_assert_int_eq(
                weft_double_buffer_fetch(&double_buffer, (weft_ref){e.memory, (i + 1) * bytes}, bytes, &err), WEFT_OK);
        ck_assert_int_eq(emulator_calls("cudaEventSynchronize"), waits);
        ck_assert_int_eq(weft_double_buffer_take(&double_buffer, more ? 1 : 0, &there, &err), WEFT_OK);
        for (int j = 0; j < WORDS; j++) HOLDS(((const int32_t *)there)[j] == i * WORDS + j);
    }
    ck_assert_int_eq(weft_double_buffer_close(&double_buffer, &err), WEFT_OK);
    ck_assert_int_eq(emulator_calls("pageableCopy"), pageable);
    table->release(e.device, e.memory);
    table->destroy(e.device);
    ck_assert_int_eq(held, 0);
}

/* More than all of the device's staging buffers, by `write` and `read`, which accept any host memory and addresses of
 * any alignment. The written memory is overwritten at once. */
TEST(writes_and_reads_pass_through_pinned_memory) {
    enum { N_BYTES = (9 << 20) + 13 };
    everything e = {0};
    start_counting();
    unsigned char *sent = malloc(N_BYTES), *got = malloc(N_BYTES);
    const long long pageable = emulator_calls("pageableCopy");
    ck_assert_msg(make_device_for(&e, 0, "share=yes") == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(table->alloc(e.device, &e.memory, N_BYTES + 3, &err), WEFT_OK);
    const weft_ref at = {e.memory, 3};
    for (int again = 0; again < 2; again++) {
        for (int64_t i = 0; i < N_BYTES; i++) sent[i] = (unsigned char)(i * 31 + i / 65536 + again);
        ck_assert_int_eq(table->write(e.device, NULL, at, sent, N_BYTES, &err), WEFT_OK);
        memset(sent, 0, N_BYTES);
        ck_assert_int_eq(table->read(e.device, NULL, got, at, N_BYTES, &err), WEFT_OK);
        for (int64_t i = 0; i < N_BYTES; i++) HOLDS(got[i] == (unsigned char)(i * 31 + i / 65536 + again));
    }
    ck_assert_int_eq(emulator_calls("pageableCopy"), pageable);
    table->release(e.device, e.memory);
    table->destroy(e.device);
    ck_assert_int_eq(held, 0);
    free(got);
    free(sent);
}

/* ---- peak rates, ranges ---- */

static weft_status measure_rates(everything *e, const char *planted, double *peak, double *bandwidth) {
    const weft_device_roofline *roofline = table->extension(e->device, WEFT_DEVICE_ROOFLINE);
    weft_status status = WEFT_OK;
    ck_assert_ptr_nonnull(roofline);
    ck_assert(roofline->product == NULL);
    emulator_plant(planted);
    status = roofline->peak(e->device, peak, WEFT_BF16, &err);
    return status == WEFT_OK ? roofline->bandwidth(e->device, bandwidth, &err) : status;
}

TEST(peak_rates_are_measured) {
    const weft_device_roofline *roofline = NULL;
    counting = host;
    everything e = {0};
    double bandwidth = 0;
    ck_assert_int_eq(make_device_for(&e, 0, "tf32=no"), WEFT_OK);
    roofline = table->extension(e.device, WEFT_DEVICE_ROOFLINE);
    for (int i = 0; i < 3; i++) {
        double peak = 0;
        ck_assert_msg(roofline->peak(e.device, &peak, dtypes[i], &err) == WEFT_OK, "%s", err.text);
        ck_assert_double_gt(peak, 1e9);
        ck_assert_double_lt(peak, 1e12);
    }
    ck_assert_msg(roofline->bandwidth(e.device, &bandwidth, &err) == WEFT_OK, "%s", err.text);
    ck_assert_double_eq_tol(bandwidth, 2e10, 1e9); /* read and written, at the emulator's rate */
    ck_assert_int_eq(roofline->peak(e.device, &(double){0}, WEFT_F64, &err), WEFT_E_UNSUPPORTED);
    table->destroy(e.device);
}

TEST(a_failed_measurement_leaves_nothing) {
    static const char *const planted[] = {"cudaMalloc:1=2",          "cudaMemcpyAsync:2=1", "cublasLtMatmul:4=14",
                                          "cudaEventCreate:2=2",     "cudaEventRecord:5=1", "cudaEventSynchronize:9=1",
                                          "cudaEventElapsedTime:2=1"};
    counting = host;
    everything e = {0};
    double peak = 0, bandwidth = 0;
    counting.alloc = counted_alloc;
    counting.release = counted_release;
    ck_assert_int_eq(make_device_for(&e, 0, "tf32=no"), WEFT_OK);
    ck_assert_int_eq(measure_rates(&e, NULL, &peak, &bandwidth), WEFT_OK); /* keeps the choice of an algorithm */
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        const int64_t before = held;
        char name[40] = "";
        ck_assert_int_ne(measure_rates(&e, planted[i], &peak, &bandwidth), WEFT_OK);
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(planted[i], ":"), planted[i]);
        ck_assert_msg(strcmp(name, "cudaMalloc") == 0 || strstr(err.text, name) != NULL, "%s: %s", name, err.text);
        ck_assert_int_eq(held, before);
        ck_assert_int_eq(emulator_calls("cudaEventDestroy"),
                         emulator_calls("cudaEventCreate") - (strcmp(name, "cudaEventCreate") == 0));
        emulator_plant(NULL);
        table->synchronize(e.device, NULL, &err);
    }
    ck_assert_int_eq(measure_rates(&e, NULL, &peak, &bandwidth), WEFT_OK);
    table->destroy(e.device);
}

TEST(ranges_are_offered_if_they_are_wanted) {
    for (int on = 0; on < 2; on++) {
        const weft_device_ranges *ranges = NULL;
        counting = host;
        everything e = {0};
        emulator_plant(NULL);
        ck_assert_int_eq(make_device_for(&e, 0, on ? "nvtx=yes" : "nvtx=no"), WEFT_OK);
        ck_assert_int_eq(weft_device_ranges_find(&ranges, table, e.device, &err), WEFT_OK);
        ck_assert_int_eq(ranges != NULL, on);
        if (on) ranges->begin(e.device, "FORWARD");
        if (on) ranges->end(e.device);
        ck_assert_int_eq(emulator_calls("nvtxRangePushA"), on);
        ck_assert_int_eq(emulator_calls("nvtxRangePop"), on);
        table->destroy(e.device);
    }
}

TEST(what_is_missing_is_named) {
    expect_no_device("WEFT_EMULATOR_DEVICES", "-1", 0, "share=no", "there is no NVIDIA driver on this machine");
    expect_no_device("WEFT_EMULATOR_DEVICES", "0", 0, "share=no", "this process may use no NVIDIA card");
    expect_no_device("WEFT_EMULATOR_DRIVER", "12040", 0, "share=no",
                     "the NVIDIA driver is too old: it runs CUDA up to 12.4");
    expect_no_device("WEFT_EMULATOR_CAPABILITY", "75", 0, "share=no",
                     "has compute capability 7.5; 8.0 (Ampere) is the least");
    expect_no_device("WEFT_EMULATOR_DEVICES", "2", 2, "share=no", "This machine has 2 cards for 3 ranks.");
    expect_no_device("WEFT_EMULATOR_DEVICES", "1", 0, "cache=/dev/null",
                     "cache = /dev/null in [device] cannot be created: Not a directory.");
    (void)setenv("WEFT_EMULATOR_DEVICES", "-1", 1); /* and before any object is created */
    ck_assert_int_eq(plugin->works(&host, &err), WEFT_E_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "there is no NVIDIA driver"));
    (void)unsetenv("WEFT_EMULATOR_DEVICES");
    ck_assert_int_eq(plugin->works(&host, &err), WEFT_OK);
}

TEST(ranks_may_share_a_card) {
    start_counting();
    everything one = {0}, two = {0};
    weft_device_info info = {.struct_size = sizeof info};
    ck_assert_msg(make_device_for(&one, 0, "share=yes") == WEFT_OK, "%s", err.text);
    ck_assert_msg(make_device_for(&two, 1, "share=yes") == WEFT_OK, "%s", err.text);
    table->info(two.device, &info);
    ck_assert_str_eq(info.isa, "sm_90");
    ck_assert_int_gt(info.memory, 0);
    ck_assert_uint_eq(info.packed, 1u << WEFT_I8X64 | 1u << WEFT_NF4 | 1u << WEFT_NF4X64 | 1u << WEFT_F8X128);
    table->destroy(two.device);
    table->destroy(one.device);
    ck_assert_int_eq(held, 0);
}

/* ---- machines ---- */

/* Machines with equal names, and with equal boot ids. */
TEST(machines_are_told_apart) {
    const uint64_t one = machine_number_of("4e1c\n", "node");
    ck_assert_uint_eq(one, machine_number_of("4e1c\n", "node"));
    ck_assert_uint_ne(one, machine_number_of("77d0\n", "node"));
    ck_assert_uint_ne(one, machine_number_of("4e1c\n", "other"));
    ck_assert_uint_ne(machine_number_of("", "node"), machine_number_of("", "other"));
    ck_assert_uint_eq(machine_number(), machine_number());
    ck_assert_uint_ne(machine_number(), machine_number_of("", ""));
}

/* Values that the first of two ranks on one GPU sends to the other. */
static char put_key[61], got_key[61];
static char put_value[64];

static weft_status put_value_of(const weft_host *h, const char *key, const void *bytes, size_t n, weft_error *failure) {
    (void)h, (void)failure;
    ck_assert_uint_le(n, sizeof put_value);
    (void)snprintf(put_key, sizeof put_key, "%s", key);
    memcpy(put_value, bytes, n);
    return WEFT_OK;
}
static weft_status get_the_same(const weft_host *h, const char *key, void *bytes, size_t n, weft_error *failure) {
    (void)h, (void)failure;
    (void)snprintf(got_key, sizeof got_key, "%s", key);
    memcpy(bytes, put_value, n);
    return WEFT_OK;
}
static const void *two_ranks(const weft_host *h, const char *id) {
    static const weft_host_world world = {.struct_size = sizeof world, .size = 2, .local_size = 2};
    static const weft_host_exchange exchange = {sizeof exchange, 0, put_value_of, get_the_same};
    (void)h;
    if (strcmp(id, WEFT_HOST_WORLD) == 0) return &world;
    return strcmp(id, WEFT_HOST_EXCHANGE) == 0 ? &exchange : NULL;
}

TEST(ranks_compare_cards_with_those_of_their_machine_alone) {
    start_counting();
    everything e = {0};
    char key[61];
    counting.extension = two_ranks;
    ck_assert_msg(make_device_for(&e, 0, "share=yes") == WEFT_OK, "%s", err.text);
    (void)snprintf(key, sizeof key, "cuda.card.%016llx.0", (unsigned long long)machine_number());
    ck_assert_str_eq(put_key, key);
    (void)snprintf(key, sizeof key, "cuda.card.%016llx.1", (unsigned long long)machine_number());
    ck_assert_str_eq(got_key, key);
    table->destroy(e.device);
    ck_assert_int_eq(held, 0);
}

int main(void) {
    TCase *tests = tcase_create("cuda.device");
    tcase_add_unchecked_fixture(tests, setup, unload_plugin);
    tcase_set_timeout(tests, 600);
    return run_tests_in_one_process(tests);
}
