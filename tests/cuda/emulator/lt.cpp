/* lt.cpp: the part of cuBLASLt that Weft uses. A matmul has several algorithms, which differ in bits: the inner
 * dimension is summed at once or in 2, 4 or 8 parts, with partial sums in the result's type if the caller allows it.
 * The heuristic's order depends on the complete description: shape, strides, types, epilogue, alignments and the memory
 * for partial sums, as on a GPU. An algorithm rejects operands with a smaller alignment than it was selected for.
 * Every matmul overwrites the workspace, with any algorithm. As measured on an H100, a matmul with beta, or with a bias
 * and an alignment below 16 bytes, rounds its sum to the result's type before the addition. */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator.h"
#include "lt.h"

using namespace weft_emulator;

struct cublasLtContext {
    int device;
};
struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    cudaDataType_t bias_type;
    bool has_bias_type;
};
struct cublasLtMatmulPreferenceOpaque_t {
    uint64_t workspace;
    uint32_t reductions;
    uint32_t alignment[4];
};

namespace {

constexpr uint64_t MARK = 0x57656674446f7562; /* identifies algorithms made here */
constexpr int64_t SPLITS[] = {1, 2, 4, 8};
constexpr int N_WAYS = 4;
constexpr size_t MOST_POISONED = 64 << 10; /* of a workspace */

/* data[0] MARK, [1] id, [2] parts, [3] alignment, [4] tile, [5] reduction. */
struct Way {
    uint64_t mark, id, splits, alignment, tile, reduction, swizzling, other;
};
static_assert(sizeof(Way) == sizeof(cublasLtMatmulAlgo_t), "a way fits");

Way way_of(const cublasLtMatmulAlgo_t &algo) {
    Way way;
    std::memcpy(&way, &algo, sizeof way);
    return way;
}
cublasLtMatmulAlgo_t algo_of(const Way &way) {
    cublasLtMatmulAlgo_t algo;
    std::memcpy(&algo, &way, sizeof algo);
    return algo;
}

#define LT_CALL(name)                                                                                                  \
    const std::lock_guard<Lock> lock(lock_of_all());                                                                   \
    const int planted_code = planted(name);                                                                            \
    if (planted_code != 0) return static_cast<cublasStatus_t>(planted_code)

Product describe(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
    Product p;
    p.a = *a;
    p.b = *b;
    p.c = *c;
    p.d = *d;
    p.transpose_a = product->transpose_a == CUBLAS_OP_T;
    p.transpose_b = product->transpose_b == CUBLAS_OP_T;
    p.tf32 = product->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type == CUDA_R_32F;
    return p;
}

bool is_laid_out(const cublasLtMatrixLayoutOpaque_t &m) {
    return m.rows > 0 && m.cols > 0 && m.ld >= m.rows;
}

/* Validates that shapes match and types are supported. */
cublasStatus_t judge(const Product &p) {
    const int64_t inner = p.transpose_b ? p.b.cols : p.b.rows;
    const bool shapes = (p.transpose_a ? p.a.cols : p.a.rows) == p.m() &&
                        (p.transpose_b ? p.b.rows : p.b.cols) == p.n() && p.k() == inner && p.c.rows == p.m() &&
                        p.c.cols == p.n();
    const bool laid_out = is_laid_out(p.a) && is_laid_out(p.b) && is_laid_out(p.c) && is_laid_out(p.d);
    const bool fp32 = p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F;
    const bool halves = (p.a.type == CUDA_R_16BF || p.a.type == CUDA_R_16F) &&
                        (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
    if (!shapes || !laid_out) return CUBLAS_STATUS_INVALID_VALUE;
    return p.a.type == p.b.type && p.c.type == p.d.type && (fp32 || halves) ? CUBLAS_STATUS_SUCCESS
                                                                            : CUBLAS_STATUS_NOT_SUPPORTED;
}

size_t workspace_of(const Product &p, int64_t splits) {
    return splits == 1 ? 0 : static_cast<size_t>(p.m() * p.n() * splits) * sizeof(float);
}

/* Returns the preferred algorithm, drawn from the description (FNV-1a). Small outer and long inner dimensions prefer
 * parts. */
int first_way(const Product &p, cublasLtEpilogue_t epilogue, const cublasLtMatmulPreferenceOpaque_t &preference) {
    const int64_t description[] = {p.a.type,
                                   p.a.rows,
                                   p.a.cols,
                                   p.a.ld,
                                   p.b.rows,
                                   p.b.cols,
                                   p.b.ld,
                                   p.d.type,
                                   p.d.ld,
                                   p.transpose_a,
                                   p.transpose_b,
                                   p.tf32,
                                   epilogue,
                                   preference.alignment[0],
                                   preference.alignment[1],
                                   preference.alignment[2],
                                   static_cast<int64_t>(preference.workspace),
                                   preference.reductions};
    uint64_t hash = 14695981039346656037u;
    for (int64_t field : description) hash = (hash ^ static_cast<uint64_t>(field)) * 1099511628211u;
    const long long more = p.m() * p.n() < 4096 && p.k() >= 64 ? 1 : 0;
    /* WEFT_EMULATOR_WAY: a machine with other preferences. */
    return static_cast<int>((static_cast<long long>(hash >> 33) % 3 + more + number("WEFT_EMULATOR_WAY", 0)) % N_WAYS);
}

/* WEFT_EMULATOR_TIMES="100,90,100,100": percentages of the algorithms' times, by id. */
double seconds_of(const Product &p, const Way &way) {
    constexpr double SECONDS = 8e-11; /* per multiplication */
    const char *percent = std::getenv("WEFT_EMULATOR_TIMES");
    for (uint64_t i = 0; i < way.id && percent != nullptr; i++)
        if ((percent = std::strchr(percent, ',')) != nullptr) percent++;
    return static_cast<double>(p.m() * p.n() * p.k()) * SECONDS * (percent == nullptr ? 1 : std::atof(percent) / 100);
}

uint32_t least_alignment(const cublasLtMatmulPreferenceOpaque_t &p) {
    uint32_t least = 256;
    for (uint32_t bytes : p.alignment) least = bytes < least ? bytes : least;
    return least;
}

uint64_t size_of_matrix(const cublasLtMatrixLayoutOpaque_t &m) {
    return static_cast<uint64_t>((m.ld * (m.cols - 1) + m.rows) * bytes_of(m.type));
}

cublasStatus_t judge_operands(const Product &p, const Way &way, const void *workspace, size_t workspace_bytes) {
    const void *const at[] = {p.a_at, p.b_at, p.c_at, p.d_at};
    const cublasLtMatrixLayoutOpaque_t *const of[] = {&p.a, &p.b, &p.c, &p.d};
    const char *const names[] = {"A", "B", "C", "D"};
    const char *const call = "cublasLtMatmul";
    for (int i = 0; i < 4; i++) {
        if (!whole(at[i], size_of_matrix(*of[i]), call, names[i])) return CUBLAS_STATUS_INVALID_VALUE;
        if (reinterpret_cast<uintptr_t>(at[i]) % (way.alignment < 16 ? way.alignment : 16) == 0) continue;
        (void)refuse(cudaErrorMisalignedAddress,
                     "%s: the way was chosen for operands aligned to %d bytes, and %s is not", call,
                     static_cast<int>(way.alignment), names[i]);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (p.bias != nullptr && !whole(p.bias, static_cast<size_t>(p.m() * bytes_of(p.d.type)), call, "the bias"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<uintptr_t>(p.bias) % 16 != 0) { /* read as vectors of 16 bytes */
        (void)refuse(cudaErrorMisalignedAddress, "%s: the bias is not aligned to 16 bytes", call);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (workspace_bytes < workspace_of(p, p.splits) ||
        (workspace_bytes > 0 && !whole(workspace, workspace_bytes, call, "the workspace")))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.c_at == p.d_at && p.c.ld != p.d.ld) return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t take(T &out, const void *value, size_t bytes) {
    if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&out, value, sizeof(T));
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

double &weft_emulator::emulated_seconds() {
    static double seconds = 0;
    return seconds;
}

constexpr long long LT_TAKES = 32 << 20; /* bytes of GPU memory per handle */

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    LT_CALL("cublasLtCreate");
    if (device_ready() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = new cublasLtContext{device_now()};
    library_takes(LT_TAKES);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    LT_CALL("cublasLtDestroy");
    delete handle;
    library_takes(-LT_TAKES);
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT size_t cublasLtGetVersion(void) {
    return CUBLAS_VERSION;
}
EXPORT const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "an unknown status";
}
EXPORT const char *cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    LT_CALL("cublasLtMatmulDescCreate");
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = new cublasLtMatmulDescOpaque_t{compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                                          nullptr, CUDA_R_32F,  false};
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t what) {
    LT_CALL("cublasLtMatmulDescDestroy");
    delete what;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t what, cublasLtMatmulDescAttributes_t which,
                                                     const void *value, size_t bytes) {
    LT_CALL("cublasLtMatmulDescSetAttribute");
    switch (which) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return take(what->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(what->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(what->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(what->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(what->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: what->has_bias_type = true; return take(what->bias_type, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                 uint64_t cols, int64_t ld) {
    LT_CALL("cublasLtMatrixLayoutCreate");
    if (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = new cublasLtMatrixLayoutOpaque_t{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld};
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t what) {
    LT_CALL("cublasLtMatrixLayoutDestroy");
    delete what;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    LT_CALL("cublasLtMatmulPreferenceCreate");
    *out = new cublasLtMatmulPreferenceOpaque_t{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t what) {
    LT_CALL("cublasLtMatmulPreferenceDestroy");
    delete what;
    return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t what,
                                                           cublasLtMatmulPreferenceAttributes_t which,
                                                           const void *value, size_t bytes) {
    LT_CALL("cublasLtMatmulPreferenceSetAttribute");
    switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(what->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(what->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(what->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(what->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(what->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(what->alignment[3], value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* Prefers narrow partial sums, which need the least memory. */
static uint64_t scheme_of(uint32_t allowed) {
    for (uint32_t scheme : {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE,
                            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE})
        if ((allowed & scheme) != 0) return scheme;
    return CUBLASLT_REDUCTION_SCHEME_NONE;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int most,
                                                     cublasLtMatmulHeuristicResult_t out[], int *found) {
    LT_CALL("cublasLtMatmulAlgoGetHeuristic");
    const Product p = describe(product, a, b, c, d);
    const uint32_t alignment = least_alignment(*preference);
    const cublasStatus_t status = judge(p);
    *found = 0;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (int i = 0; i < N_WAYS && *found < most; i++) {
        const int id = (first_way(p, product->epilogue, *preference) + i) % N_WAYS;
        const size_t workspace = workspace_of(p, SPLITS[id]);
        if (workspace > preference->workspace || SPLITS[id] > p.k()) continue;
        const uint64_t reduction = scheme_of(id > 0 ? preference->reductions : 0);
        if (id > 0 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE) continue;
        out[*found] = cublasLtMatmulHeuristicResult_t{};
        out[*found].algo = algo_of(
            {MARK, static_cast<uint64_t>(id), static_cast<uint64_t>(SPLITS[id]), alignment, 15, reduction, 0, 0});
        out[*found].workspaceSize = workspace;
        out[*found].wavesCount = 1;
        (*found)++;
    }
    if (*found > 0 && *found < most) { /* after the usable results, one that cannot be used */
        out[*found] = cublasLtMatmulHeuristicResult_t{};
        out[(*found)++].state = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                                             cudaDataType_t, cudaDataType_t, cudaDataType_t, int id,
                                             cublasLtMatmulAlgo_t *out) {
    LT_CALL("cublasLtMatmulAlgoInit");
    if (id < 0 || id >= N_WAYS) return CUBLAS_STATUS_INVALID_VALUE;
    *out = algo_of({MARK, static_cast<uint64_t>(id), 1, 4, 15, 0, 0, 0});
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                              cublasLtMatmulHeuristicResult_t *out) {
    LT_CALL("cublasLtMatmulAlgoCheck");
    const Product p = describe(product, a, b, c, d);
    const Way way = way_of(*algo);
    cublasStatus_t status = judge(p);
    if (status == CUBLAS_STATUS_SUCCESS && (way.mark != MARK || static_cast<int64_t>(way.splits) > p.k()))
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    *out = cublasLtMatmulHeuristicResult_t{};
    out->algo = *algo;
    out->state = status;
    out->wavesCount = 1;
    if (status == CUBLAS_STATUS_SUCCESS) out->workspaceSize = workspace_of(p, static_cast<int64_t>(way.splits));
    return status;
}

static uint64_t *part_of(Way &way, cublasLtMatmulAlgoConfigAttributes_t which) {
    switch (which) {
    case CUBLASLT_ALGO_CONFIG_ID: return &way.id;
    case CUBLASLT_ALGO_CONFIG_TILE_ID: return &way.tile;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: return &way.splits;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: return &way.reduction;
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING: return &way.swizzling;
    default: return &way.other;
    }
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                           cublasLtMatmulAlgoConfigAttributes_t which,
                                                           const void *value, size_t bytes) {
    LT_CALL("cublasLtMatmulAlgoConfigSetAttribute");
    Way way = way_of(*algo);
    uint64_t number = 0;
    if (way.mark != MARK || bytes > sizeof number || which == CUBLASLT_ALGO_CONFIG_ID)
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&number, value, bytes);
    *part_of(way, which) = number;
    *algo = algo_of(way);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                           cublasLtMatmulAlgoConfigAttributes_t which, void *value,
                                                           size_t bytes, size_t *written) {
    LT_CALL("cublasLtMatmulAlgoConfigGetAttribute");
    Way way = way_of(*algo);
    const size_t wanted = which >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
    if (way.mark != MARK || bytes < wanted) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, part_of(way, which), wanted);
    if (written != nullptr) *written = wanted;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                                     const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                     cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                     cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                                     cudaStream_t stream) {
    LT_CALL("cublasLtMatmul");
    if (handle == nullptr || algo == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (sticking() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    Product p = describe(product, a_layout, b_layout, c_layout, d_layout);
    const Way way = way_of(*algo);
    cublasStatus_t status = way.mark == MARK ? judge(p) : CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&p.alpha, alpha, sizeof p.alpha);
    std::memcpy(&p.beta, beta, sizeof p.beta);
    p.a_at = a;
    p.b_at = b;
    p.c_at = c;
    p.d_at = d;
    p.splits = static_cast<int64_t>(way.splits);
    p.in_place = (way.reduction & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0;
    p.narrows = p.in_place || (way.reduction & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0;
    if (product->epilogue == CUBLASLT_EPILOGUE_BIAS) p.bias = product->bias;
    p.rounds = !p.in_place && (p.beta != 0 || way.alignment < 16);
    if (product->has_bias_type && product->bias_type != p.d.type) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS) status = judge_operands(p, way, workspace, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const cudaError_t code = queue(stream, "cublasLtMatmul", once([p, way, workspace, workspace_bytes] {
                                       count_launch("cublasLtMatmul");
                                       emulated_seconds() += seconds_of(p, way);
                                       std::memset(workspace, 0xff, std::min(workspace_bytes, MOST_POISONED));
                                       multiply(p);
                                   }),
                                   true);
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
