/* safetensors.c: a file's header; every byte of an accepted file is readable. */
#include "fuzz.h"

#include "base/safetensors.h"

static volatile unsigned char seen;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_safetensors *tensors = NULL;
    weft_error err = WEFT_ERROR_INIT;
    const weft_status status = weft_safetensors_open(&tensors, fuzz_file("model.safetensors", data, size), &err);
    fuzz_judge(status, &err);
    for (int32_t i = 0; status == WEFT_OK && i < tensors->n_tensors; i++)
        for (int64_t at = 0; at < tensors->tensors[i].bytes; at++) seen ^= tensors->tensors[i].data[at];
    weft_safetensors_close(tensors);
    return 0;
}
