/* clip.cu: norm = sqrt(sum of square sums, in order) / (count * seed), and the clip coefficient, in one block. */
#include "clip.h"

#include <math.h>

#include "ordered.cuh"

static __global__ void __launch_bounds__(ORDERED_BLOCK) clip_norm(const clip_call c) {
    const double total = ordered_sum(c.square_sums, c.n);
    if (threadIdx.x != 0) return;
    const double count = c.seed == NULL ? *c.count : *c.count * static_cast<double>(*c.seed);
    const double norm = sqrt(total) / count;
    const bool is_finite = norm - norm == 0.0;
    const double factor = c.clip > 0.0 ? fmin(1.0, c.clip / (norm + 1e-6)) : 1.0;
    *c.norm = norm;
    *c.skip = is_finite ? 0 : 1;
    *c.coefficient = is_finite ? static_cast<float>(factor / count) : 0.0f;
}

extern "C" cudaError_t clip_launch(const clip_call *call, cudaStream_t stream) {
    CUDA_LAUNCH((clip_norm), 1, ORDERED_BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
