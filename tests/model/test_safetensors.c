/* Files of named tensors: written tensors are read back, malformed files are rejected with file and tensor.
 * Also tests conversions between the floating-point types. tests/fuzz has other byte sequences. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "fixture.h"
#include "suite.h"
#include "model/convert.h"
#include "base/safetensors.h"

/* ---- writing test files ---- */

/* length < 0: that of the header. */
static void write_file(const char *name, const char *header, long long length, size_t data) {
    const uint64_t n = length < 0 ? strlen(header) : (uint64_t)length;
    const size_t text = strlen(header);
    unsigned char *bytes = calloc(1, 8 + text + data);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(n >> (8 * i));
    memcpy(bytes + 8, header, text);
    for (size_t i = 0; i < data; i++) bytes[8 + text + i] = (unsigned char)i;
    write_bytes(scratch_path(name), bytes, 8 + text + data);
    free(bytes);
}

static weft_safetensors *opened(const char *path) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    ck_assert_ok(weft_safetensors_open(&file, path, &err), err);
    return file;
}

/* ---- reading ---- */

#define A4 "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"

TEST(types_shapes_and_bytes_come_back) {
    weft_safetensors *file = NULL;
    const weft_tensor *t = NULL;
    write_file(
        "x.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},\"empty\":{\"dtype\":\"F64\",\"shape\":[3,0],"
        "\"data_offsets\":[4,4]},\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[16,17]}}   ",
        -1, 17);
    file = opened(scratch_path("x.safetensors"));
    ck_assert_int_eq(file->n_tensors, 4);
    t = weft_safetensors_find(file, "b");
    ck_assert(t->dtype == WEFT_F16 && t->rank == 2 && t->dims[0] == 2 && t->dims[1] == 3 && t->numel == 6);
    ck_assert(t->bytes == 12 && t->data[0] == 4 && t->data[11] == 15);
    t = weft_safetensors_find(file, "a");
    ck_assert(t->dtype == WEFT_I32 && t->rank == 0 && t->numel == 1 && t->data[3] == 3);
    t = weft_safetensors_find(file, "empty");
    ck_assert(t->dtype == WEFT_F64 && t->numel == 0 && t->bytes == 0);
    ck_assert_int_eq(weft_safetensors_find(file, "u")->data[0], 16);
    ck_assert_ptr_null(weft_safetensors_find(file, "__metadata__"));
    ck_assert_ptr_null(weft_safetensors_find(file, "ab"));
    weft_safetensors_close(file);
}

#define T(name, dtype, shape, begin, end)                                                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct {
    const char *header;
    long long length; /* -1: that of the header */
    size_t data;
    const char *text;
} malformed[] = {
    {"{" A4 "}", 1000, 16, "header of 1000 bytes does not fit"},
    {"{" A4 "}", 1LL << 40, 16, "a header of 1099511627776 bytes"},
    {"{" A4 "}", INT64_MAX, 16, "no safetensors file"},
    {"{" A4 "}", 0, 16, "header:1:"},
    {"{" A4 "}", 20, 16, "header:1:"},
    {"[" T("a", "F32", "[4]", "0", "16") "]", -1, 16, "header:1:"},
    {"[1]", -1, 0, "header:1:1: is not a JSON object"},
    {"3", -1, 0, "header:1:"},
    {"{" A4 "}", -1, 15, "'a' ends at byte 16 of the data, but the file has 15. Fix: copy or download the truncated"},
    {"{" A4 "}", -1, 0, "truncated"},
    {"{" A4 "}", -1, 20, "the last 4 bytes, after tensor 'a', belong to no tensor"},
    {"{}", -1, 1, "the last 1 bytes"},
    {"{" A4 "," A4 "}", -1, 16, "duplicate object key"},
    {"{" A4 "," T("b", "F32", "[2]", "8", "16") "}", -1, 16, "'a' and 'b' overlap in bytes 8 to 16"},
    {"{" A4 "," T("b", "F32", "[4]", "0", "16") "}", -1, 16, "overlap"},
    {"{" A4 "," T("b", "F32", "[1]", "20", "24") "}", -1, 24, "bytes 16 to 20 of the data, before tensor 'b'"},
    {"{" T("a", "F32", "[4]", "4", "20") "}", -1, 20, "bytes 0 to 4 of the data, before tensor 'a'"},
    {"{" T("a", "F32", "[4]", "16", "0") "}", -1, 16, "tensor 'a' has no data_offsets [begin, end]"},
    {"{" T("a", "F32", "[4]", "-16", "0") "}", -1, 16, "tensor 'a' has no data_offsets"},
    {"{" T("a", "F32", "[4]", "0", "16.0") "}", -1, 16, "tensor 'a' has no data_offsets"},
    {"{" T("a", "F32", "[4]", "0,4", "16") "}", -1, 16, "tensor 'a' has no data_offsets"},
    {"{" T("a", "F32", "[4]", "0", "99999999999999999999") "}", -1, 16, "header:1:"},
    {"{" T("a", "F32", "[4]", "9223372036854775800", "9223372036854775807") "}", -1, 16, "'a' ends at byte"},
    {"{" T("a", "F32", "[3]", "0", "16") "}", -1, 16, "'a' has 16 bytes, but its shape of 3 elements of F32 needs 12"},
    {"{" T("a", "BF16", "[2,3]", "0", "16") "}", -1, 16, "6 elements of BF16 needs 12"},
    {"{" T("a", "F32", "[-4]", "0", "16") "}", -1, 16, "'a' has a shape with the invalid dimension 0"},
    {"{" T("a", "F32", "[2,\"2\"]", "0", "16") "}", -1, 16, "'a' has a shape with the invalid dimension 1"},
    {"{" T("a", "F32", "[4.0]", "0", "16") "}", -1, 16, "'a' has a shape"},
    {"{" T("a", "F32", "[4611686018427387904,4]", "0", "16") "}", -1, 16,
     "'a' has a shape with the invalid dimension 0"},
    {"{" T("a", "F32", "[3037000500,3037000500]", "0", "16") "}", -1, 16,
     "'a' has a shape with the invalid dimension 1"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,4]", "0", "16") "}", -1, 16, "more than 8 dimensions"},
    {"{" T("a", "F32", "4", "0", "16") "}", -1, 16, "'a' has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", -1, 16, "'a' has no shape"},
    {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", -1, 16, "'a' has the dtype (none)"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", -1, 16, "'a' has no data_offsets"},
    {"{" T("a", "F8_E4M3", "[16]", "0", "16") "}", -1, 16, "'a' has the dtype F8_E4M3. Allowed: F32, BF16"},
    {"{" T("a", "f32", "[4]", "0", "16") "}", -1, 16, "'a' has the dtype f32"},
    {"{\"a\":[0,16]}", -1, 16, "'a' is not described by an object"},
    {"{\"a\":null}", -1, 0, "'a' is not described by an object"},
    {"{\"__metadata__\":[]," A4 "}", -1, 16, "__metadata__"},
    {"{\"__metadata__\":{\"n\":3}," A4 "}", -1, 16, "__metadata__"},
    {"{" A4 "} x", -1, 16, "x.safetensors: header:1:57: is not JSON"},
    {"{\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", -1, 16, "header:1:"},
};

TESTS(rejects_malformed_files_with_file_and_tensor, LENGTH(malformed)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    write_file("x.safetensors", malformed[_i].header, malformed[_i].length, malformed[_i].data);
    ck_assert_int_eq(weft_safetensors_open(&file, scratch_path("x.safetensors"), &err), WEFT_E_DATA);
    ck_assert_says(err, scratch_path("x.safetensors"));
    ck_assert_says(err, malformed[_i].text);
    ck_assert_ptr_null(file);
}

TEST(rejects_missing_and_short_files) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    ck_assert_int_eq(weft_safetensors_open(&file, scratch_path("none"), &err), WEFT_E_USER);
    ck_assert_says(err, "cannot be opened");
    ck_assert_int_eq(weft_safetensors_open(&file, scratch, &err), WEFT_E_USER);
    ck_assert_says(err, "is not a file");
    for (size_t n = 0; n < 8; n++) {
        write_bytes(scratch_path("short"), "1234567", n);
        ck_assert_int_eq(weft_safetensors_open(&file, scratch_path("short"), &err), WEFT_E_DATA);
        ck_assert_says(err, "a safetensors file has at least 8");
    }
}

/* ---- directories ---- */

#define INDEX "model.safetensors.index.json"
#define ONE   "model-00001-of-00002.safetensors"
#define TWO   "model-00002-of-00002.safetensors"

static void write_shards(const char *index) {
    write_file(ONE, "{" A4 "}", -1, 16);
    write_file(TWO, "{" T("b", "BF16", "[3]", "0", "6") "," T("c", "U8", "[2]", "6", "8") "}", -1, 8);
    write_text(scratch_path(INDEX), index);
}

#define MAP(entries) "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {" entries "}}"

TEST(shards_are_one_set_of_tensors) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    write_shards(MAP("\"a\": \"" ONE "\", \"b\": \"" TWO "\", \"c\": \"" TWO "\""));
    ck_assert_ok(weft_safetensors_open_directory(&files, scratch, &err), err);
    ck_assert_int_eq(files->n_files, 2);
    ck_assert_int_eq(files->n_tensors, 3);
    ck_assert_int_eq(weft_safetensors_find(files, "c")->data[0], 6);
    ck_assert_str_eq(files->files[weft_safetensors_find(files, "b")->file].path, scratch_path(TWO));
    weft_safetensors_close(files);
}

TEST(a_single_file_goes_before_an_index) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    write_shards("nonsense");
    write_file("model.safetensors", "{}", -1, 0);
    ck_assert_ok(weft_safetensors_open_directory(&files, scratch, &err), err);
    ck_assert_int_eq(files->n_tensors, 0);
    ck_assert_ptr_null(weft_safetensors_find(files, "a"));
    weft_safetensors_close(files);
}

static const struct {
    const char *index, *text;
} wrong_indices[] = {
    {"{", INDEX ":1:1: is not JSON"},
    {"\xEF\xBB\xBF{}", INDEX ":1:1: is not JSON: it begins with a byte order mark"},
    {"{\n}\n]", INDEX ":3:1: is not JSON"},
    {"[]", INDEX ":1:1: is not a JSON object"},
    {"{\"weight_map\": {}}", "has no weight_map"},
    {"{\"weight_map\": [\"a\"]}", "has no weight_map"},
    {MAP("\"a\": 3"), "puts tensor 'a' into '(no text)'"},
    {MAP("\"a\": \"../" ONE "\""), "puts tensor 'a' into '../"},
    {MAP("\"a\": \"/etc/passwd\""), "Allowed: the name of a .safetensors file in the same directory"},
    {MAP("\"a\": \".safetensors\""), "puts tensor 'a' into '.safetensors'"},
    {MAP("\"a\": \"pytorch_model.bin\""), "puts tensor 'a' into 'pytorch_model.bin'"},
    {MAP("\"a\": \"" ONE "\", \"z\": \"model-00003-of-00003.safetensors\""),
     "model-00003-of-00003.safetensors: is missing"},
    {MAP("\"a\": \"" TWO "\", \"b\": \"" ONE "\", \"c\": \"" TWO "\""), "has tensor '"},
    {MAP("\"a\": \"" ONE "\", \"b\": \"" TWO "\""), "has tensor 'c', which "},
    {MAP("\"a\": \"" ONE "\", \"b\": \"" TWO "\", \"c\": \"" TWO "\", \"d\": \"" TWO "\""),
     "puts tensor 'd' into '" TWO "', which lacks it"},
    {MAP("\"a\": \"" ONE "\", \"a\": \"" TWO "\""), "duplicate object key"},
};

TESTS(rejects_an_index_that_differs_from_its_files, LENGTH(wrong_indices)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    write_shards(wrong_indices[_i].index);
    ck_assert_int_ne(weft_safetensors_open_directory(&files, scratch, &err), WEFT_OK);
    ck_assert_says(err, wrong_indices[_i].text);
    ck_assert_says(err, scratch);
    ck_assert_ptr_null(files);
}

TEST(a_malformed_or_doubled_shard_is_refused) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    write_shards(MAP("\"a\": \"" ONE "\", \"b\": \"" TWO "\", \"c\": \"" TWO "\""));
    write_file(TWO, "{" T("b", "BF16", "[3]", "0", "6") "," T("c", "U8", "[2]", "6", "8") "}", -1, 7);
    ck_assert_int_eq(weft_safetensors_open_directory(&files, scratch, &err), WEFT_E_DATA);
    ck_assert_says(err, TWO ": tensor 'c' ends at byte 8");
    write_file(TWO, "{" A4 "," T("b", "BF16", "[3]", "16", "22") "," T("c", "U8", "[2]", "22", "24") "}", -1, 24);
    ck_assert_int_eq(weft_safetensors_open_directory(&files, scratch, &err), WEFT_E_DATA);
    ck_assert_says(err, TWO ": has tensor 'a', which ");
}

TEST(rejects_a_directory_without_weights) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    ck_assert_int_eq(weft_safetensors_open_directory(&files, scratch, &err), WEFT_E_USER);
    ck_assert_says(err, "neither model.safetensors nor model.safetensors.index.json");
    ck_assert_says(err, "set [model] start = fresh, which reads no weights");
}

/* ---- writing ---- */

TEST(tensors_can_be_written_in_any_order) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_writer *writer = NULL;
    weft_safetensors *file = NULL;
    const weft_tensor_spec specs[] = {{"half", WEFT_BF16, 2, {3, 5}},
                                      {"byte", WEFT_U8, 1, {3}},
                                      {"odd \"name\"", WEFT_F32, 2, {2, 2}},
                                      {"empty", WEFT_F32, 1, {0}},
                                      {"scalar", WEFT_I64, 0, {0}}};
    unsigned char data[5][30];
    const int64_t bytes[] = {30, 3, 16, 0, 8};
    for (int t = 0; t < 5; t++)
        for (int i = 0; i < 30; i++) data[t][i] = (unsigned char)(50 * t + i);
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("w"), specs, 5, true, &err), err);
    for (int t = 4; t >= 0; t--)
        for (int64_t end = bytes[t]; end > 0; end -= 7) {
            const int64_t begin = end > 7 ? end - 7 : 0;
            ck_assert_ok(weft_tensor_writer_write(writer, t, begin, data[t] + begin, end - begin, &err), err);
        }
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    file = opened(scratch_path("w"));
    ck_assert_int_eq(file->n_tensors, 5);
    for (int t = 0; t < 5; t++) {
        const weft_tensor *tensor = weft_safetensors_find(file, specs[t].name);
        ck_assert_ptr_nonnull(tensor);
        ck_assert(tensor->dtype == specs[t].dtype && tensor->rank == specs[t].rank && tensor->bytes == bytes[t]);
        for (int i = 0; i < tensor->rank; i++) ck_assert_int_eq(tensor->dims[i], specs[t].dims[i]);
        ck_assert_int_eq(memcmp(tensor->data, data[t], (size_t)bytes[t]), 0);
        ck_assert_uint_eq((uintptr_t)tensor->data % (uintptr_t)weft_dtype_bytes(tensor->dtype), 0);
    }
    weft_safetensors_close(file);
}

TEST(a_written_header_is_what_other_readers_expect) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_writer *writer = NULL;
    const weft_tensor_spec specs[] = {{"a", WEFT_F32, 2, {2, 3}}};
    size_t n = 0;
    char *bytes = NULL;
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("w"), specs, 1, true, &err), err);
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    bytes = read_bytes(scratch_path("w"), &n);
    ck_assert_int_eq((unsigned char)bytes[0] % 64, 56); /* data are aligned to 64 bytes */
    ck_assert_uint_eq(n, 8 + (size_t)(unsigned char)bytes[0] + 24);
    ck_assert_int_eq(strncmp(bytes + 8,
                             "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                             "\"data_offsets\":[0,24]}} ",
                             strlen("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                                    "\"data_offsets\":[0,24]}} ")),
                     0);
    free(bytes);
}

TEST(a_writer_keeps_to_its_tensors_and_files) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_writer *writer = NULL, *second = NULL;
    const weft_tensor_spec specs[] = {{"a", WEFT_F32, 1, {4}}, {"a", WEFT_F32, 1, {4}}};
    const weft_tensor_spec bad[] = {{"b", WEFT_F32, 2, {INT64_MAX / 4, 8}}}, typeless[] = {{"c", 99, 1, {1}}};
    const char data[16] = {0};
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("w"), specs, 1, true, &err), err);
    ck_assert_int_eq(weft_tensor_writer_write(writer, 0, 4, data, 13, &err), WEFT_E_HOST);
    ck_assert_int_eq(weft_tensor_writer_write(writer, 0, -1, data, 4, &err), WEFT_E_HOST);
    ck_assert_int_eq(weft_tensor_writer_write(writer, 1, 0, data, 4, &err), WEFT_E_HOST);
    ck_assert_ok(weft_tensor_writer_write(writer, 0, 0, data, 16, &err), err);
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    ck_assert_int_eq(weft_tensor_writer_open(&second, scratch_path("w"), specs, 1, true, &err), WEFT_E_SYSTEM);
    ck_assert_says(err, "File exists");
    ck_assert_int_eq(weft_tensor_writer_open(&second, scratch_path("v"), specs, 2, true, &err), WEFT_E_HOST);
    ck_assert_says(err, "two tensors have the name 'a'");
    ck_assert_int_eq(weft_tensor_writer_open(&second, scratch_path("v"), bad, 1, true, &err), WEFT_E_HOST);
    ck_assert_int_eq(weft_tensor_writer_open(&second, scratch_path("v"), typeless, 1, true, &err), WEFT_E_HOST);
    ck_assert_int_ne(access(scratch_path("v"), F_OK), 0);
    ck_assert_ptr_null(second);
}

TEST(a_file_that_does_not_fit_is_refused_before_its_data) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_writer *writer = NULL;
    weft_status status = WEFT_OK;
    const weft_tensor_spec specs[] = {{"a", WEFT_F32, 1, {1 << 20}}};
    struct rlimit usual, small;
    bool limited = false;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = usual;
    small.rlim_cur = 1 << 20;
    (void)signal(SIGXFSZ, SIG_IGN);
    limited = setrlimit(RLIMIT_FSIZE, &small) == 0; /* no assertions until it is reset: Check writes files */
    status = weft_tensor_writer_open(&writer, scratch_path("w"), specs, 1, true, &err);
    (void)setrlimit(RLIMIT_FSIZE, &usual);
    ck_assert(limited);
    ck_assert_int_eq(status, WEFT_E_SYSTEM);
    ck_assert_says(err, scratch_path("w"));
    ck_assert_says(err, "cannot be written: File too large");
    ck_assert_int_ne(access(scratch_path("w"), F_OK), 0);
}

/* ---- conversions ---- */

static float float_of(uint32_t bits) {
    float x = 0;
    memcpy(&x, &bits, 4);
    return x;
}

/* No ck_assert in loops over all numbers: each one is a system call. */
static float widened(uint16_t bits, int32_t dtype) {
    float x = NAN;
    (void)weft_convert(&x, WEFT_F32, &bits, dtype, 1);
    return x;
}

static uint16_t narrowed(float x, int32_t dtype) {
    uint16_t bits = 0xABCD;
    (void)weft_convert(&bits, dtype, &x, WEFT_F32, 1);
    return bits;
}

/* By the formats' definitions, in double. */
static double meaning(uint16_t bits, int exponent_bits) {
    const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits & 0x7FFF) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static bool comes_back(uint16_t bits, int32_t dtype, int exponent_bits) {
    const float x = widened(bits, dtype);
    const double y = meaning(bits, exponent_bits);
    if (isnan(y)) return isnan(x) && isnan(widened(narrowed(x, dtype), dtype));
    return (double)x == y && (signbit(x) != 0) == (signbit(y) != 0) && narrowed(x, dtype) == bits;
}

TEST(all_narrow_numbers_widen_and_come_back) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        if (!comes_back((uint16_t)bits, WEFT_BF16, 8)) ck_abort_msg("bf16 %04x", bits);
        if (!comes_back((uint16_t)bits, WEFT_F16, 5)) ck_abort_msg("fp16 %04x", bits);
    }
}

/* Between two neighbours: the middle rounds to even, other values to the nearest. */
static bool rounds_right(uint32_t bits, int32_t dtype) {
    const float low = widened((uint16_t)bits, dtype), high = widened((uint16_t)(bits + 1), dtype);
    const float middle = (float)(((double)low + (double)high) / 2); /* exact: fp32 has more digits */
    const uint32_t even = bits + (bits & 1);
    return narrowed(middle, dtype) == even && narrowed(-middle, dtype) == (0x8000u | even) &&
           narrowed(nextafterf(middle, 0), dtype) == bits && narrowed(nextafterf(middle, INFINITY), dtype) == bits + 1;
}

TEST(narrowing_takes_the_nearest_and_the_even_one_of_two) {
    for (uint32_t bits = 0; bits + 1 < 0x7F80; bits++)
        if (!rounds_right(bits, WEFT_BF16)) ck_abort_msg("bf16 %04x", bits);
    for (uint32_t bits = 0; bits + 1 < 0x7C00; bits++)
        if (!rounds_right(bits, WEFT_F16)) ck_abort_msg("fp16 %04x", bits);
    ck_assert_uint_eq(narrowed(65519.996f, WEFT_F16), 0x7BFF);
    ck_assert_uint_eq(narrowed(65520.0f, WEFT_F16), 0x7C00);
    ck_assert_uint_eq(narrowed(-1e30f, WEFT_F16), 0xFC00);
    ck_assert_uint_eq(narrowed(float_of(0x7F7FFFFF), WEFT_BF16), 0x7F80);
    ck_assert_uint_eq(narrowed(float_of(0x7F7F7FFF), WEFT_BF16), 0x7F7F);
    ck_assert_uint_eq(narrowed(float_of(0xFF800000), WEFT_BF16), 0xFF80);
    ck_assert(isnan(widened(narrowed(float_of(0x7FFFFFFF), WEFT_BF16), WEFT_BF16)));
    ck_assert(isnan(widened(narrowed(float_of(0x7F800001), WEFT_BF16), WEFT_BF16)));
}

TEST(conversions_take_any_alignment_and_refuse_other_types) {
    unsigned char from[64], to[64];
    float x = 0;
    const float numbers[3] = {1.5f, -2.25f, 1e-5f};
    for (int shift = 0; shift < 4; shift++) {
        ck_assert(weft_convert(from + shift, WEFT_BF16, numbers, WEFT_F32, 3));
        ck_assert(weft_convert(to + shift + 1, WEFT_F32, from + shift, WEFT_BF16, 3));
        memcpy(&x, to + shift + 5, 4);
        ck_assert_float_eq(x, -2.25f);
    }
    ck_assert(weft_convert(to, WEFT_BF16, from, WEFT_BF16, 3) && memcmp(to, from, 6) == 0);
    ck_assert(!weft_convert(to, WEFT_F32, from, WEFT_F64, 1));
    ck_assert(weft_convert(from, WEFT_F16, numbers, WEFT_F32, 3) && weft_convert(to, WEFT_BF16, from, WEFT_F16, 3));
    ck_assert(weft_convert(from, WEFT_BF16, numbers, WEFT_F32, 2) && memcmp(to, from, 4) == 0); /* both are exact */
    ck_assert(!weft_convert(to, WEFT_U8, from, WEFT_F16, 1));
    ck_assert(!weft_convert(to, WEFT_I32, from, WEFT_I32, 1));
}

int main(void) {
    return run_tests(test_case("safetensors", 120, scratch_make, scratch_remove));
}
