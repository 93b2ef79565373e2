/* sum.c: see ranks.h. A sum of two is formed in fp32 and, of bf16, rounded once, to the nearest, ties to even. */
#include "ranks.h"

static inline float widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* A NaN that comes of two bf16 has nothing in its lower half, so rounding leaves it alone. */
static inline uint16_t narrow(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* to may be a. */
static void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *restrict b, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) to[i] = narrow(widen(a[i]) + widen(b[i]));
}

static void add_f32(float *to, const float *a, const float *restrict b, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) to[i] = a[i] + b[i];
}

void ranks_add_bf16(void *from, void *to, int *n, MPI_Datatype *type) {
    (void)type; /* MPI_UINT16_T, of which MPI does not know that it is bf16 */
    add_bf16(to, to, from, *n);
}

/* Row after row within a piece, so that the piece stays in the cache. */
void ranks_sum_run(const ranks_sum *sum) {
    const int64_t size = weft_dtype_bytes(sum->dtype), grain = 16384;
    int64_t at, count;
    int32_t r;
    for (at = 0; at < sum->n; at += grain) {
        count = sum->n - at < grain ? sum->n - at : grain;
        for (r = 0; r < sum->n_rows; r++) {
            char *to = (char *)sum->to + at * size;
            const void *a = r == 0 ? (const char *)sum->own + at * size : to;
            const void *b = sum->rows + (r * sum->n + at) * size;
            if (sum->dtype == WEFT_F32) add_f32((float *)(void *)to, a, b, count);
            else add_bf16((uint16_t *)(void *)to, a, b, count);
        }
    }
}

weft_status ranks_sum_take(weft_comm *comm, ranks_sum *sum, weft_error *err) {
    if (comm->spare_bytes >= sum->bytes) {
        sum->rows = comm->spare;
        sum->bytes = comm->spare_bytes;
        comm->spare = NULL;
        comm->spare_bytes = 0;
        return WEFT_OK;
    }
    sum->rows = comm->host->alloc(comm->host, (size_t)sum->bytes, 64);
    if (sum->rows != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "No memory for %lld bytes of a reduce_scatter in the host's memory.",
                          (long long)sum->bytes);
}

/* The larger memory stays. */
void ranks_sum_give_back(weft_comm *comm, ranks_sum *sum) {
    if (sum->rows == NULL) return;
    if (sum->bytes > comm->spare_bytes) {
        comm->host->release(comm->host, comm->spare);
        comm->spare = sum->rows;
        comm->spare_bytes = sum->bytes;
    } else {
        comm->host->release(comm->host, sum->rows);
    }
    sum->rows = NULL;
}
