/* The GPU instructions of mma.cuh, compared with their definitions: small matmuls, matrix loads with the PTX ISA's
 * layout, asynchronous copies. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "cuda/instructions.h"
#include "suite.h"

/* Small integers, so that all sums are exact. */
static float whole(int i) {
    return (float)(i * 37 % 101 - 50);
}
static uint16_t bf16_of_whole(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    ck_assert_uint_eq(bits & 0xFFFFu, 0);
    return (uint16_t)(bits >> 16);
}

/* By test index: bf16 or fp16. */
static uint16_t f16_of_whole(float x) {
    int exponent = 0;
    const float digits = frexpf(fabsf(x), &exponent);
    const uint32_t sign = x < 0 ? 0x8000u : 0;
    return x == 0 ? 0 : (uint16_t)(sign | (uint32_t)(exponent + 14) << 10 | ((uint32_t)ldexpf(digits, 11) & 1023u));
}
static uint16_t bits_of_whole(float x, int half) {
    return half ? f16_of_whole(x) : bf16_of_whole(x);
}

TESTS(a_product_is_that_of_its_definition, 2) {
    float a[16][16], b[16][8], c[16][8], want[16][8];
    uint16_t a_bits[256], b_bits[128];
    for (int i = 0; i < 256; i++) a_bits[i] = bits_of_whole(a[i / 16][i % 16] = whole(i), _i);
    for (int i = 0; i < 128; i++) b_bits[i] = bits_of_whole(b[i / 8][i % 8] = whole(i + 300), _i);
    for (int i = 0; i < 128; i++) {
        want[i / 8][i % 8] = c[i / 8][i % 8] = whole(i + 1000);
        for (int k = 0; k < 16; k++) want[i / 8][i % 8] += a[i / 8][k] * b[k][i % 8];
    }
    ck_assert_int_eq(instruction_mma(c[0], a_bits, b_bits, _i), 0);
    ck_assert_mem_eq(c, want, sizeof c);
}

/* A sum of products of very different size is not rounded to the type of the factors. */
TESTS(a_product_adds_in_fp32, 2) {
    uint16_t a[256] = {0}, b[128] = {0};
    float c[128] = {0};
    a[0] = bits_of_whole(1, _i), a[1] = bits_of_whole(1, _i);
    b[0] = bits_of_whole(1, _i), b[8] = _i ? 0x0800 : 0x3900; /* 2^-13 */
    ck_assert_int_eq(instruction_mma(c, a, b, _i), 0);
    ck_assert(c[0] == 1 + ldexpf(1, -13));
    for (int i = 1; i < 128; i++) ck_assert(c[i] == 0);
}

TESTS(matrices_are_loaded_as_their_layout_says, 2) {
    uint16_t in[4][8][8], out[32][4][2];
    for (int i = 0; i < 256; i++) in[i / 64][i / 8 % 8][i % 8] = (uint16_t)(1000 + i);
    ck_assert_int_eq(instruction_load(out[0][0], in[0][0], _i), 0);
    for (int i = 0; i < 256; i++) {
        const int lane = i / 8, matrix = i / 2 % 4, row = lane / 4, column = lane % 4 * 2 + i % 2;
        ck_assert_uint_eq(out[lane][matrix][i % 2], _i == 0 ? in[matrix][row][column] : in[matrix][column][row]);
    }
}

TEST(copies_have_arrived_once_they_are_waited_for) {
    uint8_t in[16], out[32];
    for (int i = 0; i < 16; i++) in[i] = (uint8_t)(i + 1);
    memset(out, 0xEE, sizeof out);
    ck_assert_int_eq(instruction_copy(out, in), 0);
    for (int i = 0; i < 32; i++) ck_assert_int_eq(out[i], i < 16 ? i + 1 : 0);
}

TEST(powers_of_two_are_near) {
    float in[32], out[32];
    for (int i = 0; i < 32; i++) in[i] = (float)(i - 24) * 1.37f;
    in[0] = -INFINITY, in[1] = 0, in[2] = NAN, in[3] = 3;
    ck_assert_int_eq(instruction_power(out, in), 0);
    ck_assert(out[0] == 0 && out[1] == 1 && isnan(out[2]) && out[3] == 8);
    for (int i = 4; i < 32; i++) ck_assert(fabs((double)out[i] / exp2((double)in[i]) - 1) < ldexp(1, -21));
}

int main(void) {
    return run_tests_in_one_process(tcase_create("instructions"));
}
