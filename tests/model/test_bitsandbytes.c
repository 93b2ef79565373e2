/* Directories saved by transformers with bitsandbytes (tests/golden/make_bitsandbytes.py), read as blocks: codes and
 * scales equal the files', for any range. Damaged or unsupported tensors are rejected with file, tensor and key. */
#include "base/safetensors.h"
#include "golden.h"
#include "model/region.h"
#include "scratch.h"
#include "suite.h"

#include <math.h>
#include <weft/blocks.h>

#define WEIGHT "model.layers.0.mlp.up_proj.weight"
#define STEM   "model.layers.0.mlp.up_proj"
#define STATE  WEIGHT ".quant_state.bitsandbytes__nf4"

static weft_safetensors *open_directory(const char *name) {
    char path[4096];
    weft_safetensors *files = NULL;
    weft_error err = WEFT_ERROR_INIT;
    golden_path(path, sizeof path, name);
    ck_assert_ok(weft_safetensors_open_directory(&files, path, &err), err);
    return files;
}

/* The same file without conversion. */
static weft_safetensors *open_raw(const char *name) {
    char path[4096];
    weft_safetensors *files = NULL;
    weft_error err = WEFT_ERROR_INIT;
    golden_path(path, sizeof path, name);
    (void)snprintf(path + strlen(path), sizeof path - strlen(path), "/model.safetensors");
    ck_assert_ok(weft_safetensors_open(&files, path, &err), err);
    return files;
}

static const weft_tensor *found(const weft_safetensors *files, const char *name) {
    const weft_tensor *tensor = weft_safetensors_find(files, name);
    ck_assert_msg(tensor != NULL, "no %s", name);
    return tensor;
}

static float float_at(const weft_safetensors *files, const char *name, int64_t i) {
    float value = 0;
    memcpy(&value, found(files, name)->data + 4 * i, sizeof value);
    return value;
}

static unsigned char *read_all(const weft_safetensors *files, const weft_tensor *tensor) {
    weft_error err = WEFT_ERROR_INIT;
    unsigned char *out = malloc((size_t)tensor->bytes);
    ck_assert_ptr_nonnull(out);
    ck_assert_ok(weft_safetensors_read(files, out, tensor, 0, tensor->bytes, &err), err);
    return out;
}

static double offset_said(const weft_safetensors *raw) {
    const weft_tensor *state = found(raw, STATE);
    char text[512] = "";
    memcpy(text, state->data, (size_t)state->bytes);
    return strtod(strstr(text, "\"nested_offset\": ") + 17, NULL);
}

/* 272 x 64 numbers: 17 blocks, with scales in two double-quantization groups. */
TEST(nf4_blocks_hold_the_codes_and_scales_of_the_files) {
    weft_safetensors *files = open_directory("bitsandbytes-nf4"), *raw = open_raw("bitsandbytes-nf4");
    const weft_tensor *tensor = found(files, WEIGHT), *codes = found(raw, WEIGHT),
                      *scales = found(raw, WEIGHT ".absmax");
    unsigned char *blocks = read_all(files, tensor);
    ck_assert_ptr_null(weft_safetensors_find(files, WEIGHT ".absmax"));
    ck_assert_int_eq(tensor->dims[0], 17);
    ck_assert_int_eq(tensor->dims[1], (int64_t)sizeof(weft_nf4));
    for (int64_t i = 0; i < 17; i++) {
        weft_nf4 block;
        memcpy(&block, blocks + i * (int64_t)sizeof block, sizeof block);
        ck_assert_int_eq(memcmp(block.codes, codes->data + i * 512, 512), 0);
        ck_assert_int_eq(memcmp(block.scales, scales->data + i * 16, 16), 0);
        ck_assert(block.scale == float_at(raw, WEIGHT ".nested_absmax", i / 16));
        ck_assert(block.added == (float)offset_said(raw));
    }
    ck_assert(float_at(raw, WEIGHT ".nested_absmax", 0) != float_at(raw, WEIGHT ".nested_absmax", 1));
    free(blocks);
    weft_safetensors_close(raw);
    weft_safetensors_close(files);
}

/* Also scales without double quantization; with 20 x 40 numbers the last block is partial. */
TESTS(nf4x64_blocks_hold_the_codes_and_scales_of_the_files, 2) {
    static const char *const names[] = {WEIGHT, "model.layers.1.self_attn.k_proj.weight"};
    weft_safetensors *files = open_directory("bitsandbytes-nf4x64"), *raw = open_raw("bitsandbytes-nf4x64");
    const weft_tensor *tensor = found(files, names[_i]), *codes = found(raw, names[_i]);
    unsigned char *blocks = read_all(files, tensor);
    char absmax[128];
    (void)snprintf(absmax, sizeof absmax, "%s.absmax", names[_i]);
    ck_assert_ptr_null(weft_safetensors_find(files, absmax));
    ck_assert_int_eq(tensor->dims[0], _i == 0 ? 45 : 13);
    ck_assert_int_eq(tensor->dims[1], (int64_t)sizeof(weft_nf4x64));
    for (int64_t i = 0; i < tensor->dims[0]; i++) {
        const int64_t left = codes->bytes - i * 32, n = left < 32 ? left : 32;
        weft_nf4x64 block;
        memcpy(&block, blocks + i * (int64_t)sizeof block, sizeof block);
        ck_assert_int_eq(memcmp(block.codes, codes->data + i * 32, (size_t)n), 0);
        for (int64_t k = n; k < 32; k++) ck_assert_int_eq(block.codes[k], 0x77);
        ck_assert(block.scale == float_at(raw, absmax, i));
    }
    free(blocks);
    weft_safetensors_close(raw);
    weft_safetensors_close(files);
}

TEST(int8_blocks_hold_the_codes_and_scales_of_the_files) {
    weft_safetensors *files = open_directory("bitsandbytes-int8"), *raw = open_raw("bitsandbytes-int8");
    const weft_tensor *tensor = found(files, WEIGHT), *codes = found(raw, WEIGHT);
    unsigned char *blocks = read_all(files, tensor);
    ck_assert_int_eq(tensor->dims[0], 128);
    ck_assert_int_eq(tensor->dims[1], 1);
    for (int64_t row = 0; row < 128; row++) {
        weft_i8x64 block;
        memcpy(&block, blocks + row * (int64_t)sizeof block, sizeof block);
        ck_assert_int_eq(memcmp(block.q, codes->data + row * 64, 64), 0);
        ck_assert(block.scale == float_at(raw, STEM ".SCB", row) / 127.0f);
    }
    free(blocks);
    weft_safetensors_close(raw);
    weft_safetensors_close(files);
}

/* A matrix of 72 x 40 numbers with a partial last block; its rest is filled as packing does. */
TEST(codes_in_elements_of_16_bits_are_the_same) {
    weft_safetensors *files = open_directory("bitsandbytes-storage");
    const weft_tensor *tensor = found(files, WEIGHT);
    unsigned char *blocks = read_all(files, tensor);
    weft_nf4 last;
    ck_assert_int_eq(tensor->joined->codes.dtype, WEFT_BF16);
    ck_assert_int_eq(tensor->dims[0], 3);
    memcpy(&last, blocks + 2 * sizeof last, sizeof last);
    for (int i = (72 * 40 - 2048) / 2; i < 512; i++) ck_assert_int_eq(last.codes[i], 0x77);
    for (int i = (72 * 40 - 2048 + 63) / 64; i < 16; i++) ck_assert_int_eq(last.scales[i], 0);
    free(blocks);
    weft_safetensors_close(files);
}

TESTS(reads_any_range, 4) {
    static const char *const names[] = {"bitsandbytes-nf4", "bitsandbytes-storage", "bitsandbytes-int8",
                                        "bitsandbytes-nf4x64"};
    weft_safetensors *files = open_directory(names[_i]);
    const weft_tensor *tensor = found(files, WEIGHT);
    unsigned char *blocks = read_all(files, tensor), *piece = malloc((size_t)tensor->bytes);
    for (int64_t begin = 0; begin < tensor->bytes; begin += 401) {
        for (int64_t n = 1; n <= tensor->bytes - begin; n = 3 * n + 5) {
            weft_error err = WEFT_ERROR_INIT;
            ck_assert(weft_safetensors_read(files, piece, tensor, begin, n, &err) == WEFT_OK);
            ck_assert_int_eq(memcmp(piece, blocks + begin, (size_t)n), 0);
        }
    }
    free(piece);
    free(blocks);
    weft_safetensors_close(files);
}

/* ---- errors ---- */

/* A copy of a golden file in which one tensor is missing, shorter, or has other bytes. */
static const struct {
    const char *from, *tensor;
    int64_t shorter;      /* reduction of the first dimension; -1: tensor missing */
    const char *was, *is; /* replacement in its bytes, of the same length; NULL: unchanged */

    const char *says[4];
} damages[] = {
    {"nf4", WEIGHT, -1, NULL, NULL, {STATE, "belongs to '" WEIGHT "', which is missing"}},
    {"nf4", WEIGHT, 1, NULL, NULL, {WEIGHT, "has 8703 bytes", "(272, 64) of 4-bit codes has 8704"}},
    {"nf4", WEIGHT ".absmax", -1, NULL, NULL, {WEIGHT, "'" WEIGHT ".absmax', its scales, is missing"}},
    {"nf4", WEIGHT ".absmax", 1, NULL, NULL, {WEIGHT ".absmax' has 271 elements of U8", "are 272 of U8"}},
    {"nf4", WEIGHT ".nested_absmax", -1, NULL, NULL, {".nested_absmax', the scales of its scales, is missing"}},
    {"nf4", WEIGHT ".nested_absmax", 1, NULL, NULL, {".nested_absmax' has 1 elements of F32", "are 2 of F32"}},
    {"nf4", WEIGHT ".quant_map", -1, NULL, NULL, {".quant_map', the values of the codes, is missing"}},
    {"nf4",
     WEIGHT ".quant_map",
     0,
     "\0\0\x80\xbf",
     "\0\0\x81\xbf",
     {"has the value -1.0078125 for code 0", "Allowed: -1,"}},
    {"nf4", WEIGHT ".nested_quant_map", 1, NULL, NULL, {".nested_quant_map' has 255 elements"}},
    {"nf4", STATE, -1, NULL, NULL, {WEIGHT ".absmax' has scales of 4-bit codes, and '" STATE "'"}},
    {"nf4", STATE, 1, NULL, NULL, {STATE "':1:"}},
    {"nf4", STATE, 0, "\"nf4\"", "\"fp4\"", {STATE, "quant_type = \"fp4\"", "bnb_4bit_quant_type = \"nf4\""}},
    {"nf4",
     STATE,
     0,
     "nested_blocksize",
     "nested_blocksizf",
     {WEIGHT ".absmax' has 272 elements of U8", "are 272 of F32"}},
    {"nf4", STATE, 0, "\"blocksize\": 64", "\"blocksize\": 32", {STATE, "blocksize = 32. Allowed: multiples of 64"}},
    {"nf4", STATE, 0, "blocksize\": 256", "blocksize\": 250", {STATE, "nested_blocksize = 250", "256"}},
    {"nf4", STATE, 0, "[272, 64]", "[272, -4]", {STATE, "no valid shape"}},
    {"nf4", STATE, 0, "[272, 64]", "[271, 64]", {WEIGHT "' has 8704 bytes", "(271, 64) of 4-bit codes has 8672"}},
    {"nf4", STATE, 0, "nested_offset", "nested_offsez", {STATE, "no nested_offset"}},
    {"nf4x64", WEIGHT, 1, NULL, NULL, {WEIGHT, "has 1439 bytes", "(72, 40) of 4-bit codes has 1440"}},
    {"nf4x64", WEIGHT ".absmax", -1, NULL, NULL, {WEIGHT, "'" WEIGHT ".absmax', its scales, is missing"}},
    {"nf4x64", WEIGHT ".absmax", 1, NULL, NULL, {WEIGHT ".absmax' has 44 elements of F32", "are 45 of F32"}},
    {"int8", STEM ".SCB", -1, NULL, NULL, {WEIGHT "' is I8, and '" STEM ".SCB'", "is missing"}},
    {"int8", STEM ".SCB", 1, NULL, NULL, {STEM ".SCB' has 127 elements of F32", "are 128 of F32"}},
    {"int8", STEM ".weight_format", 0, "\0", "\1", {STEM ".weight_format' is 1. Allowed: 0, row-major"}},
};

/* bytes: buffer of the tensor's size. Changed numbers have one byte, or four. */
static void damage(unsigned char *bytes, const weft_tensor *tensor, int i) {
    const char *was = damages[i].was, *is = damages[i].is;
    const size_t most = (size_t)tensor->bytes, text = was == NULL ? 0 : strlen(was);
    const size_t n = text > 0 ? text : most < 4 ? most : 4;
    size_t at = 0;
    memcpy(bytes, tensor->data, most);
    if (was == NULL) return;
    while (at + n <= most && memcmp(bytes + at, was, n) != 0) at++;
    ck_assert_uint_le(at + n, most);
    memcpy(bytes + at, is, n);
}

static void write_damaged(int i) {
    char name[64];
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *raw = NULL;
    weft_tensor_spec *specs = NULL;
    weft_tensor_writer *writer = NULL;
    int32_t n = 0;
    (void)snprintf(name, sizeof name, "bitsandbytes-%s", damages[i].from);
    raw = open_raw(name);
    specs = calloc((size_t)raw->n_tensors, sizeof *specs);
    for (int32_t t = 0; t < raw->n_tensors; t++) {
        const weft_tensor *tensor = &raw->tensors[t];
        const bool is_it = strcmp(tensor->name, damages[i].tensor) == 0;
        if (is_it && damages[i].shorter < 0) continue;
        specs[n] = (weft_tensor_spec){.name = tensor->name, .dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(specs[n].dims, tensor->dims, sizeof tensor->dims);
        if (is_it) specs[n].dims[0] -= damages[i].shorter;
        n++;
    }
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("model.safetensors"), specs, n, true, &err), err);
    for (int32_t t = 0; t < n; t++) {
        const weft_tensor *tensor = found(raw, specs[t].name);
        const bool is_it = strcmp(tensor->name, damages[i].tensor) == 0;
        const int64_t less = is_it ? damages[i].shorter * weft_dtype_bytes(tensor->dtype) : 0;
        unsigned char *bytes = malloc((size_t)tensor->bytes);
        if (is_it) damage(bytes, tensor, i);
        else memcpy(bytes, tensor->data, (size_t)tensor->bytes);
        ck_assert(weft_tensor_writer_write(writer, t, 0, bytes, tensor->bytes - less, &err) == WEFT_OK);
        free(bytes);
    }
    ck_assert(weft_tensor_writer_finish(writer, &err) == WEFT_OK);
    free(specs);
    weft_safetensors_close(raw);
}

TESTS(rejects_damage_by_file_and_tensor, LENGTH(damages)) {
    weft_safetensors *files = NULL;
    weft_error err = WEFT_ERROR_INIT;
    write_damaged(_i);
    ck_assert_int_eq(weft_safetensors_open_directory(&files, scratch_path("."), &err), WEFT_E_DATA);
    ck_assert_ptr_null(files);
    ck_assert_says(err, "model.safetensors: ");
    for (int k = 0; k < 4 && damages[_i].says[k] != NULL; k++) ck_assert_says(err, damages[_i].says[k]);
}

int main(void) {
    return run_tests(test_case("bitsandbytes", 0, scratch_make, scratch_remove));
}
