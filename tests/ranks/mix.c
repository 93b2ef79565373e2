/* Writes a model file with parameters of two dtypes, for test_checkpoints.py: every second tensor, by name, becomes
 * bf16.
 *
 *     rank_mix FROM.safetensors TO.safetensors
 *
 * FROM has only fp32. Fails unless layer 1, which is a unit, then has both dtypes. */
#include "base/safetensors.h"
#include "model/convert.h"

#include <stdlib.h>

static weft_status copy_tensor(weft_tensor_writer *to, int32_t i, const weft_tensor *from, int32_t dtype,
                               weft_error *err) {
    const int64_t bytes = from->numel * weft_dtype_bytes(dtype);
    void *converted = malloc((size_t)bytes);
    weft_status status = WEFT_OK;
    if (converted == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", from->name);
    (void)weft_convert(converted, dtype, from->data, WEFT_F32, from->numel);
    status = weft_tensor_writer_write(to, i, 0, converted, bytes, err);
    free(converted);
    return status;
}

static weft_status mix(const weft_safetensors *from, const char *path, weft_error *err) {
    weft_tensor_writer *to = NULL;
    weft_tensor_spec *specs = calloc((size_t)from->n_tensors + 1, sizeof *specs);
    int32_t types[2] = {0, 0}; /* tensors of layer 1 in fp32 and bf16 */
    weft_status status = WEFT_OK;
    if (specs == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of tensors");
    for (int32_t i = 0; i < from->n_tensors; i++) {
        const weft_tensor *tensor = &from->tensors[i];
        specs[i] = (weft_tensor_spec){.name = tensor->name, .dtype = i % 2 == 0 ? WEFT_F32 : WEFT_BF16};
        specs[i].rank = tensor->rank;
        memcpy(specs[i].dims, tensor->dims, sizeof specs[i].dims);
        if (strncmp(tensor->name, "model.layers.1.", strlen("model.layers.1.")) == 0) types[i % 2]++;
        if (tensor->dtype != WEFT_F32) status = weft_error_set(err, WEFT_E_DATA, "%s is not fp32", tensor->name);
    }
    if (types[0] == 0 || types[1] == 0) status = weft_error_set(err, WEFT_E_DATA, "layer 1 has not both types");
    if (status == WEFT_OK) status = weft_tensor_writer_open(&to, path, specs, from->n_tensors, true, err);
    for (int32_t i = 0; i < from->n_tensors && status == WEFT_OK; i++)
        status = copy_tensor(to, i, &from->tensors[i], specs[i].dtype, err);
    if (status == WEFT_OK) status = weft_tensor_writer_finish(to, err);
    else weft_tensor_writer_cancel(to);
    free(specs);
    return status;
}

int main(int argc, char **argv) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *from = NULL;
    weft_status status = WEFT_OK;
    if (argc != 3) return 2;
    status = weft_safetensors_open(&from, argv[1], &err);
    if (status == WEFT_OK) status = mix(from, argv[2], &err);
    weft_safetensors_close(from);
    if (status != WEFT_OK) (void)fprintf(stderr, "%s\n", err.text);
    return status == WEFT_OK ? 0 : 1;
}
