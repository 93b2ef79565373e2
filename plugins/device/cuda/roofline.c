/* roofline.c: the extension WEFT_DEVICE_ROOFLINE: measures this GPU's peak rates by one large matmul of cuBLASLt and
 * one large copy.
 *
 * A matmul or copy is timed by stream events, and the median of a few runs counts. It grows up to the largest size, or
 * until it takes a millisecond: then the time to launch it is negligible. */
#include "cuda.h"

#define RUNS       5         /* after an uncounted one */
#define LONG       1e-3      /* seconds */
#define MATMUL     512       /* rows and columns, at first */
#define MOST       8192      /* rows and columns */
#define COPY       (4 << 20) /* bytes, at first */
#define MOST_BYTES (256 << 20)
#define COPIES     4     /* of a trial, one after another */
#define WORDS      65521 /* random numbers that fill the operands: a prime, so that their rows differ */

typedef struct trial trial;
struct trial {
    weft_device *device;
    cudaEvent_t begin, end;
    char *memory;
    int64_t size; /* rows and columns, or bytes */
    int32_t dtype;
    weft_status (*run)(const trial *t, weft_error *err);
};

static weft_status multiply(const trial *t, weft_error *err) {
    const int64_t n = t->size, bytes = n * n * cell_bytes(t->dtype);
    const cuda_product p = {.a = t->memory,
                            .b = t->memory + bytes,
                            .c = t->memory + 2 * bytes,
                            .m = n,
                            .n = n,
                            .k = n,
                            .lda = n,
                            .ldb = n,
                            .ldc = n,
                            .dtype_a = t->dtype,
                            .dtype_b = t->dtype,
                            .dtype_c = t->dtype,
                            .transpose_b = 1,
                            .workspace = t->memory + 3 * bytes};
    return cuda_product_run(t->device, t->device->first.stream, &p, err);
}

static weft_status copy(const trial *t, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < COPIES && status == WEFT_OK; i++)
        status = cuda_judge(cuda_move(t->memory + t->size, t->memory, t->size, cudaMemcpyDeviceToDevice,
                                      t->device->first.stream),
                            "the roofline", err);
    return status;
}

static weft_status time_once(double *seconds, const trial *t, weft_error *err) {
    const cudaStream_t stream = t->device->first.stream;
    float milliseconds = 0;
    weft_status status = cuda_judge(cudaEventRecord(t->begin, stream), "the roofline", err);
    if (status == WEFT_OK) status = t->run(t, err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventRecord(t->end, stream), "the roofline", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventSynchronize(t->end), "the roofline", err);
    if (status == WEFT_OK)
        status = cuda_judge(cudaEventElapsedTime(&milliseconds, t->begin, t->end), "the roofline", err);
    *seconds = 1e-3 * (double)milliseconds;
    return status;
}

static weft_status time_median(double *seconds, const trial *t, weft_error *err) {
    double sorted[RUNS] = {0}, uncounted = 0;
    weft_status status = time_once(&uncounted, t, err);
    for (int n = 0; n < RUNS && status == WEFT_OK; n++) {
        double now = 0;
        int at = n;
        status = time_once(&now, t, err);
        for (; at > 0 && sorted[at - 1] > now; at--) sorted[at] = sorted[at - 1];
        sorted[at] = now;
    }
    *seconds = sorted[RUNS / 2];
    return status;
}

/* Fills memory with numbers of random sign and fraction, of magnitude 0.5 to 1: a GPU runs faster on zeros. */
static weft_status fill(const trial *t, int64_t bytes, weft_error *err) {
    const uint32_t keep = t->dtype == WEFT_F32 ? 0x807fffffu : t->dtype == WEFT_BF16 ? 0x807f807fu : 0x83ff83ffu;
    const uint32_t half = t->dtype == WEFT_F32 ? 0x3f000000u : t->dtype == WEFT_BF16 ? 0x3f003f00u : 0x38003800u;
    const weft_host *host = t->device->host;
    uint32_t *words = host->alloc(host, WORDS * sizeof *words, _Alignof(uint32_t));
    uint64_t state = 1;
    weft_status status = WEFT_OK;
    if (words == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for the roofline.");
    for (int i = 0; i < WORDS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = ((uint32_t)(state >> 32) & keep) | half;
    }
    status = cuda_staging_send(t->device, t->device->first.stream, t->memory, words,
                               size_min(bytes, (int64_t)(WORDS * sizeof *words)), err);
    for (int64_t n = WORDS * (int64_t)sizeof *words; n < bytes && status == WEFT_OK; n *= 2)
        status = cuda_judge(cuda_move(t->memory + n, t->memory, size_min(n, bytes - n), cudaMemcpyDeviceToDevice,
                                      t->device->first.stream),
                            "the roofline", err);
    host->release(host, words);
    return status;
}

/* Times the trial at its size, in memory of its own: `bytes`, of which the first `filled` are random numbers. */
static weft_status time_in_memory(double *seconds, trial *t, int64_t filled, int64_t bytes, weft_error *err) {
    weft_buffer *buffer = NULL;
    weft_status status = cuda_alloc(t->device, &buffer, bytes, err);
    if (status != WEFT_OK) return status;
    t->memory = buffer->base;
    if (filled > 0) status = fill(t, filled, err);
    if (status == WEFT_OK) status = time_median(seconds, t, err);
    cuda_release(t->device, buffer);
    return status;
}

/* Times the trial at growing sizes. */
static weft_status time_growing(double *seconds, trial *t, int64_t most, weft_error *err) {
    weft_status status = cuda_enter(t->device, "the roofline", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventCreate(&t->begin), "the roofline", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventCreate(&t->end), "the roofline", err);
    for (*seconds = 0; status == WEFT_OK; t->size *= 4) {
        const int64_t matrix = t->run == multiply ? t->size * t->size * cell_bytes(t->dtype) : 0;
        const int64_t bytes = matrix > 0 ? 3 * matrix + t->device->workspace + CUDA_LINE : 2 * t->size;
        status = time_in_memory(seconds, t, 2 * matrix, bytes, err);
        if (*seconds >= LONG || t->size >= most) break;
    }
    if (t->begin != NULL) cuda_end(t->device, cudaEventDestroy(t->begin));
    if (t->end != NULL) cuda_end(t->device, cudaEventDestroy(t->end));
    return status;
}

static weft_status measure_peak(weft_device *device, double *out, int32_t dtype, weft_error *err) {
    operands c = operands_plain("roofline", err);
    trial t = {.device = device, .size = MATMUL, .dtype = dtype, .run = multiply};
    double seconds = 0;
    (void)operands_dtype(&c, "dtype", dtype);
    if (c.status == WEFT_OK) c.status = time_growing(&seconds, &t, MOST, err);
    if (c.status == WEFT_OK) *out = 2.0 * (double)t.size * (double)t.size * (double)t.size / seconds;
    return c.status;
}

static weft_status measure_bandwidth(weft_device *device, double *out, weft_error *err) {
    trial t = {.device = device, .size = COPY, .run = copy};
    double seconds = 0;
    const weft_status status = time_growing(&seconds, &t, MOST_BYTES, err);
    if (status == WEFT_OK) *out = 2.0 * COPIES * (double)t.size / seconds;
    return status;
}

const weft_device_roofline cuda_roofline = {.struct_size = (uint32_t)sizeof(weft_device_roofline),
                                            .peak = measure_peak,
                                            .bandwidth = measure_bandwidth};
