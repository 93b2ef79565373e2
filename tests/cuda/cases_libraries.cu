/* cuda/cases_libraries.cu: see cases.h. */
#include <cmath>

#include <cublasLt.h>

#include "launches.h"

namespace {

constexpr int64_t M = 3, N = 2, K = 301;

/* C (M, N) = A (M, K) B (K, N) in fp32, column-major. */
struct described {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
};

bool align(const described &d, uint32_t bytes) {
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        if (cublasLtMatmulPreferenceSetAttribute(d.preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(i),
                                                 &bytes, sizeof bytes) != 0)
            return false;
    return true;
}

bool describe(described &d) {
    const uint64_t workspace = 1 << 20;
    bool fine = cublasLtCreate(&d.lt) == 0 && cublasLtMatmulDescCreate(&d.product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0;
    fine = fine && cublasLtMatrixLayoutCreate(&d.a, CUDA_R_32F, M, K, M) == 0;
    fine = fine && cublasLtMatrixLayoutCreate(&d.b, CUDA_R_32F, K, N, K) == 0;
    fine = fine && cublasLtMatrixLayoutCreate(&d.c, CUDA_R_32F, M, N, M) == 0;
    fine = fine && cublasLtMatmulPreferenceCreate(&d.preference) == 0;
    fine = fine && cublasLtMatmulPreferenceSetAttribute(d.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                        &workspace, 8) == 0;
    return fine && align(d, 4);
}

} // namespace

/* Algorithms differ in bits, so one must be selected once. The alignment of operands filters algorithms. */
int case_products_differ(void) {
    std::vector<float> a(M * K), b(K * N);
    for (size_t i = 0; i < a.size(); i++) a[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < b.size(); i++) b[i] = std::cos(static_cast<float>(3 * i));
    float *a_at = device_array(M * K, a), *b_at = device_array(K * N, b), *c_at = device_array<float>(7);
    char *workspace = device_array<char>(1 << 20);
    const float one = 1, none = 0;
    cublasLtMatmulHeuristicResult_t ways[8];
    std::vector<float> results[8];
    described d;
    int found = 0, differ = 0;
    MUST(describe(d));
    MUST(cublasLtMatmulAlgoGetHeuristic(d.lt, d.product, d.a, d.b, d.c, d.c, d.preference, 8, ways, &found) == 0 &&
         found == 5 && ways[--found].state == CUBLAS_STATUS_NOT_SUPPORTED);
    for (int w = 0; w < found; w++) {
        MUST(cublasLtMatmul(d.lt, d.product, &one, a_at, d.a, b_at, d.b, &none, c_at, d.c, c_at, d.c, &ways[w].algo,
                            workspace, 1 << 20, nullptr) == 0);
        results[w] = host_copy(c_at, 6);
        differ += results[w] != results[0];
        for (size_t i = 0; i < 6; i++) MUST(std::fabs(results[w][i] - results[0][i]) < 1e-4f);
    }
    MUST(differ > 0);
    MUST(align(d, 16));
    MUST(cublasLtMatmulAlgoGetHeuristic(d.lt, d.product, d.a, d.b, d.c, d.c, d.preference, 1, ways, &found) == 0);
    MUST(cublasLtMatmul(d.lt, d.product, &one, a_at, d.a, b_at, d.b, &none, c_at + 1, d.c, c_at + 1, d.c, &ways[0].algo,
                        workspace, 1 << 20, nullptr) == CUBLAS_STATUS_INVALID_VALUE);
    return 0;
}
