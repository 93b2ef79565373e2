/* teams.cuh: threads that work on one row together, and what they add up in one fixed order.
 *
 * A team is a power of two of neighbours within a warp (several teams to a block), or all the warps of a block. The sum
 * over a team is a tree over its lanes within each warp, then the warps in order. All threads of a block call
 * team_sum together, also those whose team has no row.
 */
#ifndef WEFT_DEVICE_CUDA_TEAMS_CUH
#define WEFT_DEVICE_CUDA_TEAMS_CUH

#include "launch.h"

#define WARP       32
#define MOST_WARPS 32 /* of a block: floats of shared memory that a team's sum needs */
#define EVERY_LANE 0xFFFFFFFFu

typedef struct team {
    int size, lane; /* threads; which of them this one is */
    float *shared;  /* MOST_WARPS floats */
} team;

static __device__ __forceinline__ team team_of(int size, float *shared) {
    const team t = {size, static_cast<int>(threadIdx.x) % size, shared};
    return t;
}

/* Every lane of a group of `size` neighbours gets the group's sum: the same bits, since both sides of each exchange
 * add the same two numbers. */
static __device__ __forceinline__ float lanes_sum(float v, int size) {
    for (int apart = size / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(EVERY_LANE, v, apart);
    return v;
}

static __device__ __forceinline__ float team_sum(float v, const team &t) {
    float sum = 0.0f;
    if (t.size <= WARP) return lanes_sum(v, t.size);
    v = lanes_sum(v, WARP);
    if (t.lane % WARP == 0) t.shared[t.lane / WARP] = v;
    __syncthreads();
    for (int i = 0; i < t.size / WARP; i++) sum += t.shared[i];
    __syncthreads(); /* the next sum writes there */
    return sum;
}

/* Threads for a row of n packs: a power of two, each with two packs of a long row. */
static inline int team_size(int64_t packs, int most) {
    int size = 8;
    while (size < most && size < (packs + 1) / 2) size *= 2;
    return size;
}

#endif
