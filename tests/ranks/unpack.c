/* Writes a model's file with its packed tensors decoded to fp32, as specified in weft/blocks.h. For test_packed.py and
 * test_base.py:
 *
 *     rank_unpack FROM.safetensors TO.safetensors [LIKE.safetensors]
 *
 * LIKE: the same model unpacked, for shapes of tensors without rows in FROM. Prints the number of packed tensors and
 * their bytes. */
#include <weft/blocks.h>

#include "model/convert.h"

#include <stdlib.h>

static const weft_safetensors *like;

static weft_tensor_spec spec_of(const weft_tensor *tensor) {
    const int32_t packed = weft_packed_type(tensor);
    const weft_tensor *plain = like == NULL ? NULL : weft_safetensors_find(like, tensor->name);
    weft_tensor_spec spec = {.name = tensor->name, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(spec.dims, tensor->dims, sizeof spec.dims);
    if (packed == 0) return spec;
    spec.dtype = WEFT_F32;
    spec.rank = 2;
    if (!weft_dtype_is_flat(packed)) spec.dims[1] *= weft_dtype_block(packed);
    else if (plain != NULL) memcpy(spec.dims, plain->dims, sizeof spec.dims);
    return spec;
}

/* Decodes one block. */
static void unpack_block(float *out, const unsigned char *bytes, int32_t packed) {
    static const float levels[] = {WEFT_NF4_LEVELS}, dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    float scale = 0, added = 0;
    memcpy(&scale, bytes, sizeof scale);
    memcpy(&added, bytes + 4, sizeof added);
    for (int64_t i = 0; i < weft_dtype_block(packed); i++) {
        if (packed == WEFT_I8X64) out[i] = scale * (float)(int8_t)bytes[4 + i];
        if (packed == WEFT_F8X128) out[i] = scale * weft_e4m3_to(bytes[4 + i]);
        if (packed == WEFT_NF4X64) out[i] = levels[bytes[4 + i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] * scale;
        if (packed == WEFT_NF4)
            out[i] = levels[bytes[24 + i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] *
                     (dynamic[bytes[8 + i / 64]] * scale + added);
    }
}

static weft_status write_numbers(weft_tensor_writer *to, int32_t i, const weft_tensor *from, weft_error *err) {
    const int32_t packed = weft_packed_type(from);
    const weft_tensor_spec spec = spec_of(from);
    const int64_t bytes = weft_dtype_bytes(packed), block = weft_dtype_block(packed), blocks = from->bytes / bytes;
    float *numbers = malloc((size_t)(blocks * block) * sizeof *numbers);
    weft_status status = WEFT_OK;
    if (numbers == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", from->name);
    for (int64_t b = 0; b < blocks; b++) unpack_block(numbers + b * block, from->data + b * bytes, packed);
    status = weft_tensor_writer_write(to, i, 0, numbers, spec.dims[0] * spec.dims[1] * (int64_t)sizeof *numbers, err);
    free(numbers);
    return status;
}

static weft_status unpack(const weft_safetensors *from, const char *path, weft_error *err) {
    weft_tensor_writer *to = NULL;
    weft_tensor_spec *specs = calloc((size_t)from->n_tensors + 1, sizeof *specs);
    int64_t packed = 0, bytes = 0;
    weft_status status = WEFT_OK;
    if (specs == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of tensors");
    for (int32_t i = 0; i < from->n_tensors; i++) specs[i] = spec_of(&from->tensors[i]);
    status = weft_tensor_writer_open(&to, path, specs, from->n_tensors, true, err);
    for (int32_t i = 0; i < from->n_tensors && status == WEFT_OK; i++) {
        const weft_tensor *tensor = &from->tensors[i];
        const bool is_packed = weft_packed_type(tensor) != 0;
        packed += is_packed;
        bytes += is_packed ? tensor->bytes : 0;
        if (is_packed) status = write_numbers(to, i, tensor, err);
        else status = weft_tensor_writer_write(to, i, 0, tensor->data, tensor->bytes, err);
    }
    if (status == WEFT_OK) status = weft_tensor_writer_finish(to, err);
    else weft_tensor_writer_cancel(to);
    free(specs);
    (void)printf("%lld packed, %lld bytes\n", (long long)packed, (long long)bytes);
    return status;
}

int main(int argc, char **argv) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *from = NULL, *plain = NULL;
    weft_status status = WEFT_OK;
    if (argc != 3 && argc != 4) return 2;
    status = weft_safetensors_open(&from, argv[1], &err);
    if (status == WEFT_OK && argc == 4) status = weft_safetensors_open(&plain, argv[3], &err);
    like = plain;
    if (status == WEFT_OK) status = unpack(from, argv[2], &err);
    weft_safetensors_close(plain);
    weft_safetensors_close(from);
    if (status != WEFT_OK) (void)fprintf(stderr, "%s\n", err.text);
    return status == WEFT_OK ? 0 : 1;
}
