/* teams.cuh: teams of threads that share a row, and their sums in a fixed order.
 *
 * A team is a power of two of consecutive threads of a block. A team's sum is a tree over its lanes within each
 * warp, then the warps in order. All threads of a block call team_sum together, including teams without a row. */
#ifndef WEFT_DEVICE_CUDA_TEAMS_CUH
#define WEFT_DEVICE_CUDA_TEAMS_CUH

#include "launch.h"

#define WARP       32
#define MOST_WARPS 32 /* per block: floats of shared memory for a team sum */
#define EVERY_LANE 0xFFFFFFFFu

typedef struct team {
    int size, lane; /* threads; this thread's index */
    float *shared;  /* a float for each of its warps */
} team;

/* shared: MOST_WARPS floats of the block. */
static __device__ __forceinline__ team team_of(int size, float *shared) {
    const int me = static_cast<int>(threadIdx.x);
    const team t = {size, me % size, shared + me / size * (size / WARP)};
    return t;
}

/* Returns the sum over `size` consecutive lanes to each of them. All get the same bits, since both sides of each
 * exchange add the same two numbers. */
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

/* Returns the threads for a row of n packs: a power of two, two packs per thread in a long row. */
static inline int team_size(int64_t packs, int most) {
    int size = 8;
    while (size < most && size < (packs + 1) / 2) size *= 2;
    return size;
}

#endif
