/* cuda/instructions.cu: see instructions.h. Fragments are filled and read as specified in the PTX ISA's pages on
 * mma.m16n8k16 and ldmatrix, element by element: groupID = lane >> 2, threadID_in_group = lane % 4. */
#include "instructions.h"

#include "plugins/device/cuda/mma.cuh"

namespace {

__global__ void multiply(float *c, const uint16_t *a, const uint16_t *b, int half) {
    const int lane = static_cast<int>(threadIdx.x), group = lane >> 2, in_group = lane % 4;
    uint32_t a_words[4] = {0}, b_words[2] = {0};
    float sums[4];
    for (int i = 0; i < 8; i++) {
        const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
        const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a_words[i / 2] |= static_cast<uint32_t>(a[row * 16 + column]) << (i % 2 * 16);
    }
    for (int i = 0; i < 4; i++) {
        const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
        b_words[i / 2] |= static_cast<uint32_t>(b[row * 8 + group]) << (i % 2 * 16);
    }
    for (int i = 0; i < 4; i++) sums[i] = c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
    if (half) mma_f16(sums, a_words, b_words);
    else mma_bf16(sums, a_words, b_words);
    for (int i = 0; i < 4; i++) c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = sums[i];
}

/* Rows have gaps of 16 bytes, since lanes may address rows anywhere. */
__global__ void load_matrices(uint16_t *out, const uint16_t *in, int transposed) {
    CUDA_SHARED(uint4, rows, [64]);
    uint16_t *const shared = reinterpret_cast<uint16_t *>(rows);
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t words[4];
    for (int i = 0; i < 8; i++) shared[lane * 16 + i] = in[lane * 8 + i];
    __syncwarp();
    if (transposed) mma_load_transposed(words, shared + lane * 16);
    else mma_load(words, shared + lane * 16);
    for (int i = 0; i < 8; i++) out[lane * 8 + i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
}

__global__ void copy_both(uint8_t *out, const uint8_t *in) {
    CUDA_SHARED(uint4, place, [2]);
    if (threadIdx.x < 2) copy_async(place + threadIdx.x, in, threadIdx.x == 0 ? 16 : 0);
    copy_async_wait();
    __syncwarp();
    out[threadIdx.x] = reinterpret_cast<const uint8_t *>(place)[threadIdx.x];
}

__global__ void raise(float *out, const float *in) {
    out[threadIdx.x] = power_of_two(in[threadIdx.x]);
}

/* Copies n host elements to the GPU, and back at the end. */
template <typename T> struct mirror {
    T *at = nullptr;
    size_t bytes;
    cudaError_t code;
    mirror(const T *from, size_t n) : bytes(n * sizeof(T)) {
        code = cudaMalloc(&at, bytes);
        if (code == cudaSuccess) code = cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice);
    }
    ~mirror() {
        (void)cudaFree(at);
    }
    int get(T *to) {
        if (code == cudaSuccess) code = cudaGetLastError();
        if (code == cudaSuccess) code = cudaMemcpy(to, at, bytes, cudaMemcpyDeviceToHost);
        return code != cudaSuccess;
    }
};

} // namespace

extern "C" int instruction_mma(float *c, const uint16_t *a, const uint16_t *b, int half) {
    mirror<float> to(c, 128);
    mirror<uint16_t> left(a, 256), right(b, 128);
    CUDA_LAUNCH(multiply, 1, 32, 0, nullptr, to.at, left.at, right.at, half);
    return to.get(c);
}
extern "C" int instruction_load(uint16_t *out, const uint16_t *in, int transposed) {
    mirror<uint16_t> to(out, 256), from(in, 256);
    CUDA_LAUNCH(load_matrices, 1, 32, 0, nullptr, to.at, from.at, transposed);
    return to.get(out);
}
extern "C" int instruction_copy(uint8_t *out, const uint8_t *in) {
    mirror<uint8_t> to(out, 32), from(in, 16);
    CUDA_LAUNCH(copy_both, 1, 32, 0, nullptr, to.at, from.at);
    return to.get(out);
}
extern "C" int instruction_power(float *out, const float *in) {
    mirror<float> to(out, 32), from(in, 32);
    CUDA_LAUNCH(raise, 1, 32, 0, nullptr, to.at, from.at);
    return to.get(out);
}
