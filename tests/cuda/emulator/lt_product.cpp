/* lt_product.cpp: the arithmetic of a matmul. Each element is a sum over the inner dimension in order, or of parts of
 * it in order, in fp32 without contraction. Only partial sums may be in the result's type if the algorithm says so. The
 * algorithm therefore determines the bits. */
#include <cfenv>
#include <cmath>

#include "emulator.h"
#include "lt.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace weft_emulator {
namespace {

/* True: matrix instructions truncate their fp32 sums, as tensor cores do, and do not round them. */
bool truncates() {
    static const bool value = number("WEFT_EMULATOR_TRUNCATE", 0) != 0;
    return value;
}

constexpr int64_t ROWS = 16, COLUMNS = 4; /* of a tile summed in registers */
typedef float eight __attribute__((vector_size(32)));

float to_tf32(float x) {
    return x - x == 0 ? __uint_as_float((__float_as_uint(x) + 0x1000u) & ~0x1fffu) : x;
}

float get(const void *at, int64_t i, cudaDataType type) {
    if (type == CUDA_R_16F) return emulator_from_f16(static_cast<const unsigned short *>(at)[i]);
    return type == CUDA_R_16BF ? emulator_from_bf16(static_cast<const unsigned short *>(at)[i])
                               : static_cast<const float *>(at)[i];
}

void put(void *at, int64_t i, cudaDataType type, float x) {
    if (type == CUDA_R_16BF) static_cast<unsigned short *>(at)[i] = emulator_to_bf16(x);
    else if (type == CUDA_R_16F) static_cast<unsigned short *>(at)[i] = emulator_to_f16(x);
    else static_cast<float *>(at)[i] = x;
}

/* Packs (outer, k) of a matrix into tiles of `width` outer indices, k by k; zero after the end. */
std::vector<float> pack(const void *at, const cublasLtMatrixLayoutOpaque_t &of, int64_t outer, int64_t k,
                        bool outer_is_row, int64_t width, bool tf32) {
    const int64_t tiles = (outer + width - 1) / width;
    std::vector<float> out(static_cast<size_t>(tiles * width * k));
    for (int64_t o = 0; o < outer; o++) {
        float *to = out.data() + o / width * width * k + o % width;
        for (int64_t i = 0; i < k; i++) {
            const float x = get(at, outer_is_row ? o + i * of.ld : i + o * of.ld, of.type);
            to[i * width] = tf32 ? to_tf32(x) : x;
        }
    }
    return out;
}

__attribute__((target_clones("avx2", "default"))) void sum_tile(eight sums[COLUMNS][2], const float *a, const float *b,
                                                                int64_t k) {
    eight s[COLUMNS][2] = {};
    for (int64_t i = 0; i < k; i++) {
        eight low, high;
        __builtin_memcpy(&low, a + i * ROWS, sizeof low);
        __builtin_memcpy(&high, a + i * ROWS + 8, sizeof high);
        for (int j = 0; j < COLUMNS; j++) {
            s[j][0] += low * b[i * COLUMNS + j];
            s[j][1] += high * b[i * COLUMNS + j];
        }
    }
    for (int j = 0; j < COLUMNS; j++)
        for (int h = 0; h < 2; h++) sums[j][h] = s[j][h];
}

__attribute__((noinline)) void add_tile(eight sums[COLUMNS][2], eight more[COLUMNS][2]) {
    for (int j = 0; j < COLUMNS; j++)
        for (int h = 0; h < 2; h++) sums[j][h] += more[j][h];
}

/* As sum_tile. A tensor core adds 16 products at once and truncates the sum; the products of 16-bit numbers are
 * exact. */
void sum_on_tensor_core(eight sums[COLUMNS][2], const float *a, const float *b, int64_t k) {
    constexpr int64_t AT_ONCE = 16;
    const int before = std::fegetround();
    eight more[COLUMNS][2];
    sum_tile(sums, a, b, k < AT_ONCE ? k : AT_ONCE);
    for (int64_t from = AT_ONCE; from < k; from += AT_ONCE) {
        sum_tile(more, a + from * ROWS, b + from * COLUMNS, k - from < AT_ONCE ? k - from : AT_ONCE);
        (void)std::fesetround(FE_TOWARDZERO);
        add_tile(sums, more);
        (void)std::fesetround(before);
    }
}

void sum_part(eight sums[COLUMNS][2], const float *a, const float *b, int64_t k, const Product &p) {
    if (truncates() && (p.tf32 || p.a.type != CUDA_R_32F)) sum_on_tensor_core(sums, a, b, k);
    else sum_tile(sums, a, b, k);
}

float narrow(float x, cudaDataType type) {
    float room = 0; /* for any of the types */
    put(&room, 0, type, x);
    return get(&room, 0, type);
}
void narrow_tile(eight sums[COLUMNS][2], const Product &p) {
    for (int j = 0; j < COLUMNS && p.narrows; j++)
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 8; i++) sums[j][h][i] = narrow(sums[j][h][i], p.d.type);
}

/* beta C of one element; the sum in place starts with it. */
float addend(const Product &p, int64_t row, int64_t column) {
    return p.beta == 0 ? 0 : p.beta * get(p.c_at, row + column * p.c.ld, p.c.type);
}

/* Sums the tile over all of k, part by part. */
void sum_parts(eight sums[COLUMNS][2], const float *a, const float *b, const Product &p, int64_t row, int64_t column) {
    const int64_t k = p.k(), part = (k + p.splits - 1) / p.splits;
    eight more[COLUMNS][2];
    sum_part(sums, a, b, part < k ? part : k, p);
    if (part < k) narrow_tile(sums, p);
    for (int64_t j = 0; p.in_place && j < COLUMNS && column + j < p.n(); j++)
        for (int64_t i = 0; i < ROWS && row + i < p.m(); i++) sums[j][i / 8][i % 8] += addend(p, row + i, column + j);
    for (int64_t from = part; from < k; from += part) {
        sum_part(more, a + from * ROWS, b + from * COLUMNS, from + part < k ? part : k - from, p);
        narrow_tile(more, p);
        add_tile(sums, more);
        narrow_tile(sums, p);
    }
}

void finish(const Product &p, int64_t row, int64_t column, float sum) {
    float x = p.alpha == 1 ? sum : p.alpha * sum;
    if (p.rounds) x = narrow(x, p.d.type);
    if (!p.in_place && p.beta != 0) x += addend(p, row, column);
    if (p.bias != nullptr) x += get(p.bias, row, p.d.type);
    put(p.d_at, row + column * p.d.ld, p.d.type, x);
}

} // namespace

int64_t bytes_of(cudaDataType type) {
    return type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 4;
}

void multiply(const Product &p) {
    const int64_t m = p.m(), n = p.n(), k = p.k();
    const std::vector<float> a = pack(p.a_at, p.a, m, k, !p.transpose_a, ROWS, p.tf32);
    const std::vector<float> b = pack(p.b_at, p.b, n, k, p.transpose_b, COLUMNS, p.tf32);
    for (int64_t row = 0; row < m; row += ROWS) {
        for (int64_t column = 0; column < n; column += COLUMNS) {
            eight sums[COLUMNS][2];
            sum_parts(sums, a.data() + row * k, b.data() + column * k, p, row, column);
            for (int64_t j = 0; j < COLUMNS && column + j < n; j++)
                for (int64_t i = 0; i < ROWS && row + i < m; i++) finish(p, row + i, column + j, sums[j][i / 8][i % 8]);
        }
    }
}

} // namespace weft_emulator

EXPORT float emulator_matrix_sum(double sum) {
    const float nearest = static_cast<float>(sum);
    const bool is_beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(sum);
    return weft_emulator::truncates() && is_beyond ? std::nextafter(nearest, 0.0f) : nearest;
}
