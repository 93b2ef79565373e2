/* update_stored.c: generates an update whose weight or states are not all fp32. As on the CPU device, each element is
 * converted to fp32, passes through the author's body and is rounded once to its storage type.
 *
 * A thread block processes 256 consecutive elements at a time, one block of the packed types. All threads compute the
 * block's largest magnitude as the maximum of its bits, which is independent of the order. */
#include "modules.h"
#include "update_text.h"

#include <weft/dynamic8.h>

static const char types_text[] =
    "#define WEFT_F32 1\n"
    "#define WEFT_BF16 2\n"
    "#define WEFT_DYN8X256 16\n"
    "#define WEFT_UDYN8X256 17\n"
    "#ifndef CUDA_SHARED\n"
    "#define CUDA_SHARED(type, name, extents) __shared__ type name extents\n"
    "#endif\n"
    "typedef unsigned char weft_byte;\n"
    "struct weft_region { void *w; const float *g; void *s0, *s1, *s2, *s3; weft_copy *copy; };\n"
    "template <int T> static __device__ __forceinline__ const float *weft_values() {\n"
    "    return T == WEFT_DYN8X256 ? weft_value_16 : weft_value_17;\n"
    "}\n"
    "template <int T> static __device__ __forceinline__ const float *weft_edges() {\n"
    "    return T == WEFT_DYN8X256 ? weft_edge_16 : weft_edge_17;\n"
    "}\n"
    "template <int T> static __device__ __forceinline__ float weft_take(const void *from, weft_long i) {\n"
    "    if (T == 0) return 0.0f;\n"
    "    if (T == WEFT_F32) return ((const float *)from)[i];\n"
    "    if (T == WEFT_BF16) return __uint_as_float((unsigned)((const unsigned short *)from)[i] << 16);\n"
    "    const weft_byte *block = (const weft_byte *)from + i / 256 * 260;\n"
    "    return *(const float *)block * weft_values<T>()[block[4 + i % 256]];\n"
    "}\n"
    "static __device__ __forceinline__ unsigned weft_most(unsigned bits) {\n"
    "    CUDA_SHARED(unsigned, of_warp, [WEFT_THREADS / 32]);\n"
    "    unsigned most = 0;\n"
    "    for (int step = 16; step > 0; step /= 2) {\n"
    "        const unsigned other = __shfl_xor_sync(0xffffffffu, bits, step);\n"
    "        bits = other > bits ? other : bits;\n"
    "    }\n"
    "    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;\n"
    "    __syncthreads();\n"
    "    for (int i = 0; i < WEFT_THREADS / 32; i++) most = of_warp[i] > most ? of_warp[i] : most;\n"
    "    __syncthreads();\n"
    "    return most;\n"
    "}\n"
    "template <int T> static __device__ __forceinline__ weft_byte weft_code(float x) {\n"
    "    const float size = fabsf(x), *edge = weft_edges<T>();\n"
    "    int m = 0;\n"
    "    for (int step = 128; step > 0; step /= 2)\n"
    "        if (size > edge[m + step - 1]) m += step;\n"
    "    if (x < 0.0f) m = T == WEFT_UDYN8X256 ? 0 : (256 - (m > 127 ? 127 : m)) & 255;\n"
    "    return (weft_byte)m;\n"
    "}\n"
    "template <int T> static __device__ __forceinline__ void weft_give(void *to, weft_long i, float x, bool here) {\n"
    "    if (T == WEFT_F32 && here) ((float *)to)[i] = x;\n"
    "    if (T == WEFT_BF16 && here) ((unsigned short *)to)[i] = weft_to_bf16(x);\n"
    "    if (T < WEFT_DYN8X256) return;\n"
    "    const float mine = here ? x : 0.0f;\n"
    "    const unsigned most = weft_most(__float_as_uint(mine) & 0x7FFFFFFFu);\n"
    "    const float scale = __uint_as_float(most < 0x7F800000u ? most : 0x7FC00000u);\n"
    "    weft_byte *block = (weft_byte *)to + i / 256 * 260;\n"
    "    if (threadIdx.x == 0) *(float *)block = scale;\n"
    "    block[4 + i % 256] = scale > 0.0f ? weft_code<T>(mine / scale) : (weft_byte)0;\n"
    "}\n";

static const char kernel_text[] = UPDATE_BEGINS
    "    for (weft_long at = begin; at < end; at += WEFT_THREADS) {\n"
    "        const weft_long i = at + threadIdx.x;\n"
    "        weft_range range = {};\n"
    "        bool here = false, any = false;\n"
    "        for (weft_long k = low; k < n_ranges; k++) {\n"
    "            const weft_range next = *(const weft_range *)(ranges + k * stride);\n"
    "            const weft_long last = next.offset + next.length;\n"
    "            if (next.offset >= at + WEFT_THREADS) break;\n"
    "            if (last <= at) low = k + 1;\n"
    "            else any = true;\n"
    "            if (i < next.offset || i >= last || i >= end) continue;\n"
    "            range = next;\n"
    "            here = true;\n"
    "        }\n"
    "        if (!any) continue;\n"
    "        const weft_long of = here ? i : at;\n"
    "        float w = weft_take<WEFT_W>(r.w, of), s0 = weft_take<WEFT_S0>(r.s0, of), s1 = weft_take<WEFT_S1>(r.s1, "
    "of);\n"
    "        float s2 = weft_take<WEFT_S2>(r.s2, of), s3 = weft_take<WEFT_S3>(r.s3, of);\n"
    "        if (here) weft_element(w, r.g[i] * coefficient, s0, s1, s2, s3, &range, &hp);\n"
    "        __syncthreads();\n"
    "        weft_give<WEFT_W>(r.w, i, w, here);\n"
    "        if (WEFT_W == WEFT_BF16) w = __uint_as_float((unsigned)weft_to_bf16(w) << 16);\n"
    "        if (WEFT_COPY != 0 && r.copy != 0 && here) r.copy[i] = weft_to_copy(w);\n"
    "        weft_give<WEFT_S0>(r.s0, i, s0, here);\n"
    "        weft_give<WEFT_S1>(r.s1, i, s1, here);\n"
    "        weft_give<WEFT_S2>(r.s2, i, s2, here);\n"
    "        weft_give<WEFT_S3>(r.s3, i, s3, here);\n"
    "    }\n"
    "}\n";

static void write_numbers(FILE *to, const char *name, int32_t dtype, const float *numbers) {
    (void)fprintf(to, "static __device__ const float weft_%s_%d[256] = {", name, (int)dtype);
    for (int i = 0; i < 256; i++) {
        if (isinf(numbers[i])) (void)fputs("3.4e38f, ", to); /* above any quotient */
        else (void)fprintf(to, "%af, ", (double)numbers[i]);
    }
    (void)fputs("};\n", to);
}

/* Entries after the last size have an infinite edge. */
static void write_map(FILE *to, int32_t dtype) {
    static weft_dynamic8 map;
    weft_dynamic8_fill(&map, dtype);
    for (int i = weft_dynamic8_sizes(&map); i < 256; i++) map.edge[i] = INFINITY;
    write_numbers(to, "value", dtype, map.value);
    write_numbers(to, "edge", dtype, map.edge);
}

bool cuda_update_is_narrow(const cuda_update_types *types) {
    bool narrow = types->weight != WEFT_F32;
    for (int i = 0; i < WEFT_MAX_STATES; i++) narrow |= types->states[i] > WEFT_F32;
    return narrow;
}

void cuda_update_write_stored(FILE *to, const cuda_update_types *types) {
    write_map(to, WEFT_DYN8X256);
    write_map(to, WEFT_UDYN8X256);
    (void)fprintf(to, "#define WEFT_W %d\n", (int)types->weight);
    for (int i = 0; i < WEFT_MAX_STATES; i++) (void)fprintf(to, "#define WEFT_S%d %d\n", i, (int)types->states[i]);
    (void)fprintf(to, "%s%s", types_text, kernel_text);
}
