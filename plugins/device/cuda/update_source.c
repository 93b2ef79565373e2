/* update_source.c: generates the CUDA source of an optimizer's update. It runs the same statements per element as the
 * CPU loop of weft/optimizer.h.
 *
 * The table of regions is a kernel parameter. A launch copies it, so a captured graph contains it too, and no device
 * memory must be written first. A thread block finds its region there and processes CUDA_UPDATE_BLOCK consecutive
 * elements. It searches the first range that ends after the block's start and continues with all ranges that overlap
 * the block; one launch handles any number of ranges. The ranges are in device memory and were not validated: the
 * kernel touches no element outside [0, n) for any content.
 *
 * A region's copy of the weights is written by the thread that updates them, with the bits of convert.cu. */
#include "modules.h"
#include "update_text.h"

const char *const cuda_update_options[CUDA_UPDATE_OPTIONS] = {"--fmad=false", "--std=c++17"};

static const char declarations[] = "typedef int int32_t;\n"
                                   "typedef unsigned int uint32_t;\n"
                                   "typedef long long weft_long;\n"
                                   "struct weft_range {\n"
                                   "    uint32_t struct_size, flags;\n"
                                   "    weft_long offset, length;\n"
                                   "    float lr_scale, decay;\n"
                                   "};\n"
                                   "inline __device__ float weft_round_bf16(float x) {\n"
                                   "    const unsigned bits = __float_as_uint(x);\n"
                                   "    return __uint_as_float((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);\n"
                                   "}\n"
                                   "inline __device__ unsigned short weft_to_bf16(float x) {\n"
                                   "    const unsigned bits = __float_as_uint(x), high = bits >> 16;\n"
                                   "    if (x != x) return (unsigned short)(high | 0x40u);\n"
                                   "    return (unsigned short)((bits + 0x7FFFu + (high & 1u)) >> 16);\n"
                                   "}\n";

static const char f16_text[] = "inline __device__ unsigned short weft_to_f16(float x) {\n"
                               "    const unsigned bits = __float_as_uint(x), a = bits & 0x7FFFFFFFu;\n"
                               "    unsigned h = (a + 0xFFFu + ((a >> 13) & 1u) - (112u << 23)) >> 13;\n"
                               "    if (a > 0x7F800000u) h = 0x7E00u | ((a >> 13) & 0x1FFu);\n"
                               "    else if (a >= 0x477FF000u) h = 0x7C00u;\n"
                               "    else if (a < (113u << 23))\n"
                               "        h = __float_as_uint(__uint_as_float(a) + 0.5f) - __float_as_uint(0.5f);\n"
                               "    return (unsigned short)(((bits >> 16) & 0x8000u) | h);\n"
                               "}\n";

static const char element_begin[] =
    "static __device__ __forceinline__ void weft_element(float &w, const float g, float &s0, float &s1, float &s2,\n"
    "                                                    float &s3, const weft_range *const range,\n"
    "                                                    const weft_hp *const hp) {\n";

static const char elements_text[] =
    "struct alignas(16) weft_four { float at[4]; };\n"
    "struct alignas(4 * sizeof(weft_copy)) weft_copies { weft_copy at[4]; };\n"
    "struct weft_region { float *w; const float *g; float *s0, *s1, *s2, *s3; weft_copy *copy; };\n"
    "static __device__ __forceinline__ bool weft_is_wide(const weft_region &r) {\n"
    "    return (((size_t)r.w | (size_t)r.g | (size_t)r.s0 | (size_t)r.s1 | (size_t)r.s2 | (size_t)r.s3) & 15 |\n"
    "            (size_t)r.copy % sizeof(weft_copies)) == 0;\n"
    "}\n"
    "#define WEFT_GET(state, i) (WEFT_STATES > state ? r.s##state[i] : 0.0f)\n"
    "#define WEFT_GET_FOUR(state, i) if (WEFT_STATES > state) s##state = *(const weft_four *)(r.s##state + i);\n"
    "#define WEFT_PUT(state, i, x) if (WEFT_STATES > state) r.s##state[i] = x;\n"
    "#define WEFT_PUT_FOUR(state, i, x) if (WEFT_STATES > state) *(weft_four *)(r.s##state + i) = x;\n"
    "static __device__ __forceinline__ void weft_one(const weft_region &r, weft_long i, float coefficient,\n"
    "                                                const weft_range *range, const weft_hp *hp) {\n"
    "    float w = r.w[i], s0 = WEFT_GET(0, i), s1 = WEFT_GET(1, i), s2 = WEFT_GET(2, i), s3 = WEFT_GET(3, i);\n"
    "    weft_element(w, r.g[i] * coefficient, s0, s1, s2, s3, range, hp);\n"
    "    r.w[i] = w;\n"
    "    WEFT_PUT(0, i, s0) WEFT_PUT(1, i, s1) WEFT_PUT(2, i, s2) WEFT_PUT(3, i, s3)\n"
    "    if (WEFT_COPY != 0 && r.copy != 0) r.copy[i] = weft_to_copy(w);\n"
    "}\n"
    "static __device__ __forceinline__ void weft_neighbours(const weft_region &r, weft_long i, float coefficient,\n"
    "                                                       const weft_range *range, const weft_hp *hp) {\n"
    "    weft_four w = *(const weft_four *)(r.w + i), g = *(const weft_four *)(r.g + i);\n"
    "    weft_four s0 = {}, s1 = {}, s2 = {}, s3 = {};\n"
    "    WEFT_GET_FOUR(0, i) WEFT_GET_FOUR(1, i) WEFT_GET_FOUR(2, i) WEFT_GET_FOUR(3, i)\n"
    "    for (int k = 0; k < 4; k++)\n"
    "        weft_element(w.at[k], g.at[k] * coefficient, s0.at[k], s1.at[k], s2.at[k], s3.at[k], range, hp);\n"
    "    *(weft_four *)(r.w + i) = w;\n"
    "    WEFT_PUT_FOUR(0, i, s0) WEFT_PUT_FOUR(1, i, s1) WEFT_PUT_FOUR(2, i, s2) WEFT_PUT_FOUR(3, i, s3)\n"
    "#if WEFT_COPY != 0\n"
    "    if (r.copy == 0) return;\n"
    "    weft_copies copies;\n"
    "    for (int k = 0; k < 4; k++) copies.at[k] = weft_to_copy(w.at[k]);\n"
    "    *(weft_copies *)(r.copy + i) = copies;\n"
    "#endif\n"
    "}\n";

static const char kernel_text[] = UPDATE_BEGINS
    "    for (; low < n_ranges; low++) {\n"
    "        const weft_range range = *(const weft_range *)(ranges + low * stride);\n"
    "        const weft_long from = range.offset > begin ? range.offset : begin;\n"
    "        const weft_long last = range.offset + range.length, to = last < end ? last : end;\n"
    "        if (range.offset >= end) break;\n"
    "        if (from == begin && to == begin + WEFT_BLOCK && weft_is_wide(r)) {\n"
    "            weft_neighbours(r, begin + 4 * (weft_long)threadIdx.x, coefficient, &range, &hp);\n"
    "            continue;\n"
    "        }\n"
    "        for (weft_long i = from + threadIdx.x; i < to; i += WEFT_THREADS) weft_one(r, i, coefficient, &range, "
    "&hp);\n"
    "    }\n"
    "}\n";

/* The preprocessor has joined the author's body into one line. This writes one statement per line, so that compiler
 * messages show the statement. */
static void write_body(FILE *to, const char *body) {
    int depth = 0; /* of parentheses: those of a `for` contain semicolons */
    for (const char *at = body; *at != 0; at++) {
        (void)fputc(*at, to);
        if (*at == '(') depth++;
        if (*at == ')') depth--;
        if (depth <= 0 && (*at == ';' || *at == '{' || *at == '}')) {
            (void)fputc('\n', to);
            while (at[1] == ' ') at++;
        }
    }
}

/* Defines the type of a copy and the conversion of a stored weight to it. */
static void write_copy(FILE *to, int32_t dtype) {
    const bool is_f16 = dtype == WEFT_F16, is_half = is_f16 || dtype == WEFT_BF16;
    if (is_f16) (void)fputs(f16_text, to);
    (void)fprintf(to, "#define WEFT_COPY %d\ntypedef %s weft_copy;\n#define weft_to_copy %s\n", (int)dtype,
                  is_half ? "unsigned short" : "float",
                  is_f16    ? "weft_to_f16"
                  : is_half ? "weft_to_bf16"
                            : "");
}

static void write_source(FILE *to, const weft_elementwise *kernel, const cuda_update_types *types) {
    (void)fprintf(to,
                  "#define WEFT_STATES %d\n#define WEFT_THREADS %d\n#define WEFT_BLOCK %d\n#define WEFT_ROWS %d\n%s",
                  (int)kernel->n_states, CUDA_UPDATE_THREADS, CUDA_UPDATE_BLOCK, (int)types->rows, declarations);
    (void)fprintf(to, "struct %s {\n#line 1 \"%s\"\n%s\n};\ntypedef %s weft_hp;\n", kernel->hp_name, kernel->hp_name,
                  kernel->hp_fields, kernel->hp_name);
    (void)fprintf(to, "%s#line 1 \"%s\"\n", element_begin, kernel->name);
    write_body(to, kernel->body);
    (void)fprintf(to, "\n}\n#line 1 \"weft_update\"\n");
    write_copy(to, types->copy);
    if (cuda_update_is_narrow(types)) cuda_update_write_stored(to, types);
    else (void)fprintf(to, "%s%s", elements_text, kernel_text);
}

char *cuda_update_source(const weft_elementwise *kernel, const cuda_update_types *types) {
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return NULL;
    write_source(to, kernel, types);
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}
