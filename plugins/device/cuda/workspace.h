/* workspace.h: lays out a call's workspace, with one function both for its size and for its parts.
 *
 *     static int64_t lay_out(room r, call *c) {
 *         c->sums = room_take(&r, n * 4);
 *         ...
 *         return room_bytes(&r);
 *     }
 *
 * A workspace may start at any multiple of 8 bytes. Its parts are aligned to 256 bytes, so that kernels and matmuls
 * take the same path at every address. The size includes the padding. */
#ifndef WEFT_DEVICE_CUDA_WORKSPACE_H
#define WEFT_DEVICE_CUDA_WORKSPACE_H

#include "cuda.h"

#define ROOM_ALIGN 256

typedef struct room {
    char *base; /* NULL: only the size is computed */
    int64_t used;
} room;

static inline room room_at(void *workspace) {
    const uintptr_t address = (uintptr_t)workspace;
    const room r = {workspace == NULL ? NULL : (char *)workspace + (ROOM_ALIGN - address % ROOM_ALIGN) % ROOM_ALIGN, 0};
    return r;
}

/* Returns NULL for 0 bytes, and while only the size is computed. */
static inline void *room_take(room *r, int64_t bytes) {
    void *part = r->base == NULL || bytes <= 0 ? NULL : r->base + r->used;
    if (bytes > 0) r->used += size_round_up(bytes, ROOM_ALIGN);
    return part;
}

static inline int64_t room_bytes(const room *r) {
    return r->used == 0 ? 0 : r->used + ROOM_ALIGN - 8;
}

#endif
