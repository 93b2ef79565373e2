/* attention_blind.cu: results of positions that see no key, not even their own, after cuDNN's attention. One block per
 * position; it does work only for such positions. */
#include "attention.h"

#include <cmath>

#include <cuda_bf16.h>

#include "launch.h"

#define BLOCK 128

static __global__ void attention_blind(const attention_call c) {
    const int64_t place = blockIdx.x, batch = place / c.length, row = place % c.length;
    const int64_t width = c.heads * c.head_dim;
    if (c.starts[place] <= row) return;
    for (int64_t i = threadIdx.x; i < width; i += BLOCK)
        static_cast<__nv_bfloat16 *>(c.o)[place * width + i] = __float2bfloat16(0);
    for (int64_t head = threadIdx.x; head < c.heads; head += BLOCK)
        c.lse[(batch * c.heads + head) * c.length + row] = -INFINITY;
}

extern "C" cudaError_t attention_blind_launch(const attention_call *call, cudaStream_t stream) {
    const int64_t places = call->batch * call->length;
    if (places == 0) return cudaSuccess;
    CUDA_LAUNCH(attention_blind, dim3(static_cast<unsigned>(places)), dim3(BLOCK), 0, stream, *call);
    return cudaGetLastError();
}
