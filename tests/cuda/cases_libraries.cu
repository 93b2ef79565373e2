/* cuda/cases_libraries.cu: see cases.h. */
#include <cmath>
#include <cstring>
#include <string>

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <nvrtc.h>

#include "launches.h"

namespace {

/* C (m, n) = A (m, k) B (k, n), column-major, with optional gaps between columns. */
struct problem {
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b, bias, accumulate, bf16;
};

struct described {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
};

float small(size_t i) {
    return static_cast<float>(static_cast<int>(i * 7919 % 17) - 8);
}

std::vector<float> numbers(int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (size_t i = 0; i < out.size(); i++) out[i] = small(i);
    return out;
}

std::vector<__nv_bfloat16> halves(const std::vector<float> &from) {
    std::vector<__nv_bfloat16> out(from.size());
    for (size_t i = 0; i < out.size(); i++) out[i] = __float2bfloat16(from[i]);
    return out;
}

bool describe(described &d, const problem &p) {
    const cudaDataType type = p.bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t ta = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            tb = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t workspace = 1 << 20;
    const uint32_t alignment = 4;
    const auto m = static_cast<uint64_t>(p.m), n = static_cast<uint64_t>(p.n), k = static_cast<uint64_t>(p.k);
    bool fine = cublasLtCreate(&d.lt) == 0 && cublasLtMatmulDescCreate(&d.product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0;
    fine = fine && cublasLtMatmulDescSetAttribute(d.product, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta) == 0;
    fine = fine && cublasLtMatmulDescSetAttribute(d.product, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb) == 0;
    fine = fine && cublasLtMatrixLayoutCreate(&d.a, type, p.transpose_a ? k : m, p.transpose_a ? m : k, p.lda) == 0;
    fine = fine && cublasLtMatrixLayoutCreate(&d.b, type, p.transpose_b ? n : k, p.transpose_b ? k : n, p.ldb) == 0;
    fine = fine && cublasLtMatrixLayoutCreate(&d.c, CUDA_R_32F, m, n, p.ldc) == 0 &&
           cublasLtMatmulPreferenceCreate(&d.preference) == 0;
    fine = fine && cublasLtMatmulPreferenceSetAttribute(d.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                        &workspace, 8) == 0;
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        fine = fine &&
               cublasLtMatmulPreferenceSetAttribute(d.preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(i),
                                                    &alignment, sizeof alignment) == 0;
    return fine;
}

float wanted(const problem &p, const std::vector<float> &a, const std::vector<float> &b, int64_t row, int64_t column) {
    double sum = p.accumulate ? 1.0 : 0.0;
    for (int64_t i = 0; i < p.k; i++)
        sum += static_cast<double>(a[static_cast<size_t>(p.transpose_a ? i + row * p.lda : row + i * p.lda)]) *
               static_cast<double>(b[static_cast<size_t>(p.transpose_b ? column + i * p.ldb : i + column * p.ldb)]);
    return static_cast<float>(sum + (p.bias ? static_cast<double>(small(static_cast<size_t>(row))) : 0.0));
}

int try_ways(const problem &p) {
    const std::vector<float> a = numbers(p.lda * (p.transpose_a ? p.m : p.k)),
                             b = numbers(p.ldb * (p.transpose_b ? p.k : p.n));
    const size_t n_c = static_cast<size_t>(p.ldc * p.n);
    void *const a_at = p.bf16 ? static_cast<void *>(device_array(a.size(), halves(a))) : device_array(a.size(), a);
    void *const b_at = p.bf16 ? static_cast<void *>(device_array(b.size(), halves(b))) : device_array(b.size(), b);
    float *c_at = device_array<float>(n_c), *bias = device_array(static_cast<size_t>(p.m), numbers(p.m));
    char *workspace = device_array<char>(1 << 20);
    const float one = 1, old = p.accumulate ? 1 : 0;
    const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulHeuristicResult_t ways[8];
    described d;
    int found = 0;
    MUST(describe(d, p));
    if (p.bias) {
        MUST(cublasLtMatmulDescSetAttribute(d.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias, sizeof with_bias) ==
             0);
        MUST(cublasLtMatmulDescSetAttribute(d.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias) == 0);
    }
    MUST(cublasLtMatmulAlgoGetHeuristic(d.lt, d.product, d.a, d.b, d.c, d.c, d.preference, 8, ways, &found) == 0);
    MUST(found >= 1);
    for (int w = 0; w < found && ways[w].state == 0; w++) {
        const std::vector<float> before(n_c, 1.0f);
        FINE(cudaMemcpy(c_at, before.data(), n_c * sizeof(float), cudaMemcpyHostToDevice));
        MUST(cublasLtMatmul(d.lt, d.product, &one, a_at, d.a, b_at, d.b, &old, c_at, d.c, c_at, d.c, &ways[w].algo,
                            workspace, 1 << 20, nullptr) == 0);
        const std::vector<float> c = host_copy(c_at, n_c);
        for (int64_t column = 0; column < p.n; column++)
            for (int64_t row = 0; row < p.ldc; row++)
                MUST(c[static_cast<size_t>(row + column * p.ldc)] == (row < p.m ? wanted(p, a, b, row, column) : 1.0f));
    }
    return 0;
}

const char text[] = "extern \"C\" __global__ void __launch_bounds__(32)\n"
                    "twice(float *y, const long long n, const float by) {\n"
                    "    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
                    "    if (i < n) y[i] = y[i] * by;\n"
                    "}\n";

nvrtcResult compile(const char *source, std::vector<char> &image, std::string &log) {
    const char *const options[] = {"--gpu-architecture=sm_90", "--fmad=false"};
    nvrtcProgram program = nullptr;
    size_t bytes = 0;
    nvrtcResult code = nvrtcCreateProgram(&program, source, "update", 0, nullptr, nullptr);
    if (code == NVRTC_SUCCESS) code = nvrtcCompileProgram(program, 2, options);
    (void)nvrtcGetProgramLogSize(program, &bytes);
    log.resize(bytes);
    (void)nvrtcGetProgramLog(program, &log[0]);
    if (code == NVRTC_SUCCESS) code = nvrtcGetCUBINSize(program, &bytes);
    image.resize(bytes);
    if (code == NVRTC_SUCCESS) code = nvrtcGetCUBIN(program, image.data());
    (void)nvrtcDestroyProgram(&program);
    return code;
}

} // namespace

int case_products(void) {
    for (int i = 0; i < 32; i++) {
        const bool ta = (i & 1) != 0, tb = (i & 2) != 0, bf16 = (i & 4) != 0, bias = (i & 8) != 0, add = (i & 16) != 0;
        const int64_t m = 19, n = 7, k = 70;
        if (try_ways({m, n, k, (ta ? k : m) + 3, (tb ? n : k) + 1, m + 2, ta, tb, bias, add, bf16}) != 0) return 1;
    }
    return try_ways({1, 1, 1, 1, 1, 1, false, false, false, false, false});
}

/* Algorithms differ in bits, so one must be selected once. The alignment of operands filters algorithms. */
int case_products_differ(void) {
    const problem p = {3, 2, 301, 3, 301, 3, false, false, false, false, false};
    std::vector<float> a(903), b(602);
    for (size_t i = 0; i < a.size(); i++) a[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < b.size(); i++) b[i] = std::cos(static_cast<float>(3 * i));
    float *a_at = device_array(903, a), *b_at = device_array(602, b), *c_at = device_array<float>(7);
    char *workspace = device_array<char>(1 << 20);
    const float one = 1, none = 0;
    const uint32_t aligned = 16;
    cublasLtMatmulHeuristicResult_t ways[8];
    std::vector<float> results[8];
    described d;
    int found = 0, differ = 0;
    MUST(describe(d, p));
    MUST(cublasLtMatmulAlgoGetHeuristic(d.lt, d.product, d.a, d.b, d.c, d.c, d.preference, 8, ways, &found) == 0 &&
         found == 5 && ways[--found].state == CUBLAS_STATUS_NOT_SUPPORTED);
    for (int w = 0; w < found; w++) {
        MUST(cublasLtMatmul(d.lt, d.product, &one, a_at, d.a, b_at, d.b, &none, c_at, d.c, c_at, d.c, &ways[w].algo,
                            workspace, 1 << 20, nullptr) == 0);
        results[w] = host_copy(c_at, 6);
        differ += results[w] != results[0];
    }
    MUST(differ > 0);
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        MUST(cublasLtMatmulPreferenceSetAttribute(d.preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(i),
                                                  &aligned, sizeof aligned) == 0);
    MUST(cublasLtMatmulAlgoGetHeuristic(d.lt, d.product, d.a, d.b, d.c, d.c, d.preference, 1, ways, &found) == 0);
    MUST(cublasLtMatmul(d.lt, d.product, &one, a_at, d.a, b_at, d.b, &none, c_at + 1, d.c, c_at + 1, d.c, &ways[0].algo,
                        workspace, 1 << 20, nullptr) == CUBLAS_STATUS_INVALID_VALUE);
    return 0;
}

int case_compiled(void) {
    std::vector<char> image;
    std::string log;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    float *y = device_array(100, std::vector<float>(100, 3.0f)), by = 2.0f;
    long long n = 100;
    void *values[] = {&y, &n, &by};
    MUST(compile(text, image, log) == NVRTC_SUCCESS);
    MUST(cuModuleLoadData(&module, image.data()) == CUDA_SUCCESS);
    MUST(cuModuleGetFunction(&function, module, "twicf") == CUDA_ERROR_NOT_FOUND);
    MUST(cuModuleGetFunction(&function, module, "twice") == CUDA_SUCCESS);
    MUST(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, nullptr, values, nullptr) == CUDA_SUCCESS);
    for (float got : host_copy(y, 100)) MUST(got == 6.0f);
    MUST(emulator_launches("twice") == 1);
    MUST(cuModuleUnload(module) == CUDA_SUCCESS);
    image[0] = 'x';
    MUST(cuModuleLoadData(&module, image.data()) == CUDA_ERROR_INVALID_IMAGE);
    return 0;
}

int case_compiled_wrongly(void) {
    std::vector<char> image;
    std::string log;
    MUST(compile("extern \"C\" __global__ void f(float *y) {\n    y[0] = nothing;\n}\n", image, log) ==
         NVRTC_ERROR_COMPILATION);
    MUST(log.find("update:2:") != std::string::npos && log.find("nothing") != std::string::npos);
    return 0;
}
