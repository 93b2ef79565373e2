/* A sum, whose order -ffast-math leaves to the compiler. */
float weft_test_sum(const float *x);
float weft_test_sum(const float *x) {
    return x[0] + x[1] + x[2];
}
