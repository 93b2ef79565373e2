/* emulator_warp.h: warp-level functions (C++).
 *
 * All of them use one rendezvous: each lane of the mask passes a pointer to its own data, and the last lane to arrive
 * runs `together` once for all of them. A matrix instruction is written the same way:
 *
 *     struct mma { const unsigned *a, *b; float *d; } mine = {a, b, d};
 *     emulator_meet(~0u, "mma.m16n8k16", &mine, [](void **lanes, unsigned) { ... static_cast<mma *>(lanes[i])->d ...
 *     }); */
#ifndef WEFT_EMULATOR_WARP_H
#define WEFT_EMULATOR_WARP_H

#include <cstring>

#include "emulator_kernel.h"

/* lanes[i] of lane i, NULL outside the mask. Lanes missing in a block's last warp are not waited for. */
extern "C" void emulator_meet_at(unsigned mask, const char *what, void *mine,
                                 void (*together)(void **lanes, unsigned mask), const char *file, int line);
extern "C" int emulator_lane(void);
/* Returns the fp32 sum of a matrix instruction: rounded, or truncated by WEFT_EMULATOR_TRUNCATE. */
extern "C" float emulator_matrix_sum(double sum);

static inline void emulator_meet(unsigned mask, const char *what, void *mine,
                                 void (*together)(void **lanes, unsigned mask), EMULATOR_SITE) {
    emulator_meet_at(mask, what, mine, together, file, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATOR_SITE) {
    emulator_meet_at(
        mask, "__syncwarp", nullptr, [](void **, unsigned) {}, file, line);
}

template <typename T> struct emulator_shuffle {
    T value, got;
    int argument, width;
};

/* Source(lane, argument, width): the source lane; missing lanes yield all bits set, a NaN. */
template <typename T, int Source(int, int, int)> static void emulator_shuffle_all(void **lanes, unsigned) {
    for (int i = 0; i < 32; i++) {
        emulator_shuffle<T> *mine = static_cast<emulator_shuffle<T> *>(lanes[i]);
        if (mine == nullptr) continue;
        const int from = Source(i, mine->argument, mine->width);
        const emulator_shuffle<T> *source = static_cast<emulator_shuffle<T> *>(lanes[from]);
        if (source != nullptr) mine->got = source->value;
        else std::memset(static_cast<void *>(&mine->got), 0xff, sizeof mine->got);
    }
}
static inline int emulator_from_index(int lane, int index, int width) {
    return (lane & ~(width - 1)) | (index & (width - 1));
}
static inline int emulator_from_up(int lane, int delta, int width) {
    return (lane & (width - 1)) < delta ? lane : lane - delta;
}
static inline int emulator_from_down(int lane, int delta, int width) {
    return (lane & (width - 1)) + delta >= width ? lane : lane + delta;
}
static inline int emulator_from_xor(int lane, int mask, int width) {
    const int from = lane ^ mask;
    return (from & ~(width - 1)) > (lane & ~(width - 1)) || from > 31 ? lane : from;
}

#define EMULATOR_SHUFFLE(name, source)                                                                                 \
    template <typename T> static inline T name(unsigned mask, T value, int argument, int width = 32, EMULATOR_SITE) {  \
        static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 2, 4 or 8 bytes");            \
        emulator_shuffle<T> mine = {value, value, argument, width};                                                    \
        emulator_meet_at(mask, #name, &mine, emulator_shuffle_all<T, source>, file, line);                             \
        return mine.got;                                                                                               \
    }
EMULATOR_SHUFFLE(__shfl_sync, emulator_from_index)
EMULATOR_SHUFFLE(__shfl_up_sync, emulator_from_up)
EMULATOR_SHUFFLE(__shfl_down_sync, emulator_from_down)
EMULATOR_SHUFFLE(__shfl_xor_sync, emulator_from_xor)

struct emulator_vote {
    int says;
    unsigned got;
};
static inline void emulator_vote_all(void **lanes, unsigned) {
    unsigned ballot = 0;
    for (int i = 0; i < 32; i++)
        if (lanes[i] != nullptr && static_cast<emulator_vote *>(lanes[i])->says != 0) ballot |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (lanes[i] != nullptr) static_cast<emulator_vote *>(lanes[i])->got = ballot;
}
static inline unsigned __ballot_sync(unsigned mask, int says, EMULATOR_SITE) {
    emulator_vote mine = {says, 0};
    emulator_meet_at(mask, "__ballot_sync", &mine, emulator_vote_all, file, line);
    return mine.got;
}
static inline int __any_sync(unsigned mask, int says, EMULATOR_SITE) {
    emulator_vote mine = {says, 0};
    emulator_meet_at(mask, "__any_sync", &mine, emulator_vote_all, file, line);
    return mine.got != 0;
}
static inline int __all_sync(unsigned mask, int says, EMULATOR_SITE) {
    emulator_vote mine = {says == 0, 0};
    emulator_meet_at(mask, "__all_sync", &mine, emulator_vote_all, file, line);
    return mine.got == 0;
}

#endif
