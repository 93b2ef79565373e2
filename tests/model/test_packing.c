/* Packing has the same codes as bitsandbytes and PyTorch (golden/packed.safetensors): nf4 with and without double
 * quantization, int8 by rows, fp8. The result does not depend on the chunk size. */
#include <weft/blocks.h>

#include "base/safetensors.h"
#include "fixture.h"
#include "model/convert.h"
#include "model/region.h"
#include "plugin/services.h"
#include "suite.h"

static weft_safetensors *golden;

static void setup(void) {
    weft_error err = WEFT_ERROR_INIT;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/golden/packed.safetensors", getenv("WEFT_SOURCE"));
    ck_assert_ok(weft_safetensors_open(&golden, path, &err), err);
}

static void teardown(void) {
    weft_safetensors_close(golden);
}

/* "odd.nf4.codes" */
static const weft_tensor *tensor(const char *name, const char *part) {
    char whole[64];
    const weft_tensor *t = NULL;
    (void)snprintf(whole, sizeof whole, "%s%s", name, part);
    t = weft_safetensors_find(golden, whole);
    ck_assert_msg(t != NULL, "no tensor %s", whole);
    return t;
}

static float float_at(const weft_tensor *t, int64_t i) {
    float x = 0;
    ck_assert(t->dtype == WEFT_F32 && i < t->numel);
    memcpy(&x, t->data + 4 * i, 4);
    return x;
}

#define ck_assert_same_float(a, b) ck_assert_msg((a) == (b), "%.9g is not %.9g", (double)(a), (double)(b))

static weft_status give(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype, void *out,
                        weft_error *err) {
    const weft_tensor *t = context;
    ck_assert(first >= 0 && first + n <= t->numel);
    ck_assert(weft_convert(out, dtype, t->data + first * weft_dtype_bytes(t->dtype), t->dtype, n));
    return weft_error_set(err, WEFT_OK, "%s", "");
}

/* Returns the blocks of a matrix, packed in chunks of `piece` numbers. */
static unsigned char *pack(const weft_tensor *matrix, int32_t dtype, bool by_rows, int64_t piece) {
    weft_error err = WEFT_ERROR_INIT;
    weft_parameter p = {.rank = 2, .dims = {matrix->dims[0], matrix->dims[1]}, .numel = matrix->numel, .dtype = dtype};
    const weft_declared declared = {.parameters = &p, .n_parameters = 1};
    unsigned char *out = malloc((size_t)weft_dtype_span(dtype, matrix->numel));
    float *values = malloc((size_t)piece * sizeof *values);
    weft_packing packing;
    p.scaled_by_rows = by_rows;
    ck_assert_ok(weft_packing_open(&packing, &declared, 0, give, (void *)(uintptr_t)matrix, &err), err);
    for (int64_t at = 0; at < matrix->numel; at += piece) {
        const int64_t n = matrix->numel - at < piece ? matrix->numel - at : piece;
        (void)give((void *)(uintptr_t)matrix, 0, at, n, WEFT_F32, values, &err);
        weft_packing_put(&packing, out + weft_dtype_span(dtype, at), values, at, n);
    }
    free(packing.scales);
    free(values);
    return out;
}

static const char *const names[] = {"odd", "even", "small"};

/* Codes, the codes of scales, their scale and offset, bit by bit, and the decoded numbers. */
TESTS(nf4_is_that_of_bitsandbytes, LENGTH(names)) {
    const char *name = names[_i];
    const weft_tensor *matrix = tensor(name, ""), *codes = tensor(name, ".nf4.codes");
    unsigned char *bytes = pack(matrix, WEFT_NF4, false, 1024);
    ck_assert_int_eq(weft_dtype_span(WEFT_NF4, matrix->numel), (matrix->numel + 1023) / 1024 * 536);
    for (int64_t i = 0; i < matrix->numel; i++) {
        weft_nf4 block;
        float numbers[1024];
        memcpy(&block, bytes + i / 1024 * (int64_t)sizeof block, sizeof block);
        if (i % 1024 == 0) weft_nf4_unpack(numbers, &block);
        ck_assert_msg(block.scales[i % 1024 / 64] == tensor(name, ".nf4.scales")->data[i / 64],
                      "scale %lld is %d, not %d", (long long)(i / 64), block.scales[i % 1024 / 64],
                      tensor(name, ".nf4.scales")->data[i / 64]);
        ck_assert_same_float(block.scale, float_at(tensor(name, ".nf4.scale"), i / 16384));
        ck_assert_same_float(block.added, float_at(tensor(name, ".nf4.added"), 0));
        if (i % 2 == 0 && i + 1 < matrix->numel)
            ck_assert_msg(block.codes[i % 1024 / 2] == codes->data[i / 2], "codes of %lld are %#x, not %#x",
                          (long long)i, block.codes[i % 1024 / 2], codes->data[i / 2]);
        if (i % 1024 == 0)
            for (int64_t k = i; k < matrix->numel && k < i + 1024; k++)
                ck_assert_same_float(numbers[k - i], float_at(tensor(name, ".nf4.numbers"), k));
    }
    free(bytes);
}

/* The same codes, with unquantized scales. */
TESTS(nf4x64_is_that_of_bitsandbytes, LENGTH(names)) {
    const char *name = names[_i];
    const weft_tensor *matrix = tensor(name, ""), *codes = tensor(name, ".nf4.codes");
    unsigned char *bytes = pack(matrix, WEFT_NF4X64, false, 1024);
    ck_assert_int_eq(weft_dtype_span(WEFT_NF4X64, matrix->numel), (matrix->numel + 63) / 64 * 36);
    for (int64_t i = 0; i < matrix->numel; i += 64) {
        const int64_t n = matrix->numel - i < 64 ? matrix->numel - i : 64;
        weft_nf4x64 block;
        float numbers[64];
        memcpy(&block, bytes + i / 64 * (int64_t)sizeof block, sizeof block);
        weft_nf4x64_unpack(numbers, &block);
        ck_assert_same_float(block.scale, float_at(tensor(name, ".nf4x64.scales"), i / 64));
        ck_assert_int_eq(memcmp(block.codes, codes->data + i / 2, (size_t)(n / 2)), 0);
        for (int64_t k = 0; k < n; k++)
            ck_assert_same_float(numbers[k], float_at(tensor(name, ".nf4x64.numbers"), i + k));
    }
    free(bytes);
}

TEST(levels_are_those_of_bitsandbytes) {
    static const float levels[] = {WEFT_NF4_LEVELS}, dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    ck_assert_uint_eq(LENGTH(levels), 16);
    ck_assert_uint_eq(LENGTH(dynamic), 256);
    for (int i = 0; i < 16; i++) ck_assert_same_float(levels[i], float_at(tensor("nf4_levels", ""), i));
    for (int i = 0; i < 256; i++) ck_assert_same_float(dynamic[i], float_at(tensor("dynamic_levels", ""), i));
}

TEST(int8_rows_are_those_of_bitsandbytes) {
    const weft_tensor *matrix = tensor("even", ""), *codes = tensor("even", ".int8.codes");
    unsigned char *bytes = pack(matrix, WEFT_I8X64, true, 64);
    for (int64_t i = 0; i < matrix->numel; i++) {
        weft_i8x64 block;
        memcpy(&block, bytes + i / 64 * (int64_t)sizeof block, sizeof block);
        ck_assert_same_float(block.scale, float_at(tensor("even", ".int8.largest"), i / matrix->dims[1]) / 127.0f);
        ck_assert_int_eq(block.q[i % 64], (int8_t)codes->data[i]);
    }
    free(bytes);
}

TESTS(fp8_is_that_of_pytorch, LENGTH(names)) {
    const char *name = names[_i];
    const weft_tensor *matrix = tensor(name, ""), *codes = tensor(name, ".fp8.codes");
    unsigned char *bytes = pack(matrix, WEFT_F8X128, false, 128);
    for (int64_t i = 0; i < matrix->numel; i++) {
        weft_f8x128 block;
        float numbers[128];
        memcpy(&block, bytes + i / 128 * (int64_t)sizeof block, sizeof block);
        weft_f8x128_unpack(numbers, &block);
        ck_assert_same_float(block.scale, float_at(tensor(name, ".fp8.scales"), i / 128));
        ck_assert_msg(block.codes[i % 128] == codes->data[i], "code %lld is %#x, not %#x", (long long)i,
                      block.codes[i % 128], codes->data[i]);
        ck_assert_same_float(numbers[i % 128], float_at(tensor(name, ".fp8.numbers"), i));
    }
    free(bytes);
}

/* All codes of e4m3, decoded and encoded again. */
TEST(fp8_goes_there_and_back) {
    for (int code = 0; code < 256; code++) {
        const float x = weft_e4m3_to((uint8_t)code);
        if ((code & 0x7F) == 0x7F) ck_assert(x != x);
        else ck_assert_int_eq(weft_e4m3_from(x), code);
    }
    ck_assert_int_eq(weft_e4m3_from(1000.0f), 0x7E);
}

static const struct {
    int32_t dtype;
    bool by_rows;
} kinds[] = {{WEFT_NF4, false}, {WEFT_NF4X64, false}, {WEFT_I8X64, true}, {WEFT_F8X128, false}};

TESTS(pieces_do_not_show, LENGTH(kinds)) {
    const weft_tensor *matrix = tensor("even", "");
    const int32_t dtype = kinds[_i].dtype;
    unsigned char *a = pack(matrix, dtype, kinds[_i].by_rows, 1024), *b = pack(matrix, dtype, kinds[_i].by_rows, 4096);
    ck_assert_int_eq(memcmp(a, b, (size_t)weft_dtype_span(dtype, matrix->numel)), 0);
    free(a);
    free(b);
}

/* A non-finite number affects all numbers that share its scale. */
TESTS(non_finite_numbers_affect_their_block, LENGTH(kinds)) {
    const int32_t dtype = kinds[_i].dtype;
    float numbers[1024] = {0}, broken[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        weft_nf4 nf4;
        weft_nf4x64 nf4x64;
        weft_f8x128 f8;
        weft_i8x64 i8;
        float out[1024];
        numbers[70] = broken[k];
        if (dtype == WEFT_NF4) {
            weft_nf4_pack(&nf4, numbers, 1024, 1.0f, weft_largest(numbers, 1024));
            weft_nf4_unpack(out, &nf4);
        } else if (dtype == WEFT_NF4X64) {
            weft_nf4x64_pack(&nf4x64, numbers + 64, 64);
            weft_nf4x64_unpack(out, &nf4x64);
        } else if (dtype == WEFT_F8X128) {
            weft_f8x128_pack(&f8, numbers, 128);
            weft_f8x128_unpack(out, &f8);
        } else {
            weft_i8x64_pack_row(&i8, numbers + 64, weft_largest(numbers, 192));
            weft_i8x64_unpack(out, &i8);
        }
        for (int i = 0; i < 64; i++) ck_assert(isnan(out[i]));
    }
}

int main(void) {
    return run_tests(test_case("packing", 0, setup, teardown));
}
