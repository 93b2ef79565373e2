/* update_source.c: generates the CUDA source of an optimizer's update. It runs the same statements per element as the
 * CPU loop of weft/optimizer.h.
 *
 * The table of regions is a kernel parameter. A launch copies it, so a captured graph contains it too, and no device
 * memory must be written first. A thread block finds its region there and processes CUDA_UPDATE_BLOCK consecutive
 * elements. It searches the first range that ends after the block's start and continues with all ranges that overlap
 * the block; one launch handles any number of ranges. The ranges are in device memory and were not validated: the
 * kernel touches no element outside [0, n) for any content. */
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
                                   "}\n";

static const char element_begin[] =
    "static __device__ __forceinline__ void weft_element(float &w, const float g, float &s0, float &s1, float &s2,\n"
    "                                                    float &s3, const weft_range *const range,\n"
    "                                                    const weft_hp *const hp) {\n";

static const char kernel_text[] =
    "struct alignas(16) weft_four { float at[4]; };\n"
    "struct weft_region { float *w; const float *g; float *s0, *s1, *s2, *s3; };\n"
    "static __device__ __forceinline__ bool weft_is_wide(const weft_region &r) {\n"
    "    return (((size_t)r.w | (size_t)r.g | (size_t)r.s0 | (size_t)r.s1 | (size_t)r.s2 | (size_t)r.s3) & 15) == 0;\n"
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
    "}\n" UPDATE_BEGINS "    for (; low < n_ranges; low++) {\n"
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

static void write_source(FILE *to, const weft_elementwise *kernel, const cuda_update_types *types) {
    (void)fprintf(to,
                  "#define WEFT_STATES %d\n#define WEFT_THREADS %d\n#define WEFT_BLOCK %d\n#define WEFT_ROWS %d\n%s",
                  (int)kernel->n_states, CUDA_UPDATE_THREADS, CUDA_UPDATE_BLOCK, (int)types->rows, declarations);
    (void)fprintf(to, "struct %s {\n#line 1 \"%s\"\n%s\n};\ntypedef %s weft_hp;\n", kernel->hp_name, kernel->hp_name,
                  kernel->hp_fields, kernel->hp_name);
    (void)fprintf(to, "%s#line 1 \"%s\"\n", element_begin, kernel->name);
    write_body(to, kernel->body);
    (void)fprintf(to, "\n}\n#line 1 \"weft_update\"\n");
    if (cuda_update_is_narrow(types)) cuda_update_write_stored(to, types);
    else (void)fputs(kernel_text, to);
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
