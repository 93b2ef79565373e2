/* staging.c: pinned memory that `write` goes through. A copy from memory that is not pinned may read it late or stop
 * the host until all of the stream is done; so the bytes are put into pieces of pinned memory, used in turn, and the
 * host waits only where a piece is still on its way. */
#include "cuda.h"

enum { PIECES = 4 };
#define PIECE_BYTES ((int64_t)1 << 20)

struct cuda_staging {
    char *memory; /* PIECES of PIECE_BYTES */
    cudaEvent_t sent[PIECES];
    int next;
};

weft_status cuda_staging_open(weft_device *device, weft_error *err) {
    cuda_staging *s = device->host->alloc(device->host, sizeof *s, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    void *memory = NULL;
    if (s == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for what it sends.");
    memset(s, 0, sizeof *s);
    device->staging = s;
    status = cuda_judge(cudaHostAlloc(&memory, PIECES * PIECE_BYTES, cudaHostAllocDefault), "pinning memory", err);
    s->memory = memory;
    for (int i = 0; i < PIECES && status == WEFT_OK; i++)
        status = cuda_judge(cudaEventCreateWithFlags(&s->sent[i], cudaEventDisableTiming), "making a mark", err);
    return status;
}

void cuda_staging_close(weft_device *device) {
    cuda_staging *s = device->staging;
    if (s == NULL) return;
    for (int i = 0; i < PIECES; i++) {
        if (s->sent[i] == NULL) continue;
        (void)cudaEventSynchronize(s->sent[i]);
        (void)cudaEventDestroy(s->sent[i]);
    }
    if (s->memory != NULL) (void)cudaFreeHost(s->memory);
    device->host->release(device->host, s);
    device->staging = NULL;
}

/* An event that was never recorded counts as reached. */
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
