/* algorithm.c: see algorithm.h. Takes the first algorithm of cuBLASLt's heuristic, or the fastest of the first ones
 * (measure.c); each algorithm has a fixed order of addition. A split-K algorithm may store partial sums in the
 * result's type (cublasLtReductionScheme_t OUTPUT_TYPE), which is excluded unless that type is fp32, or add them to
 * the result one by one (INPLACE), which is excluded because C += AB is one addition of the complete sum. */
#include "algorithm.h"

static const cudaDataType_t *type_of(int32_t dtype) {
    static const cudaDataType_t fp32 = CUDA_R_32F, bf16 = CUDA_R_16BF, fp16 = CUDA_R_16F;
    return dtype == WEFT_BF16 ? &bf16 : dtype == WEFT_F16 ? &fp16 : &fp32;
}

/* ---- description ---- */

static void drop_description(const weft_device *device, cuda_algorithm *a) {
    const cuda_libraries *of = &device->libraries;
    if (a->product != NULL) cuda_end_other(device, of->cublasLtMatmulDescDestroy(a->product));
    if (a->a != NULL) cuda_end_other(device, of->cublasLtMatrixLayoutDestroy(a->a));
    if (a->b != NULL) cuda_end_other(device, of->cublasLtMatrixLayoutDestroy(a->b));
    if (a->c != NULL) cuda_end_other(device, of->cublasLtMatrixLayoutDestroy(a->c));
    a->product = NULL;
    a->a = a->b = a->c = NULL;
}

/* For example "describing fp32 to fp32, nn 32x24x24, ...". */
typedef struct about {
    char text[200];
} about;

static about about_product(const char *doing, const cuda_shape *shape) {
    char key[128] = "";
    about out;
    cuda_shape_print(key, sizeof key, shape);
    (void)snprintf(out.text, sizeof out.text, "%s the product %s", doing, key);
    return out;
}

static weft_status set_of_product(const weft_device *device, const cuda_algorithm *of,
                                  cublasLtMatmulDescAttributes_t which, const void *value, size_t bytes,
                                  weft_error *err) {
    return cuda_judge_lt(device, device->libraries.cublasLtMatmulDescSetAttribute(of->product, which, value, bytes),
                         about_product("describing", &of->shape).text, err);
}

static weft_status describe_product(const weft_device *device, cuda_algorithm *out, weft_error *err) {
    const cuda_shape *s = &out->shape;
    const cublasComputeType_t compute = s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    weft_status status = cuda_judge_lt(device,
                                       device->libraries.cublasLtMatmulDescCreate(&out->product, compute, CUDA_R_32F),
                                       about_product("describing", s).text, err);
    if (status == WEFT_OK) status = set_of_product(device, out, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, err);
    if (status == WEFT_OK)
        status = set_of_product(device, out, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, err);
    if (status == WEFT_OK && s->has_bias)
        status = set_of_product(device, out, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias, sizeof with_bias, err);
    return status;
}

/* Describes a row-major rows x width matrix as a column-major width x rows one. */
static weft_status describe_matrix(const weft_device *device, cublasLtMatrixLayout_t *out, const cuda_shape *of,
                                   int32_t dtype, int64_t rows, int64_t width, int64_t ld, weft_error *err) {
    return cuda_judge_lt(
        device, device->libraries.cublasLtMatrixLayoutCreate(out, *type_of(dtype), (uint64_t)width, (uint64_t)rows, ld),
        about_product("describing a matrix of", of).text, err);
}

static weft_status describe(const weft_device *device, cuda_algorithm *out, weft_error *err) {
    const cuda_shape *s = &out->shape;
    weft_status status = WEFT_OK;
    if (out->has_description) return WEFT_OK;
    drop_description(device, out); /* left by a failed attempt */
    status = describe_product(device, out, err);
    if (status == WEFT_OK)
        status = describe_matrix(device, &out->b, s, s->dtype, s->transpose_b ? s->n : s->k,
                                 s->transpose_b ? s->k : s->n, s->ldb, err);
    if (status == WEFT_OK)
        status = describe_matrix(device, &out->a, s, s->dtype, s->transpose_a ? s->k : s->m,
                                 s->transpose_a ? s->m : s->k, s->lda, err);
    if (status == WEFT_OK) status = describe_matrix(device, &out->c, s, s->dtype_c, s->m, s->n, s->ldc, err);
    out->has_description = status == WEFT_OK;
    return status;
}

/* ---- selection ---- */

/* Returns the allowed split-K reduction schemes: those that add partial sums in fp32, and the sum once. */
static uint32_t schemes_of(const cuda_shape *s) {
    return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
           (s->dtype_c == WEFT_F32 ? (uint32_t)CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0);
}

static weft_status set_schemes(const weft_device *device, const cuda_shape *s, weft_error *err) {
    const uint32_t schemes = schemes_of(s);
    return cuda_judge_lt(device,
                         device->libraries.cublasLtMatmulPreferenceSetAttribute(
                             device->algorithms->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                             sizeof schemes),
                         about_product("selecting an algorithm for", s).text, err);
}

/* Checks an algorithm that another run or another rank selected. */
static weft_status judge_scheme(const weft_device *device, const cuda_algorithm *a, const cublasLtMatmulAlgo_t *way,
                                weft_error *err) {
    uint32_t scheme = 0;
    size_t written = 0;
    const weft_status status =
        cuda_judge_lt(device,
                      device->libraries.cublasLtMatmulAlgoConfigGetAttribute(way, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                             &scheme, sizeof scheme, &written),
                      about_product("reading the algorithm of", &a->shape).text, err);
    if (status != WEFT_OK || (scheme & ~schemes_of(&a->shape)) == 0) return status;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "%s: the selected algorithm does not add its partial sums in fp32 before it adds them to the result "
        "(cuBLASLt's reduction scheme %u). Fix: if it is from a checkpoint, start a new run with the checkpoint's "
        "weights as [model] path.",
        about_product("Taking the algorithm of", &a->shape).text, scheme);
}

/* cuBLASLt takes B first. C is both the addend and the result. */
static weft_status set_alignments(const weft_device *device, const cuda_shape *s, weft_error *err) {
    static const cublasLtMatmulPreferenceAttributes_t of[] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t c = cuda_row_alignment(s->ldc, s->dtype_c);
    const uint32_t bytes[] = {cuda_row_alignment(s->ldb, s->dtype),
                              cuda_a_alignment(s->lda, s->transpose_a ? s->m : s->k, s->a_is_part != 0, s->dtype), c,
                              c};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < sizeof of / sizeof *of && status == WEFT_OK; i++)
        status =
            cuda_judge_lt(device,
                          device->libraries.cublasLtMatmulPreferenceSetAttribute(device->algorithms->preference, of[i],
                                                                                 &bytes[i], sizeof bytes[i]),
                          about_product("selecting an algorithm for", s).text, err);
    return status;
}

/* Takes the first result, or with `measures` the fastest. */
static weft_status choose(weft_device *device, cuda_algorithm *out, bool measures, weft_error *err) {
    const cuda_shape *s = &out->shape;
    cublasLtMatmulHeuristicResult_t all[CUDA_RESULTS] = {0};
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    int found = 0, n = 0;
    weft_status status = set_alignments(device, s, err);
    if (status == WEFT_OK) status = set_schemes(device, s, err);
    if (status != WEFT_OK) return status;
    code = device->libraries.cublasLtMatmulAlgoGetHeuristic(device->lt, out->product, out->b, out->a, out->c, out->c,
                                                            device->algorithms->preference, CUDA_RESULTS, all, &found);
    for (int i = 0; i < found; i++)
        if (all[i].state == CUBLAS_STATUS_SUCCESS) all[n++] = all[i];
    if (code == CUBLAS_STATUS_SUCCESS && found > 0 && n == 0) code = all[0].state;
    if (code == CUBLAS_STATUS_NOT_SUPPORTED || (code == CUBLAS_STATUS_SUCCESS && found == 0))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "matmul on device cuda: cuBLASLt has no algorithm for %s operands%s%s of m %lld, n %lld, "
                              "k %lld, row strides %lld, %lld and %lld, within %lld bytes of workspace.",
                              weft_dtype_name(s->dtype), s->transpose_a ? ", a transposed" : "",
                              s->transpose_b ? ", b transposed" : "", (long long)s->m, (long long)s->n, (long long)s->k,
                              (long long)s->lda, (long long)s->ldb, (long long)s->ldc, (long long)device->workspace);
    out->way = all[0].algo;
    status = cuda_judge_lt_call(device, code, "cublasLtMatmulAlgoGetHeuristic",
                                about_product("selecting an algorithm for", s).text, err);
    return status == WEFT_OK && measures ? cuda_algorithm_measure(device, out, all, n, err) : status;
}

/* ---- registry ---- */

/* FNV-1a. */
static cuda_algorithm **bucket_of(const weft_device *device, const cuda_shape *shape) {
    const unsigned char *bytes = (const unsigned char *)shape;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *shape; i++) h = (h ^ bytes[i]) * 1099511628211u;
    return &device->algorithms->buckets[h % CUDA_BUCKETS];
}

static cuda_algorithm *find_in_bucket(const weft_device *device, const cuda_shape *shape) {
    cuda_algorithm *a = *bucket_of(device, shape);
    while (a != NULL && memcmp(&a->shape, shape, sizeof *shape) != 0) a = a->in_bucket;
    return a;
}

/* Appends a new entry; NULL: out of memory. */
static cuda_algorithm *add(const weft_device *device, const cuda_shape *shape) {
    cuda_algorithms *of = device->algorithms;
    cuda_algorithm *a = device->host->alloc(device->host, sizeof *a, _Alignof(max_align_t));
    if (a == NULL) return NULL;
    memset(a, 0, sizeof *a);
    a->shape = *shape;
    a->in_bucket = *bucket_of(device, shape);
    *bucket_of(device, shape) = a;
    if (of->last == NULL) of->first = a;
    else of->last->next = a;
    of->last = a;
    of->n++;
    return a;
}

static cuda_algorithm *find_or_add(const weft_device *device, const cuda_shape *shape) {
    cuda_algorithm *a = NULL;
    (void)pthread_mutex_lock(&device->algorithms->lock);
    a = find_in_bucket(device, shape);
    if (a == NULL) a = add(device, shape);
    (void)pthread_mutex_unlock(&device->algorithms->lock);
    return a;
}

void cuda_algorithm_note(const weft_device *device, const cuda_shape *shape) {
    (void)find_or_add(device, shape);
}

cuda_algorithm *cuda_algorithm_known(const weft_device *device, const cuda_shape *shape) {
    cuda_algorithm *a = NULL;
    (void)pthread_mutex_lock(&device->algorithms->lock);
    a = find_in_bucket(device, shape);
    (void)pthread_mutex_unlock(&device->algorithms->lock);
    return a;
}

cuda_algorithm *cuda_algorithm_at(const weft_device *device, int64_t i) {
    cuda_algorithm *a = device->algorithms->first;
    while (a != NULL && i-- > 0) a = a->next;
    return a;
}

weft_status cuda_algorithm_find(cuda_algorithm **out, weft_device *device, const cuda_shape *shape, bool measures,
                                weft_error *err) {
    cuda_algorithm *a = find_or_add(device, shape);
    weft_status status = WEFT_OK;
    if (a == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for a matmul's algorithm.");
    if (!a->is_chosen) {
        status = describe(device, a, err);
        if (status == WEFT_OK) status = choose(device, a, measures, err);
        a->is_chosen = status == WEFT_OK;
    }
    if (status == WEFT_OK) *out = a;
    return status;
}

weft_status cuda_algorithm_take(weft_device *device, cuda_algorithm *a, const cublasLtMatmulAlgo_t *way,
                                weft_error *err) {
    cublasLtMatmulHeuristicResult_t found = {0};
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    char key[128] = "";
    weft_status status = describe(device, a, err);
    if (status != WEFT_OK) return status;
    cuda_shape_print(key, sizeof key, &a->shape);
    code = device->libraries.cublasLtMatmulAlgoCheck(device->lt, a->product, a->b, a->a, a->c, a->c, way, &found);
    if (code == CUBLAS_STATUS_SUCCESS) code = found.state;
    if (code != CUBLAS_STATUS_SUCCESS || found.workspaceSize > (size_t)device->workspace)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "cuBLASLt of this machine cannot run a matmul with the selected algorithm: %s "
                              "(cublasLtMatmulAlgoCheck answered %s, %zu bytes of workspace).",
                              key, device->libraries.cublasLtGetStatusString(code), found.workspaceSize);
    status = judge_scheme(device, a, way, err);
    if (status != WEFT_OK) return status;
    a->way = *way;
    a->is_chosen = true;
    return WEFT_OK;
}

weft_status cuda_algorithms_open(weft_device *device, weft_error *err) {
    const uint64_t most = (uint64_t)device->workspace;
    cuda_algorithms *of = device->host->alloc(device->host, sizeof *of, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    if (of == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for its products.");
    memset(of, 0, sizeof *of);
    (void)pthread_mutex_init(&of->lock, NULL);
    device->algorithms = of;
    status = cuda_judge_lt(device, device->libraries.cublasLtCreate(&device->lt), "starting cuBLASLt", err);
    if (status == WEFT_OK)
        status = cuda_judge_lt(device, device->libraries.cublasLtMatmulPreferenceCreate(&of->preference),
                               "starting cuBLASLt", err);
    if (status == WEFT_OK)
        status = cuda_judge_lt(device,
                               device->libraries.cublasLtMatmulPreferenceSetAttribute(
                                   of->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
                               "starting cuBLASLt", err);
    return status;
}

void cuda_algorithms_close(weft_device *device) {
    cuda_algorithms *of = device->algorithms;
    if (of == NULL) return;
    while (of->first != NULL) {
        cuda_algorithm *a = of->first;
        of->first = a->next;
        drop_description(device, a);
        device->host->release(device->host, a);
    }
    if (of->preference != NULL)
        cuda_end_other(device, device->libraries.cublasLtMatmulPreferenceDestroy(of->preference));
    if (device->lt != NULL) cuda_end_other(device, device->libraries.cublasLtDestroy(device->lt));
    (void)pthread_mutex_destroy(&of->lock);
    device->host->release(device->host, of);
    device->algorithms = NULL;
}
