/* host/base/bitsandbytes.c: see bitsandbytes.h. */
#include "base/bitsandbytes.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <weft/blocks.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/joined.h"
#include "base/safetensors.h"

#define STATE ".quant_state.bitsandbytes__"

enum { STATE_LIMIT = 1 << 14, NAME_BYTES = 1024 };

/* One matrix that is being joined. */
typedef struct joining {
    weft_safetensors *files;
    bool *is_part; /* [n_tensors] the tensor belongs to a matrix and is removed */
    const char *path;
    const weft_tensor *codes;
    weft_joined *out;
    json_t *state;
    weft_error *err;
} joining;

static const char *path_of(const weft_safetensors *files, const weft_tensor *tensor) {
    return files->files[tensor->file].path;
}

/* Advice for a format without an equivalent block format. */
#define IN_NUMBERS "or take the model in numbers, which [model] base = nf4, int8 or fp8 packs while it is read"

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
    return weft_error_set(self->err, WEFT_E_DATA,
                          "%s: tensor '%s' has %lld elements of %s; %s of '%s' (%lld, %lld) are %lld of %s. The "
                          "directory is damaged: copy or save it again",
                          path_of(self->files, tensor), tensor->name, (long long)tensor->numel,
                          weft_tensor_dtype_name(tensor->dtype), what, self->codes->name, (long long)self->out->rows,
                          (long long)self->out->columns, (long long)numel, weft_tensor_dtype_name(dtype));
}

/* Finds a part and checks its type and number of elements. */
static weft_status take_part(const joining *self, const weft_tensor **out, const char *stem, const char *suffix,
                             int32_t dtype, int64_t numel, const char *what) {
    *out = find_part(self, stem, suffix);
    if (*out != NULL) return check_size(self, *out, dtype, numel, what);
    return weft_error_set(self->err, WEFT_E_DATA,
                          "%s: tensor '%s' is packed as bitsandbytes packs, and '%s%s', %s, is missing. The directory "
                          "is damaged: copy or save it again",
                          self->path, self->codes->name, stem, suffix, what);
}

/* Copies a tensor so that it outlives the list of tensors. */
static void keep(weft_tensor *out, const weft_tensor *tensor) {
    *out = *tensor;
    out->name = weft_strdup(tensor->name);
}

static weft_status keep_part(const joining *self, weft_tensor *out, const char *stem, const char *suffix, int32_t dtype,
                             int64_t numel, const char *what) {
    const weft_tensor *tensor = NULL;
    const weft_status status = take_part(self, &tensor, stem, suffix, dtype, numel, what);
    if (status == WEFT_OK) keep(out, tensor);
    return status;
}

/* Checks that the file's code levels equal ours, except for rounding. */
static weft_status check_map(const joining *self, const char *suffix, const float *levels, int32_t n) {
    const char *stem = self->codes->name;
    float map[WEFT_N_DYNAMIC8_LEVELS];
    const weft_tensor *tensor = NULL;
    weft_status status = take_part(self, &tensor, stem, suffix, WEFT_F32, n, "the values of the codes");
    if (status == WEFT_OK)
        status = weft_safetensors_read(self->files, map, tensor, 0, n * (int64_t)sizeof *map, self->err);
    for (int32_t i = 0; i < n && status == WEFT_OK; i++)
        if (!(fabsf(map[i] - levels[i]) <= 1e-6f * fabsf(levels[i])))
            status = weft_error_set(self->err, WEFT_E_DATA,
                                    "%s: in '%s' code %d stands for %.9g, in bitsandbytes' own for %.9g: no blocks "
                                    "here hold such codes. Save the model again with bitsandbytes' maps, " IN_NUMBERS,
                                    path_of(self->files, tensor), tensor->name, (int)i, (double)map[i],
                                    (double)levels[i]);
    return status;
}

/* ---- the quantization state ---- */

static weft_status refuse_state(const joining *self, const weft_tensor *tensor, const char *format, ...)
    WEFT_PRINTF(3, 4);
static weft_status refuse_state(const joining *self, const weft_tensor *tensor, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return weft_error_set(self->err, WEFT_E_DATA, "%s: tensor '%s' %s", path_of(self->files, tensor), tensor->name,
                          text);
}

static weft_status read_state(joining *self, const weft_tensor *tensor) {
    char text[STATE_LIMIT], name[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (tensor->dtype != WEFT_U8 || tensor->bytes > (int64_t)sizeof text)
        return refuse_state(self, tensor, "has %lld bytes of %s; the JSON that it holds has at most %zu of U8",
                            (long long)tensor->bytes, weft_tensor_dtype_name(tensor->dtype), sizeof text);
    status = weft_safetensors_read(self->files, text, tensor, 0, tensor->bytes, self->err);
    (void)snprintf(name, sizeof name, "%s: tensor '%s'", path_of(self->files, tensor), tensor->name);
    return status == WEFT_OK ? weft_json_parse(&self->state, text, (size_t)tensor->bytes, 0, name, self->err) : status;
}

/* Reads a number from 1 to 2^31 - 1. */
static weft_status read_count(const joining *self, int64_t *out, const weft_tensor *tensor, const char *key) {
    const json_t *value = json_object_get(self->state, key);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 1 && *out <= INT32_MAX) return WEFT_OK;
    return refuse_state(self, tensor, "has in its JSON no %s that is a whole number from 1 to %d", key, INT32_MAX);
}

static weft_status read_shape(const joining *self, const weft_tensor *tensor) {
    const json_t *shape = json_object_get(self->state, "shape");
    const json_t *rows = json_array_get(shape, 0), *columns = json_array_get(shape, 1);
    self->out->rows = json_integer_value(rows);
    self->out->columns = json_integer_value(columns);
    if (json_array_size(shape) == 2 && json_is_integer(rows) && json_is_integer(columns) && self->out->rows >= 1 &&
        self->out->rows <= INT32_MAX && self->out->columns >= 1 && self->out->columns <= INT32_MAX)
        return WEFT_OK;
    return refuse_state(self, tensor, "has in its JSON no shape of two numbers from 1 to %d", INT32_MAX);
}

static weft_status check_type(const joining *self, const weft_tensor *tensor) {
    const char *type = json_string_value(json_object_get(self->state, "quant_type"));
    if (type == NULL) return refuse_state(self, tensor, "has no quant_type in its JSON");
    if (strcmp(type, "nf4") == 0) return WEFT_OK;
    return refuse_state(self, tensor,
                        "says that '%s' is packed as quant_type = \"%.64s\"; nf4 is read. Save the model again with "
                        "bnb_4bit_quant_type = \"nf4\", " IN_NUMBERS,
                        self->codes->name, type);
}

static weft_status read_blocksize(const joining *self, const weft_tensor *tensor) {
    weft_joined *out = self->out;
    const weft_status status = read_count(self, &out->each, tensor, "blocksize");
    if (status != WEFT_OK || out->each % 64 == 0) return status;
    return refuse_state(self, tensor,
                        "has blocksize = %lld; multiples of 64 are supported. Save the model again with 64, "
                        "as transformers does, " IN_NUMBERS,
                        (long long)out->each);
}

/* Reads the state of quantized scales (double quantization). */
static weft_status read_nested(const joining *self, const weft_tensor *tensor) {
    const json_t *added = json_object_get(self->state, "nested_offset");
    weft_joined *out = self->out;
    const weft_status status = read_count(self, &out->among, tensor, "nested_blocksize");
    if (status != WEFT_OK) return status;
    if (out->each * out->among % weft_dtype_block(WEFT_NF4) != 0)
        return refuse_state(self, tensor,
                            "says nested_blocksize = %lld; with blocksize = %lld they must be whole %lld numbers "
                            "together. Save the model again with 256, as bitsandbytes does, " IN_NUMBERS,
                            (long long)out->among, (long long)out->each, (long long)weft_dtype_block(WEFT_NF4));
    if (!json_is_number(added)) return refuse_state(self, tensor, "has no nested_offset in its JSON");
    out->added = (float)json_number_value(added);
    return WEFT_OK;
}

static weft_status check_state(joining *self, const weft_tensor *tensor) {
    weft_status status = read_state(self, tensor);
    if (status == WEFT_OK) status = check_type(self, tensor);
    if (status == WEFT_OK) status = read_shape(self, tensor);
    if (status == WEFT_OK) status = read_blocksize(self, tensor);
    if (status != WEFT_OK) return status;
    self->out->dtype = json_object_get(self->state, "nested_blocksize") != NULL ? WEFT_NF4 : WEFT_NF4X64;
    return self->out->dtype == WEFT_NF4 ? read_nested(self, tensor) : WEFT_OK;
}

/* ---- one matrix ---- */

/* Keeps the codes, stored as elements of bnb_4bit_quant_storage. */
static weft_status keep_4bit_codes(const joining *self) {
    const weft_joined *out = self->out;
    const int64_t bytes = (out->rows * out->columns + 1) / 2;
    if (self->codes->bytes == bytes) {
        keep(&self->out->codes, self->codes);
        return WEFT_OK;
    }
    return weft_error_set(
        self->err, WEFT_E_DATA,
        "%s: tensor '%s' has %lld bytes; a matrix (%lld, %lld) of 4-bit codes has %lld. The directory "
        "is damaged: copy or save it again",
        self->path, self->codes->name, (long long)self->codes->bytes, (long long)out->rows, (long long)out->columns,
        (long long)bytes);
}

static weft_status keep_nested(const joining *self, int64_t n_scales) {
    static const float dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    weft_joined *out = self->out;
    const weft_status status = keep_part(self, &out->shared, self->codes->name, ".nested_absmax", WEFT_F32,
                                         (n_scales + out->among - 1) / out->among, "the scales of its scales");
    return status == WEFT_OK ? check_map(self, ".nested_quant_map", dynamic, WEFT_N_DYNAMIC8_LEVELS) : status;
}

static weft_status join_4bit(joining *self, const weft_tensor *state) {
    static const float nf4[] = {WEFT_NF4_LEVELS};
    weft_joined *out = self->out;
    int64_t n_scales = 0;
    weft_status status = check_state(self, state);
    if (status == WEFT_OK) status = keep_4bit_codes(self);
    if (status != WEFT_OK) return status;
    n_scales = (out->rows * out->columns + out->each - 1) / out->each;
    status = keep_part(self, &out->scales, self->codes->name, ".absmax", out->dtype == WEFT_NF4 ? WEFT_U8 : WEFT_F32,
                       n_scales, "its scales");
    if (status == WEFT_OK && out->dtype == WEFT_NF4) status = keep_nested(self, n_scales);
    if (status == WEFT_OK) status = check_map(self, ".quant_map", nf4, WEFT_N_NF4_LEVELS);
    return status;
}

/* Rejects layouts other than row-major, which served kernels of older cards. */
static weft_status check_format(const joining *self, const char *stem) {
    const weft_tensor *tensor = find_part(self, stem, ".weight_format");
    unsigned char format = 0;
    weft_status status = WEFT_OK;
    if (tensor == NULL) return WEFT_OK;
    status = check_size(self, tensor, WEFT_U8, 1, "the layout");
    if (status == WEFT_OK) status = weft_safetensors_read(self->files, &format, tensor, 0, 1, self->err);
    if (status != WEFT_OK || format == 0) return status;
    return weft_error_set(self->err, WEFT_E_DATA,
                          "%s: tensor '%s' is %d; 0, rows as they are, is read. Save the model again with a newer "
                          "bitsandbytes, " IN_NUMBERS,
                          path_of(self->files, tensor), tensor->name, format);
}

static weft_status join_int8(joining *self, const char *stem) {
    const weft_tensor *codes = self->codes;
    weft_joined *out = self->out;
    weft_status status = WEFT_OK;
    if (codes->dtype != WEFT_I8 || codes->rank != 2)
        return weft_error_set(self->err, WEFT_E_DATA,
                              "%s: tensor '%s' has %d dimensions of %s; a matrix whose rows have scales in '%s.SCB' "
                              "has two of I8",
                              self->path, codes->name, (int)codes->rank, weft_tensor_dtype_name(codes->dtype), stem);
    out->dtype = WEFT_I8X64;
    out->rows = codes->dims[0];
    out->columns = codes->dims[1];
    if (out->columns < 1 || out->columns % weft_dtype_block(WEFT_I8X64) != 0)
        return weft_error_set(self->err, WEFT_E_DATA,
                              "%s: tensor '%s' has rows of %lld numbers, which are no whole blocks of %lld. Save the "
                              "model again in 4 bits, " IN_NUMBERS,
                              self->path, codes->name, (long long)out->columns,
                              (long long)weft_dtype_block(WEFT_I8X64));
    status = check_format(self, stem);
    if (status == WEFT_OK) keep(&out->codes, codes);
    if (status == WEFT_OK)
        status = keep_part(self, &out->scales, stem, ".SCB", WEFT_F32, out->rows, "its rows' scales");
    return status;
}

/* Joins one matrix. state: of 4-bit ones; NULL: int8, with this stem. */
static weft_status join_matrix(weft_safetensors *files, bool *is_part, weft_tensor *codes, const weft_tensor *state,
                               const char *stem, weft_error *err) {
    joining self = {files, is_part, path_of(files, codes), codes, weft_alloc(1, sizeof *self.out), NULL, err};
    const weft_status status = state != NULL ? join_4bit(&self, state) : join_int8(&self, stem);
    json_decref(self.state);
    if (status != WEFT_OK) {
        weft_joined_free(self.out);
        return status;
    }
    weft_joined_describe(codes, self.out);
    codes->joined = self.out;
    return WEFT_OK;
}

/* ---- all ---- */

/* Returns the length of the stem that this name belongs to; 0: neither a 4-bit state nor int8 scales. */
static size_t stem_bytes(bool *is_state, const char *name) {
    const char *state = strstr(name, STATE);
    *is_state = state != NULL;
    if (state != NULL) return (size_t)(state - name);
    return weft_words_end(name, ".SCB") ? strlen(name) - strlen(".SCB") : 0;
}

static weft_status join_of(weft_safetensors *self, bool *is_part, int32_t i, weft_error *err) {
    const weft_tensor *tensor = &self->tensors[i];
    char stem[NAME_BYTES], name[NAME_BYTES + 8];
    bool is_state = false;
    const size_t n = stem_bytes(&is_state, tensor->name);
    const weft_tensor *codes = NULL;
    if (n == 0 || n >= sizeof stem) return WEFT_OK;
    (void)snprintf(stem, sizeof stem, "%.*s", (int)n, tensor->name);
    (void)snprintf(name, sizeof name, "%s%s", stem, is_state ? "" : ".weight");
    codes = weft_safetensors_find(self, name);
    if (codes == NULL)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: tensor '%s' belongs to '%s', which is missing. The directory is damaged: copy or "
                              "save it again",
                              path_of(self, tensor), tensor->name, name);
    is_part[i] = true;
    if (codes->joined != NULL)
        return weft_error_set(err, WEFT_E_DATA, "%s: tensor '%s' is a second description of the packing of '%s'",
                              path_of(self, tensor), tensor->name, name);
    return join_matrix(self, is_part, &self->tensors[codes - self->tensors], is_state ? tensor : NULL, stem, err);
}

/* Rejects packed tensors without a quantization state. */
static weft_status check_rest(const weft_safetensors *self, const bool *is_part, weft_error *err) {
    for (int32_t i = 0; i < self->n_tensors; i++) {
        const weft_tensor *tensor = &self->tensors[i];
        if (is_part[i] || tensor->joined != NULL) continue;
        if (tensor->dtype == WEFT_I8 && weft_words_end(tensor->name, ".weight"))
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: tensor '%s' is I8, and '%.*s.SCB', the scales of its rows, is missing. The "
                                  "directory is damaged: copy or save it again",
                                  path_of(self, tensor), tensor->name, (int)(strlen(tensor->name) - strlen(".weight")),
                                  tensor->name);
        if (weft_words_end(tensor->name, ".weight.absmax"))
            return weft_error_set(
                err, WEFT_E_DATA,
                "%s: tensor '%s' has scales of 4-bit codes, and '%.*s" STATE
                "nf4', the description of their packing, is missing. The directory is damaged: copy or "
                "save it again",
                path_of(self, tensor), tensor->name, (int)(strlen(tensor->name) - strlen(".absmax")), tensor->name);
    }
    return WEFT_OK;
}

static void drop_parts(weft_safetensors *self, const bool *is_part) {
    int32_t n = 0;
    for (int32_t i = 0; i < self->n_tensors; i++)
        if (is_part[i] && self->tensors[i].joined == NULL) free(self->tensors[i].name);
        else self->tensors[n++] = self->tensors[i];
    self->n_tensors = n;
}

weft_status weft_bitsandbytes_join(weft_safetensors *self, weft_error *err) {
    bool *is_part = weft_alloc(self->n_tensors, sizeof *is_part);
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n_tensors && status == WEFT_OK; i++) status = join_of(self, is_part, i, err);
    if (status == WEFT_OK) status = check_rest(self, is_part, err);
    if (status == WEFT_OK) drop_parts(self, is_part);
    free(is_part);
    return status;
}
