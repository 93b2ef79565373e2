/* choices.c: the extension weft/choices.h: matmul algorithms as text. An algorithm is cuBLASLt's 64-byte
 * cublasLtMatmulAlgo_t in hexadecimal; the same cuBLASLt version accepts it again. */
#include "algorithm.h"

enum { WORDS = 8 };
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == WORDS * sizeof(uint64_t), "an algorithm is 64 bytes");

/* ---- keys ---- */

/* "bf16 to fp32, nt 2048x4096x1024, rows 1024 1024 4096 apart, added": n and t event operands as stored or
 * transposed. */
void cuda_shape_print(char *out, size_t size, const cuda_shape *s) {
    (void)snprintf(out, size, "%s to %s, %c%c %lldx%lldx%lld, rows %lld %lld %lld apart%s%s%s%s",
                   weft_dtype_name(s->dtype), weft_dtype_name(s->dtype_c), s->transpose_a ? 't' : 'n',
                   s->transpose_b ? 't' : 'n', (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->lda,
                   (long long)s->ldb, (long long)s->ldc, s->accumulate ? ", added" : "", s->has_bias ? ", bias" : "",
                   s->a_is_part ? ", within" : "", s->tf32 ? ", TF32" : "");
}

static int32_t dtype_of(const char *name) {
    if (strcmp(name, "fp16") == 0) return WEFT_F16;
    return strcmp(name, "bf16") == 0 ? WEFT_BF16 : WEFT_F32;
}

/* Parses a key. False: not one of this plugin's keys. A parsed key must print as the same text. */
static bool read_key(cuda_shape *out, const char *key) {
    char from[8] = "", to[8] = "", a = 0, b = 0, again[sizeof((weft_device_choice *)NULL)->key];
    long long m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
    if (sscanf(key, "%7[a-z0-9] to %7[a-z0-9], %c%c %lldx%lldx%lld, rows %lld %lld %lld apart", from, to, &a, &b, &m,
               &n, &k, &lda, &ldb, &ldc) != 10)
        return false;
    *out = (cuda_shape){.m = m,
                        .n = n,
                        .k = k,
                        .lda = lda,
                        .ldb = ldb,
                        .ldc = ldc,
                        .dtype = dtype_of(from),
                        .dtype_c = dtype_of(to),
                        .transpose_a = a == 't',
                        .transpose_b = b == 't',
                        .accumulate = strstr(key, ", added") != NULL,
                        .has_bias = strstr(key, ", bias") != NULL,
                        .a_is_part = strstr(key, ", within") != NULL,
                        .tf32 = strstr(key, ", TF32") != NULL};
    cuda_shape_print(again, sizeof again, out);
    return strcmp(again, key) == 0 && m > 0 && n > 0 && k > 0;
}

/* ---- values ---- */

static void print_way(char *out, size_t size, const cublasLtMatmulAlgo_t *way) {
    uint64_t words[WORDS];
    memcpy(words, way, sizeof words);
    out[0] = 0;
    for (size_t i = 0; i < WORDS && 16 * (i + 1) < size; i++)
        (void)snprintf(out + 16 * i, size - 16 * i, "%016llx", (unsigned long long)words[i]);
}

static bool read_way(cublasLtMatmulAlgo_t *out, const char *text) {
    uint64_t words[WORDS];
    if (strlen(text) != WORDS * 16 || strspn(text, "0123456789abcdef") != WORDS * 16) return false;
    for (size_t i = 0; i < WORDS; i++) {
        char part[17];
        memcpy(part, text + 16 * i, 16);
        part[16] = 0;
        words[i] = strtoull(part, NULL, 16);
    }
    memcpy(out, words, sizeof words);
    return true;
}

/* Prints cuBLASLt's numeric attributes; "?" for an unavailable one. */
static void print_note(char *out, size_t size, const weft_device *device, const cublasLtMatmulAlgo_t *way) {
    static const struct {
        const char *name;
        cublasLtMatmulAlgoConfigAttributes_t which;
    } numbers[] = {{"way", CUBLASLT_ALGO_CONFIG_ID},
                   {", tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                   {", stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                   {", parts", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                   {", reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME}};
    out[0] = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char number[12] = "?";
        uint32_t value = 0;
        size_t written = 0;
        if (device->libraries.cublasLtMatmulAlgoConfigGetAttribute(way, numbers[i].which, &value, sizeof value,
                                                                   &written) == CUBLAS_STATUS_SUCCESS)
            (void)snprintf(number, sizeof number, "%u", value);
        (void)snprintf(out + strlen(out), size - strlen(out), "%s %s", numbers[i].name, number);
    }
}

/* ---- the table ---- */

static void tell(const weft_device *device, const cuda_algorithm *a, weft_device_choice *out) {
    weft_device_choice c = {.struct_size = (uint32_t)sizeof c};
    cuda_shape_print(c.key, sizeof c.key, &a->shape);
    if (a->is_chosen) {
        print_way(c.value, sizeof c.value, &a->way);
        print_note(c.note, sizeof c.note, device, &a->way);
    }
    weft_struct_give(out, &c);
}

static int64_t count(const weft_device *device) {
    return device->algorithms->n;
}

static void get(const weft_device *device, int64_t i, weft_device_choice *out) {
    const cuda_algorithm *a = cuda_algorithm_at(device, i);
    if (a != NULL) tell(device, a, out);
}

static weft_status choose(weft_device *device, weft_device_choice *choice, weft_error *err) {
    cuda_algorithm *a = NULL;
    cuda_shape shape;
    weft_status status = WEFT_OK;
    if (!read_key(&shape, choice->key))
        return weft_error_set(err, WEFT_E_HOST, "Device cuda does not support the request for a choice of \"%.127s\".",
                              choice->key);
    cuda_card_enter(device);
    status = cuda_algorithm_find(&a, device, &shape, true, err);
    if (status == WEFT_OK) tell(device, a, choice);
    return status;
}

static weft_status take(weft_device *device, const weft_device_choice *choice, weft_error *err) {
    cublasLtMatmulAlgo_t way;
    cuda_shape shape;
    cuda_algorithm *a = NULL;
    if (!read_key(&shape, choice->key) || !read_way(&way, choice->value))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "Device cuda does not support the choice \"%.127s\" for \"%.127s\".", choice->value,
                              choice->key);
    a = cuda_algorithm_known(device, &shape);
    return a == NULL ? WEFT_OK : cuda_algorithm_take(device, a, &way, err);
}

const weft_device_choices cuda_choices = {(uint32_t)sizeof(weft_device_choices), 0, count, get, choose, take};
