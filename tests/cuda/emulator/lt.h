/* lt.h: matmuls, shared by lt.cpp and lt_product.cpp. */
#ifndef WEFT_EMULATOR_LT_H
#define WEFT_EMULATOR_LT_H

#include <cublasLt.h>

struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType type;
    int64_t rows, cols, ld; /* columns are ld elements apart */
};

namespace weft_emulator {

/* D (m, n) = alpha op(A) op(B) + beta C, plus a bias per row. */
struct Product {
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    bool transpose_a = false, transpose_b = false, tf32 = false;
    float alpha = 1, beta = 0;
    const void *a_at = nullptr, *b_at = nullptr, *c_at = nullptr, *bias = nullptr;
    void *d_at = nullptr;
    int64_t splits = 1;    /* number of separately summed parts of the inner dimension */
    bool narrows = false;  /* partial sums are stored in D's type */
    bool in_place = false; /* partial sums are added to beta C one by one */
    bool rounds = false;   /* the sum is rounded to D's type before beta C or a bias is added */
    int64_t m() const {
        return d.rows;
    }
    int64_t n() const {
        return d.cols;
    }
    int64_t k() const {
        return transpose_a ? a.rows : a.cols;
    }
};
int64_t bytes_of(cudaDataType type);
void multiply(const Product &p);

} // namespace weft_emulator
#endif
