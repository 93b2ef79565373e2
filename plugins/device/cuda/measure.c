/* measure.c: see algorithm.h. Times a shape's algorithms on random operands before the first step, while the run's
 * buffers do not exist yet. The fastest one is stored in the cache directory: measurements vary, and another algorithm
 * has other bits, so all runs on a machine use the first run's selection. */
#include "algorithm.h"
#include "modules.h"
#include "workspace.h"

enum { ROUNDS = 9, LEAST_ROUNDS = 3, MOST_REPEATS = 10 };
#define LEAST_WORK 0x1p28             /* multiply-adds of a measured matmul */
#define SAMPLE     0.2f               /* milliseconds of a sample of short matmuls */
#define BUDGET     60.0f              /* milliseconds for all rounds of a shape */
#define MARGIN     0.98f              /* a faster algorithm takes at most this share of the first one's time */
#define PATTERN    ((int64_t)1 << 20) /* bytes of random numbers, repeated in all operands */

typedef struct trial {
    weft_device *device;
    cuda_algorithm *of;
    cuda_product product;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *memory;
    int64_t bytes;
} trial;

/* ---- operands ---- */

static cuda_product product_of(const cuda_shape *s) {
    const cuda_product p = {.m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .lda = s->lda,
                            .ldb = s->ldb,
                            .ldc = s->ldc,
                            .dtype_a = s->dtype,
                            .dtype_b = s->dtype,
                            .dtype_c = s->dtype_c,
                            .transpose_a = s->transpose_a,
                            .transpose_b = s->transpose_b,
                            .accumulate = s->accumulate,
                            .has_bias = s->has_bias,
                            .a_is_part = s->a_is_part};
    return p;
}

static int64_t lay_out(room r, const weft_device *device, cuda_product *p) {
    p->a = room_take(&r, (p->transpose_a ? p->k : p->m) * p->lda * cell_bytes(p->dtype_a));
    p->b = room_take(&r, (p->transpose_b ? p->n : p->k) * p->ldb * cell_bytes(p->dtype_b));
    p->c = room_take(&r, p->m * p->ldc * cell_bytes(p->dtype_c));
    p->bias = room_take(&r, p->has_bias ? p->n * (int64_t)sizeof(float) : 0);
    p->workspace = room_take(&r, cuda_product_workspace(device, p));
    return room_bytes(&r);
}

/* Fills the operands with numbers that are finite in every type, from 0.5 to 2 with random signs. Zeros would need less
 * power, so that the clock would be higher than in a step. */
static weft_status fill(const trial *t, weft_error *err) {
    const int64_t first = size_min(PATTERN, t->bytes);
    uint16_t *words = malloc((size_t)PATTERN);
    uint32_t state = 1;
    weft_status status = WEFT_OK;
    if (words == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for random numbers.");
    for (int64_t i = 0; i < PATTERN / 2; i++) {
        state = state * 1664525 + 1013904223;
        words[i] = (uint16_t)(0x3f00 | (state >> 16 & 0x80ff));
    }
    status = cuda_staging_send(t->device, t->stream, t->memory, words, first, err);
    free(words);
    for (int64_t done = first; done < t->bytes && status == WEFT_OK; done *= 2)
        status = cuda_judge(cuda_move(t->memory + done, t->memory, size_min(done, t->bytes - done),
                                      cudaMemcpyDeviceToDevice, t->stream),
                            "measuring a matmul", err);
    return status;
}

static void close_trial(trial *t) {
    if (t->memory != NULL) cuda_end(t->device, cudaFree(t->memory));
    if (t->begin != NULL) cuda_end(t->device, cudaEventDestroy(t->begin));
    if (t->end != NULL) cuda_end(t->device, cudaEventDestroy(t->end));
}

/* Leaves t->memory NULL if too little is free. */
static weft_status open_trial(trial *t, weft_error *err) {
    void *memory = NULL;
    cudaError_t code = cudaSuccess;
    weft_status status = WEFT_OK;
    t->product = product_of(&t->of->shape);
    t->stream = cuda_stream(t->device, NULL);
    t->bytes = lay_out(room_at(NULL), t->device, &t->product);
    code = cudaMalloc(&memory, (size_t)t->bytes);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return WEFT_OK;
    }
    status = cuda_judge_call(code, "cudaMalloc", "measuring a matmul", err);
    t->memory = memory;
    if (status == WEFT_OK) status = cuda_judge(cudaEventCreate(&t->begin), "measuring a matmul", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventCreate(&t->end), "measuring a matmul", err);
    if (status != WEFT_OK) return status;
    (void)lay_out(room_at(t->memory), t->device, &t->product);
    return fill(t, err);
}

/* ---- times ---- */

/* Returns the milliseconds of one of `repeats` matmuls. */
static weft_status time_once(float *out, const trial *t, const cublasLtMatmulAlgo_t *way, int repeats,
                             weft_error *err) {
    weft_status status = cuda_judge(cudaEventRecord(t->begin, t->stream), "measuring a matmul", err);
    t->of->way = *way;
    for (int i = 0; i < repeats && status == WEFT_OK; i++)
        status = cuda_product_run(t->device, t->stream, &t->product, err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventRecord(t->end, t->stream), "measuring a matmul", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventSynchronize(t->end), "measuring a matmul", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventElapsedTime(out, t->begin, t->end), "measuring a matmul", err);
    *out /= (float)repeats;
    return status;
}

static int compare_times(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int clamped(float x, int least, int most) {
    return x < (float)least ? least : x > (float)most ? most : (int)x;
}

/* Returns the median time of each result. They take turns, so that changes of the clock affect all of them. The first
 * call of each loads its kernel. */
static weft_status take_turns(float medians[CUDA_RESULTS], const trial *t, const cublasLtMatmulHeuristicResult_t *found,
                              int n, weft_error *err) {
    float times[CUDA_RESULTS][ROUNDS] = {{0}}, one = 0, sum = 0;
    int repeats = 0, rounds = 0;
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2 * n && status == WEFT_OK; i++) {
        status = time_once(&one, t, &found[i / 2].algo, 1, err);
        if (i % 2 == 1) sum += one;
    }
    repeats = clamped(SAMPLE * (float)n / (sum + 1e-6f), 1, MOST_REPEATS);
    rounds = clamped(BUDGET / ((sum + 1e-6f) * (float)repeats), LEAST_ROUNDS, ROUNDS);
    for (int i = 0; i < rounds * n && status == WEFT_OK; i++)
        status = time_once(&times[i % n][i / n], t, &found[i % n].algo, repeats, err);
    for (int i = 0; i < n; i++) {
        qsort(times[i], (size_t)rounds, sizeof **times, compare_times);
        medians[i] = times[i][rounds / 2];
    }
    return status;
}

static weft_status take_fastest(const trial *t, const cublasLtMatmulHeuristicResult_t *found, int n, weft_error *err) {
    float medians[CUDA_RESULTS] = {0};
    char key[128] = "";
    int best = 0;
    weft_status status = WEFT_OK;
    t->of->is_chosen = true; /* for cuda_product_run */
    status = take_turns(medians, t, found, n, err);
    t->of->is_chosen = false;
    for (int i = 1; i < n; i++)
        if (medians[i] < medians[best] && medians[i] < MARGIN * medians[0]) best = i;
    t->of->way = found[best].algo;
    cuda_shape_print(key, sizeof key, &t->of->shape);
    if (status == WEFT_OK)
        weft_log(t->device->host, WEFT_LOG_DEBUG, "matmul %s: algorithm %d of %d, %.4g ms; the first: %.4g ms", key,
                 best + 1, n, (double)medians[best], (double)medians[0]);
    return status;
}

/* ---- the cache ---- */

static weft_status hash_of(char out[65], const weft_device *device, const cuda_algorithm *a, weft_error *err) {
    char key[128] = "", all[512];
    cuda_shape_print(key, sizeof key, &a->shape);
    (void)snprintf(all, sizeof all, "cuBLASLt %zu, %.200s, workspace %lld, %s", device->libraries.cublasLtGetVersion(),
                   device->card.name, (long long)device->workspace, key);
    return cuda_cache_hash(out, all, strlen(all)) ? WEFT_OK
                                                  : weft_error_set(err, WEFT_E_SYSTEM, "libcrypto has no SHA-256.");
}

/* True: the stored algorithm is set. */
static bool take_stored(weft_device *device, cuda_algorithm *a, const char *directory, const char *hash) {
    weft_error unheard = WEFT_ERROR_INIT; /* an unusable file is replaced */
    cublasLtMatmulAlgo_t way;
    size_t size = 0;
    void *bytes = cuda_cache_read(directory, hash, &size);
    const bool fits = bytes != NULL && size == sizeof way;
    if (fits) memcpy(&way, bytes, sizeof way);
    free(bytes);
    return fits && cuda_algorithm_take(device, a, &way, &unheard) == WEFT_OK;
}

/* Stores the measured algorithm. If that fails, the first one is used, because a later run could measure another. */
static void store(weft_device *device, cuda_algorithm *a, const char *directory, const char *hash,
                  const cublasLtMatmulAlgo_t *first) {
    if (cuda_cache_write(directory, hash, &a->way, sizeof a->way)) return;
    weft_log(device->host, WEFT_LOG_WARN,
             "Device cuda cannot store measured algorithms in %s: cuBLASLt's first algorithms are used.", directory);
    device->algorithms->cannot_store = true;
    a->way = *first;
}

weft_status cuda_algorithm_measure(weft_device *device, cuda_algorithm *a, const cublasLtMatmulHeuristicResult_t *found,
                                   int n, weft_error *err) {
    const cuda_shape *s = &a->shape;
    const char *directory = "";
    trial t = {.device = device, .of = a};
    char hash[65] = "";
    weft_status status = WEFT_OK;
    if (!device->measures || n < 2 || (double)s->m * (double)s->n * (double)s->k < LEAST_WORK) return WEFT_OK;
    directory = cuda_cache_directory(device);
    if (directory[0] == 0 || device->algorithms->cannot_store) return WEFT_OK;
    status = hash_of(hash, device, a, err);
    if (status != WEFT_OK || take_stored(device, a, directory, hash)) return status;
    status = open_trial(&t, err);
    if (status == WEFT_OK && t.memory == NULL)
        weft_log(
            device->host, WEFT_LOG_WARN,
            "Device cuda has no %lld bytes of free memory to measure a matmul: cuBLASLt's first algorithm is used.",
            (long long)t.bytes);
    if (status == WEFT_OK && t.memory != NULL) {
        status = take_fastest(&t, found, n, err);
        if (status == WEFT_OK) store(device, a, directory, hash, &found[0].algo);
    }
    close_trial(&t);
    return status;
}
