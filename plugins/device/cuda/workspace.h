/* workspace.h: how a call's workspace is laid out, with one function that both counts it and hands its parts out.
 *
 *     static int64_t lay_out(room r, call *c) {
 *         c->sums = room_take(&r, n * 4);
 *         ...
 *         return room_bytes(&r);
 *     }
 *
 * A workspace may begin at any multiple of 8 bytes. Its parts begin at multiples of 256 all the same, so that kernels
 * and products take the same way whatever it is: room for that is asked for.
 */
#ifndef WEFT_DEVICE_CUDA_WORKSPACE_H
#define WEFT_DEVICE_CUDA_WORKSPACE_H

#include "cuda.h"

#define ROOM_ALIGN 256

typedef struct room {
    char *base; /* NULL: parts are counted alone */
    int64_t used;
} room;

static inline room room_at(void *workspace) {
    const uintptr_t address = (uintptr_t)workspace;
    const room r = {workspace == NULL ? NULL : (char *)workspace + (ROOM_ALIGN - address % ROOM_ALIGN) % ROOM_ALIGN, 0};
    return r;
}

/* NULL where nothing is needed, and where it is counted alone. */
static inline void *room_take(room *r, int64_t bytes) {
    void *part = r->base == NULL || bytes <= 0 ? NULL : r->base + r->used;
    if (bytes > 0) r->used += size_round_up(bytes, ROOM_ALIGN);
    return part;
}

static inline int64_t room_bytes(const room *r) {
    return r->used == 0 ? 0 : r->used + ROOM_ALIGN - 8;
}

#endif
