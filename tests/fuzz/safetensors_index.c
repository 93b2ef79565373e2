/* safetensors_index.c: model.safetensors.index.json with two files of one tensor each, "a" and "b". */
#include "fuzz.h"

#include "base/safetensors.h"

#include <string.h>

static void write_part(const char *file, const char *header) {
    char bytes[128];
    const uint64_t n = strlen(header);
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(n >> (8 * i));
    memcpy(bytes + 8, header, n);
    (void)fuzz_file(file, bytes, 8 + n + 4); /* one number, zero */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int written;
    weft_safetensors *tensors = NULL;
    weft_error err = WEFT_ERROR_INIT;
    if (!written) {
        write_part("1.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
        write_part("2.safetensors", "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
        written = 1;
    }
    (void)fuzz_file("model.safetensors.index.json", data, size);
    fuzz_judge(weft_safetensors_open_directory(&tensors, fuzz_directory(), &err), &err);
    weft_safetensors_close(tensors);
    return 0;
}
