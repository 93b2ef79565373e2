/* host/base/bitsandbytes.c: reads matrices in the bitsandbytes format, from files that transformers has written.
 *
 * A 4-bit matrix X.weight is a tensor of codes with these additional tensors:
 *     X.weight.quant_state.bitsandbytes__nf4   JSON as bytes: quant_type, blocksize, shape; for quantized scales also
 *                                              nested_blocksize and nested_offset
 *     X.weight.absmax                          the scale of `blocksize` numbers: fp32, or 8-bit codes if quantized
 *     X.weight.nested_absmax                   if quantized: the scale of `nested_blocksize` scales, fp32
 *     X.weight.quant_map, X.weight.nested_quant_map   the values of the codes
 * An int8 matrix is a tensor I8 with these additional tensors:
 *     X.SCB                                    the largest |x| of each row, fp32
 *     X.weight_format                          0: row-major; may be missing
 * A matrix that the blocks of weft/blocks.h represent exactly becomes one tensor (weft_joined). Any other is rejected
 * with file, tensor and key. The values of both maps are constants here and in the kernels. The maps in the files must
 * match them except for the last bits, which releases of bitsandbytes and PyTorch round differently.
 * Reads assemble blocks from the stored codes and scales, without dequantization. Only the requested blocks are in
 * memory. */
#include "base/safetensors.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <weft/blocks.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"

/* ---- reading ---- */

enum {
    AT_ONCE = 32, /* blocks assembled per read */
    SCALED = 64,  /* numbers per scale in the blocks; more in some files */
    NF4 = 1024    /* numbers of an nf4 block */
};

static int64_t cut(int64_t n, int64_t pieces) {
    return (n + pieces - 1) / pieces;
}

/* Copies the codes of n numbers and pads up to `room` like the packer. */
static void put_codes(uint8_t *out, int64_t room, const uint8_t *codes, int64_t n) {
    memset(out, 0x77, (size_t)room);
    memcpy(out, codes, (size_t)cut(n, 2));
    if (n % 2 == 1) out[n / 2] = (uint8_t)((out[n / 2] & 0xF0) | 0x07);
}

/* The stored data of some blocks. */
typedef struct parts {
    uint8_t codes[AT_ONCE * NF4 / 2];
    uint8_t nf4_scales[AT_ONCE * NF4 / SCALED];
    float scales[AT_ONCE + 1]; /* of other types; nf4: the scales of nf4_scales */
} parts;

/* Assembles blocks [first, first + n). The numbers of a matrix share a scale in runs of `each`. */
static weft_status make_blocks(char *out, const weft_safetensors *files, const weft_joined *self, int64_t first,
                               int64_t n, weft_error *err) {
    const bool is_nf4 = self->dtype == WEFT_NF4;
    const int64_t block = weft_dtype_block(self->dtype), per_byte = self->dtype == WEFT_I8X64 ? 1 : 2;
    const int64_t begin = first * block, end = weft_smaller(begin + n * block, self->rows * self->columns);
    const int64_t each = self->each, scale = begin / each, n_scales = cut(end, each) - scale;
    const int64_t group = is_nf4 ? scale / self->among : scale;
    const int64_t n_groups = is_nf4 ? cut(scale + n_scales, self->among) - group : n_scales;
    parts p;
    weft_status status =
        weft_safetensors_read(files, p.codes, &self->codes, begin / per_byte, cut(end - begin, per_byte), err);
    if (status == WEFT_OK && is_nf4)
        status = weft_safetensors_read(files, p.nf4_scales, &self->scales, scale, n_scales, err);
    if (status == WEFT_OK)
        status = weft_safetensors_read(files, p.scales, is_nf4 ? &self->shared : &self->scales,
                                       group * (int64_t)sizeof(float), n_groups * (int64_t)sizeof(float), err);
    for (int64_t at = begin; at < end && status == WEFT_OK; at += block, out += weft_dtype_bytes(self->dtype)) {
        const int64_t numbers = weft_smaller(block, end - at);
        const uint8_t *codes = p.codes + (at - begin) / per_byte;
        if (is_nf4) {
            weft_nf4 nf4 = {.scale = p.scales[at / each / self->among - group], .added = self->added};
            for (int64_t k = 0; k * SCALED < numbers; k++)
                nf4.scales[k] = p.nf4_scales[(at + k * SCALED) / each - scale];
            put_codes(nf4.codes, sizeof nf4.codes, codes, numbers);
            memcpy(out, &nf4, sizeof nf4);
        } else if (self->dtype == WEFT_NF4X64) {
            weft_nf4x64 nf4x64 = {.scale = p.scales[at / each - scale]};
            put_codes(nf4x64.codes, sizeof nf4x64.codes, codes, numbers);
            memcpy(out, &nf4x64, sizeof nf4x64);
        } else {
            weft_i8x64 i8 = {.scale = p.scales[at / each - scale] / 127.0f};
            memcpy(i8.q, codes, sizeof i8.q);
            memcpy(out, &i8, sizeof i8);
        }
    }
    return status;
}

weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err) {
    const int64_t width = weft_dtype_bytes(self->dtype), end = offset + bytes;
    char blocks[AT_ONCE * sizeof(weft_nf4)];
    weft_status status = WEFT_OK;
    for (int64_t at = offset; at < end && status == WEFT_OK;) {
        const int64_t first = at / width, n = weft_smaller(AT_ONCE, cut(end, width) - first);
        const int64_t some = weft_smaller(end, (first + n) * width) - at;
        status = make_blocks(blocks, files, self, first, n, err);
        if (status == WEFT_OK) memcpy((char *)out + (at - offset), blocks + (at - first * width), (size_t)some);
        at += some;
    }
    return status;
}

void weft_joined_free(weft_joined *self) {
    if (self == NULL) return;
    free(self->codes.name);
    free(self->scales.name);
    free(self->shared.name);
    free(self);
}

/* ---- joining ---- */

static void describe_joined(weft_tensor *out, const weft_joined *self) {
    const int64_t numel = self->rows * self->columns, block = weft_dtype_block(self->dtype);
    const bool flat = weft_dtype_is_flat(self->dtype);
    out->dtype = WEFT_U8;
    out->rank = flat ? 2 : 3;
    out->dims[0] = flat ? cut(numel, block) : self->rows;
    if (!flat) out->dims[1] = self->columns / block;
    out->dims[out->rank - 1] = weft_dtype_bytes(self->dtype);
    out->numel = out->bytes = weft_dtype_span(self->dtype, numel);
}

#define STATE   ".quant_state.bitsandbytes__"
#define DAMAGED ". Fix: copy or save the directory again"
/* Fix for a format without an equivalent block format. */
#define UNPACKED "load the unpacked model, which [model] base = nf4, int8 or fp8 packs while it is read"

enum { STATE_LIMIT = 1 << 14, NAME_BYTES = 1024 };

/* One matrix that is being joined. */
typedef struct joining {
    weft_safetensors *files;
    bool *is_part; /* [n_tensors] the tensor belongs to a matrix and is removed */
    const weft_tensor *codes;
    weft_joined *out;
    json_t *state;
    weft_error *err;
} joining;

/* ---- parts of a matrix ---- */

/* Finds the tensor of this name and marks it for removal; NULL: missing. */
static const weft_tensor *find_part(const joining *self, const char *stem, const char *suffix) {
    char name[NAME_BYTES];
    const weft_tensor *found = NULL;
    if (snprintf(name, sizeof name, "%s%s", stem, suffix) >= (int)sizeof name) return NULL;
    found = weft_safetensors_find(self->files, name);
    if (found != NULL) self->is_part[found - self->files->tensors] = true;
    return found;
}

static weft_status check_size(const joining *self, const weft_tensor *tensor, int32_t dtype, int64_t numel,
                              const char *what) {
    if (tensor->dtype == dtype && tensor->numel == numel) return WEFT_OK;
    return weft_tensor_reject(self->files, tensor, self->err,
                              "has %lld elements of %s; %s of '%s' (%lld, %lld) are %lld of %s" DAMAGED,
                              (long long)tensor->numel, weft_tensor_dtype_name(tensor->dtype), what, self->codes->name,
                              (long long)self->out->rows, (long long)self->out->columns, (long long)numel,
                              weft_tensor_dtype_name(dtype));
}

/* Copies a tensor so that it outlives the list of tensors. */
static void keep(weft_tensor *out, const weft_tensor *tensor) {
    *out = *tensor;
    out->name = weft_strdup(tensor->name);
}

/* Finds a part and checks its type and number of elements. */
static weft_status find_checked(const joining *self, const weft_tensor **out, const char *stem, const char *suffix,
                                int32_t dtype, int64_t numel, const char *what) {
    *out = find_part(self, stem, suffix);
    if (*out != NULL) return check_size(self, *out, dtype, numel, what);
    return weft_tensor_reject(self->files, self->codes, self->err,
                              "is packed by bitsandbytes, but '%s%s', %s, is missing" DAMAGED, stem, suffix, what);
}

static weft_status keep_part(const joining *self, weft_tensor *out, const char *stem, const char *suffix, int32_t dtype,
                             int64_t numel, const char *what) {
    const weft_tensor *tensor = NULL;
    const weft_status status = find_checked(self, &tensor, stem, suffix, dtype, numel, what);
    if (status == WEFT_OK) keep(out, tensor);
    return status;
}

/* Checks that the file's code levels equal ours, except for rounding. */
static weft_status check_map(const joining *self, const char *suffix, const float *levels, int32_t n) {
    float map[WEFT_N_DYNAMIC8_LEVELS];
    const weft_tensor *tensor = NULL;
    weft_status status = find_checked(self, &tensor, self->codes->name, suffix, WEFT_F32, n, "the values of the codes");
    if (status == WEFT_OK)
        status = weft_safetensors_read(self->files, map, tensor, 0, n * (int64_t)sizeof *map, self->err);
    for (int32_t i = 0; i < n && status == WEFT_OK; i++)
        if (!(fabsf(map[i] - levels[i]) <= 1e-6f * fabsf(levels[i])))
            status = weft_tensor_reject(
                self->files, tensor, self->err,
                "has the value %.9g for code %d. Allowed: %.9g, as in bitsandbytes. Fix: save the model "
                "again with bitsandbytes' maps, or " UNPACKED,
                (double)map[i], (int)i, (double)levels[i]);
    return status;
}

/* ---- the quantization state ---- */

static weft_status read_state(joining *self, const weft_tensor *tensor) {
    char text[STATE_LIMIT], name[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (tensor->dtype != WEFT_U8 || tensor->bytes > (int64_t)sizeof text)
        return weft_tensor_reject(self->files, tensor, self->err,
                                  "has %lld bytes of %s. Allowed: JSON of at most %zu bytes of U8",
                                  (long long)tensor->bytes, weft_tensor_dtype_name(tensor->dtype), sizeof text);
    status = weft_safetensors_read(self->files, text, tensor, 0, tensor->bytes, self->err);
    (void)snprintf(name, sizeof name, "%s: tensor '%s'", self->files->files[tensor->file].path, tensor->name);
    return status == WEFT_OK ? weft_json_parse(&self->state, text, (size_t)tensor->bytes, 0, name, self->err) : status;
}

static bool read_count(int64_t *out, const json_t *value) {
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 1 && *out <= INT32_MAX;
}

static weft_status read_size(const joining *self, int64_t *out, const weft_tensor *tensor, const char *key) {
    if (read_count(out, json_object_get(self->state, key))) return WEFT_OK;
    return weft_tensor_reject(self->files, tensor, self->err, "has no valid %s. Allowed: 1 to %d", key, INT32_MAX);
}

/* Reads the state of quantized scales (double quantization). */
static weft_status read_nested(const joining *self, const weft_tensor *tensor) {
    const json_t *added = json_object_get(self->state, "nested_offset");
    weft_joined *out = self->out;
    const int64_t block = weft_dtype_block(WEFT_NF4);
    const weft_status status = read_size(self, &out->among, tensor, "nested_blocksize");
    if (status != WEFT_OK) return status;
    if (out->each * out->among % block != 0)
        return weft_tensor_reject(
            self->files, tensor, self->err,
            "has nested_blocksize = %lld with blocksize = %lld. Allowed: a product that is a multiple of "
            "%lld. Fix: save the model again with 256, the value of bitsandbytes, or " UNPACKED,
            (long long)out->among, (long long)out->each, (long long)block);
    if (!json_is_number(added))
        return weft_tensor_reject(self->files, tensor, self->err, "has no nested_offset in its JSON");
    out->added = (float)json_number_value(added);
    return WEFT_OK;
}

static weft_status check_state(joining *self, const weft_tensor *tensor) {
    weft_joined *out = self->out;
    const json_t *shape = NULL;
    const char *type = NULL;
    weft_status status = read_state(self, tensor);
    if (status != WEFT_OK) return status;
    type = json_string_value(json_object_get(self->state, "quant_type"));
    if (type == NULL) return weft_tensor_reject(self->files, tensor, self->err, "has no quant_type in its JSON");
    if (strcmp(type, "nf4") != 0)
        return weft_tensor_reject(
            self->files, tensor, self->err,
            "has quant_type = \"%.64s\". Allowed: nf4. Fix: save the model again with bnb_4bit_quant_type = "
            "\"nf4\", or " UNPACKED,
            type);
    shape = json_object_get(self->state, "shape");
    if (json_array_size(shape) != 2 || !read_count(&out->rows, json_array_get(shape, 0)) ||
        !read_count(&out->columns, json_array_get(shape, 1)))
        return weft_tensor_reject(self->files, tensor, self->err,
                                  "has no valid shape. Allowed: two numbers from 1 to %d", INT32_MAX);
    status = read_size(self, &out->each, tensor, "blocksize");
    if (status != WEFT_OK) return status;
    if (out->each % 64 != 0)
        return weft_tensor_reject(
            self->files, tensor, self->err,
            "has blocksize = %lld. Allowed: multiples of 64. Fix: save the model again with 64, the value of "
            "transformers, or " UNPACKED,
            (long long)out->each);
    out->dtype = json_object_get(self->state, "nested_blocksize") != NULL ? WEFT_NF4 : WEFT_NF4X64;
    return out->dtype == WEFT_NF4 ? read_nested(self, tensor) : WEFT_OK;
}

/* ---- one matrix ---- */

static weft_status join_4bit(joining *self, const weft_tensor *state) {
    static const float nf4[] = {WEFT_NF4_LEVELS}, dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    const char *stem = self->codes->name;
    weft_joined *out = self->out;
    int64_t n_scales = 0, bytes = 0;
    weft_status status = check_state(self, state);
    if (status != WEFT_OK) return status;
    bytes = (out->rows * out->columns + 1) / 2; /* stored as elements of bnb_4bit_quant_storage */
    if (self->codes->bytes != bytes)
        return weft_tensor_reject(self->files, self->codes, self->err,
                                  "has %lld bytes; a matrix (%lld, %lld) of 4-bit codes has %lld" DAMAGED,
                                  (long long)self->codes->bytes, (long long)out->rows, (long long)out->columns,
                                  (long long)bytes);
    keep(&out->codes, self->codes);
    n_scales = (out->rows * out->columns + out->each - 1) / out->each;
    status = keep_part(self, &out->scales, stem, ".absmax", out->dtype == WEFT_NF4 ? WEFT_U8 : WEFT_F32, n_scales,
                       "its scales");
    if (status == WEFT_OK && out->dtype == WEFT_NF4) {
        status = keep_part(self, &out->shared, stem, ".nested_absmax", WEFT_F32,
                           (n_scales + out->among - 1) / out->among, "the scales of its scales");
        if (status == WEFT_OK) status = check_map(self, ".nested_quant_map", dynamic, WEFT_N_DYNAMIC8_LEVELS);
    }
    return status == WEFT_OK ? check_map(self, ".quant_map", nf4, WEFT_N_NF4_LEVELS) : status;
}

static weft_status join_int8(joining *self, const char *stem) {
    const weft_tensor *codes = self->codes, *layout = find_part(self, stem, ".weight_format");
    const int64_t block = weft_dtype_block(WEFT_I8X64);
    unsigned char format = 0;
    weft_joined *out = self->out;
    weft_status status = WEFT_OK;
    if (codes->dtype != WEFT_I8 || codes->rank != 2)
        return weft_tensor_reject(self->files, codes, self->err,
                                  "has %d dimensions of %s. Allowed: 2 of I8, for a matrix with row scales in '%s.SCB'",
                                  (int)codes->rank, weft_tensor_dtype_name(codes->dtype), stem);
    out->dtype = WEFT_I8X64;
    out->rows = codes->dims[0];
    out->columns = out->each = codes->dims[1];
    if (out->columns < 1 || out->columns % block != 0)
        return weft_tensor_reject(
            self->files, codes, self->err,
            "has rows of %lld numbers. Allowed: a multiple of %lld. Fix: save the model again in 4 bits, "
            "or " UNPACKED,
            (long long)out->columns, (long long)block);
    if (layout != NULL) status = check_size(self, layout, WEFT_U8, 1, "the layout");
    if (layout != NULL && status == WEFT_OK)
        status = weft_safetensors_read(self->files, &format, layout, 0, 1, self->err);
    if (status == WEFT_OK && format != 0) /* other layouts served kernels of older cards */
        status = weft_tensor_reject(
            self->files, layout, self->err,
            "is %d. Allowed: 0, row-major. Fix: save the model again with a newer bitsandbytes, or " UNPACKED, format);
    if (status != WEFT_OK) return status;
    keep(&out->codes, codes);
    return keep_part(self, &out->scales, stem, ".SCB", WEFT_F32, out->rows, "its rows' scales");
}

/* ---- all ---- */

/* Joins the matrix that tensor i describes, if it is a 4-bit state or int8 scales. */
static weft_status join_of(weft_safetensors *files, bool *is_part, int32_t i, weft_error *err) {
    const weft_tensor *tensor = &files->tensors[i];
    joining self = {files, is_part, NULL, NULL, NULL, err};
    weft_status status = WEFT_OK;
    char stem[NAME_BYTES], name[NAME_BYTES + 8];
    const char *state = strstr(tensor->name, STATE);
    size_t n = 0;
    if (state != NULL) n = (size_t)(state - tensor->name);
    else if (weft_words_end(tensor->name, ".SCB")) n = strlen(tensor->name) - strlen(".SCB");
    if (n == 0 || n >= sizeof stem) return WEFT_OK;
    (void)snprintf(stem, sizeof stem, "%.*s", (int)n, tensor->name);
    (void)snprintf(name, sizeof name, "%s%s", stem, state != NULL ? "" : ".weight");
    self.codes = weft_safetensors_find(files, name);
    if (self.codes == NULL)
        return weft_tensor_reject(files, tensor, err, "belongs to '%s', which is missing" DAMAGED, name);
    is_part[i] = true;
    if (self.codes->joined != NULL)
        return weft_tensor_reject(files, tensor, err, "describes the packing of '%s' a second time", name);
    self.out = weft_alloc(1, sizeof *self.out);
    status = state != NULL ? join_4bit(&self, tensor) : join_int8(&self, stem);
    json_decref(self.state);
    if (status == WEFT_OK) {
        weft_tensor *joined = &files->tensors[self.codes - files->tensors];
        describe_joined(joined, self.out);
        joined->joined = self.out;
    } else {
        weft_joined_free(self.out);
    }
    return status;
}

/* Rejects packed tensors without a quantization state. */
static weft_status check_rest(const weft_safetensors *self, const bool *is_part, weft_error *err) {
    for (int32_t i = 0; i < self->n_tensors; i++) {
        const weft_tensor *tensor = &self->tensors[i];
        const int n = (int)strlen(tensor->name);
        if (is_part[i] || tensor->joined != NULL) continue;
        if (tensor->dtype == WEFT_I8 && weft_words_end(tensor->name, ".weight"))
            return weft_tensor_reject(self, tensor, err,
                                      "is I8, and '%.*s.SCB', the scales of its rows, is missing" DAMAGED,
                                      n - (int)strlen(".weight"), tensor->name);
        if (weft_words_end(tensor->name, ".weight.absmax"))
            return weft_tensor_reject(self, tensor, err,
                                      "has scales of 4-bit codes, and '%.*s" STATE
                                      "nf4', the description of their packing, is missing" DAMAGED,
                                      n - (int)strlen(".absmax"), tensor->name);
    }
    return WEFT_OK;
}

weft_status weft_bitsandbytes_join(weft_safetensors *self, weft_error *err) {
    bool *is_part = calloc((size_t)self->n_tensors + 1, sizeof *is_part); /* sized by the files */
    int32_t n = 0;
    weft_status status = WEFT_OK;
    if (is_part == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d tensors", (int)self->n_tensors);
    for (int32_t i = 0; i < self->n_tensors && status == WEFT_OK; i++) status = join_of(self, is_part, i, err);
    if (status == WEFT_OK) status = check_rest(self, is_part, err);
    for (int32_t i = 0; i < self->n_tensors && status == WEFT_OK; i++)
        if (is_part[i] && self->tensors[i].joined == NULL) free(self->tensors[i].name);
        else self->tensors[n++] = self->tensors[i];
    if (status == WEFT_OK) self->n_tensors = n;
    free(is_part);
    return status;
}
