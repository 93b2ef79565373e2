/* A model's file with its packed tensors as the numbers that they stand for, in fp32, by what weft/blocks.h says of
 * bytes. For test_packed.sh:
 *
 *     rank_unpack FROM.safetensors TO.safetensors
 *
 * Says how many were packed, and how many bytes those took. */
#include "model/safetensors.h"

#include <stdlib.h>

enum { BLOCK = 64, BYTES = 68 };

static bool is_packed(const weft_tensor *tensor) {
    return tensor->dtype == WEFT_U8 && tensor->rank == 3 && tensor->dims[2] == BYTES;
}

static weft_tensor_spec spec_of(const weft_tensor *tensor) {
    weft_tensor_spec spec = {.name = tensor->name, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(spec.dims, tensor->dims, sizeof spec.dims);
    if (!is_packed(tensor)) return spec;
    spec.dtype = WEFT_F32;
    spec.rank = 2;
    spec.dims[1] *= BLOCK;
    return spec;
}

static weft_status write_numbers(weft_tensor_writer *to, int32_t i, const weft_tensor *from, weft_error *err) {
    const int64_t blocks = from->bytes / BYTES;
    float *numbers = malloc((size_t)blocks * BLOCK * sizeof *numbers);
    weft_status status = WEFT_OK;
    if (numbers == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", from->name);
    for (int64_t b = 0; b < blocks; b++) {
        float scale = 0;
        memcpy(&scale, from->data + b * BYTES, sizeof scale);
        for (int64_t k = 0; k < BLOCK; k++)
            numbers[b * BLOCK + k] = scale * (float)(int8_t)from->data[b * BYTES + 4 + k];
    }
    status = weft_tensor_writer_write(to, i, 0, numbers, blocks * BLOCK * (int64_t)sizeof *numbers, err);
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
    status = weft_tensor_writer_create(&to, path, specs, from->n_tensors, err);
    for (int32_t i = 0; i < from->n_tensors && status == WEFT_OK; i++) {
        const weft_tensor *tensor = &from->tensors[i];
        packed += is_packed(tensor);
        bytes += is_packed(tensor) ? tensor->bytes : 0;
        if (is_packed(tensor)) status = write_numbers(to, i, tensor, err);
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
    weft_safetensors *from = NULL;
    weft_status status = WEFT_OK;
    if (argc != 3) return 2;
    status = weft_safetensors_open(&from, argv[1], &err);
    if (status == WEFT_OK) status = unpack(from, argv[2], &err);
    weft_safetensors_close(from);
    if (status != WEFT_OK) (void)fprintf(stderr, "%s\n", err.text);
    return status == WEFT_OK ? 0 : 1;
}
