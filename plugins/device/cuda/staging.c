/* staging.c: pinned memory for `write` and `read`. A copy from pageable memory may read it late or block the host until
 * the stream is done. Bytes therefore pass through a ring of pinned buffers, and the host waits only for a buffer still
 * in flight. */
#include "cuda.h"

enum { PIECES = 4 };
#define PIECE_BYTES ((int64_t)1 << 20)

struct cuda_staging {
    char *memory;             /* PIECES buffers of PIECE_BYTES */
    cudaEvent_t sent[PIECES]; /* or received */
    int next;
};

weft_status cuda_staging_open(weft_device *device, weft_error *err) {
    cuda_staging *s = device->host->alloc(device->host, sizeof *s, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    void *memory = NULL;
    if (s == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for its transfers.");
    memset(s, 0, sizeof *s);
    device->staging = s;
    status = cuda_judge(cudaHostAlloc(&memory, PIECES * PIECE_BYTES, cudaHostAllocDefault), "pinning memory", err);
    s->memory = memory;
    for (int i = 0; i < PIECES && status == WEFT_OK; i++)
        status = cuda_judge(cudaEventCreateWithFlags(&s->sent[i], cudaEventDisableTiming), "making an event", err);
    return status;
}

void cuda_staging_close(weft_device *device) {
    cuda_staging *s = device->staging;
    if (s == NULL) return;
    for (int i = 0; i < PIECES; i++) {
        if (s->sent[i] == NULL) continue;
        cuda_end(device, cudaEventSynchronize(s->sent[i]));
        cuda_end(device, cudaEventDestroy(s->sent[i]));
    }
    if (s->memory != NULL) cuda_end(device, cudaFreeHost(s->memory));
    device->host->release(device->host, s);
    device->staging = NULL;
}

/* CUDA counts an event that was never recorded as complete. */
static weft_status send_piece(cuda_staging *s, cudaStream_t stream, char *to, const char *from, int64_t bytes,
                              weft_error *err) {
    const cudaEvent_t sent = s->sent[s->next];
    char *piece = s->memory + s->next * PIECE_BYTES;
    weft_status status = WEFT_OK;
    if (cuda_dry_copy()) return WEFT_OK;
    status = cuda_judge(cudaEventSynchronize(sent), "write", err);
    if (status != WEFT_OK) return status;
    memcpy(piece, from, (size_t)bytes);
    status = cuda_judge(cudaMemcpyAsync(to, piece, (size_t)bytes, cudaMemcpyHostToDevice, stream), "write", err);
    if (status == WEFT_OK) status = cuda_judge(cudaEventRecord(sent, stream), "write", err);
    s->next = (s->next + 1) % PIECES;
    return status;
}

weft_status cuda_staging_send(weft_device *device, cudaStream_t stream, void *to, const void *from, int64_t bytes,
                              weft_error *err) {
    weft_status status = WEFT_OK;
    for (int64_t at = 0; at < bytes && status == WEFT_OK; at += PIECE_BYTES)
        status = send_piece(device->staging, stream, (char *)to + at, (const char *)from + at,
                            size_min(PIECE_BYTES, bytes - at), err);
    return status;
}

/* Starts a copy of up to PIECE_BYTES from the device; the buffer's previous contents are consumed. */
static weft_status ask_piece(cuda_staging *s, int piece, cudaStream_t stream, const char *from, int64_t bytes,
                             weft_error *err) {
    weft_status status = cuda_judge(cudaEventSynchronize(s->sent[piece]), "read", err);
    if (status != WEFT_OK) return status;
    status = cuda_judge(cuda_move(s->memory + piece * PIECE_BYTES, from, bytes, cudaMemcpyDeviceToHost, stream), "read",
                        err);
    return status == WEFT_OK ? cuda_judge(cudaEventRecord(s->sent[piece], stream), "read", err) : status;
}

static weft_status take_piece(cuda_staging *s, int piece, char *to, int64_t bytes, weft_error *err) {
    const weft_status status = cuda_judge(cudaEventSynchronize(s->sent[piece]), "read", err);
    if (status == WEFT_OK) memcpy(to, s->memory + piece * PIECE_BYTES, (size_t)bytes);
    return status;
}

/* The other buffers are in flight while one is copied to its destination. */
weft_status cuda_staging_bring(weft_device *device, cudaStream_t stream, void *to, const void *from, int64_t bytes,
                               weft_error *err) {
    cuda_staging *s = device->staging;
    const int64_t n = size_ceil_div(bytes, PIECE_BYTES);
    const int first = s->next;
    weft_status status = WEFT_OK;
    if (cuda_dry_copy()) return WEFT_OK;
    s->next = (int)((first + n) % PIECES);
    for (int64_t asked = 0, taken = 0; taken < n && status == WEFT_OK;) {
        if (asked < n && asked - taken < PIECES) {
            const int64_t at = asked * PIECE_BYTES;
            status = ask_piece(s, (int)((first + asked++) % PIECES), stream, (const char *)from + at,
                               size_min(PIECE_BYTES, bytes - at), err);
        } else {
            const int64_t at = taken * PIECE_BYTES;
            status = take_piece(s, (int)((first + taken++) % PIECES), (char *)to + at,
                                size_min(PIECE_BYTES, bytes - at), err);
        }
    }
    return status;
}
