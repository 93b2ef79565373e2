/* manifest.c: a checkpoint's manifest.json with a file "a" of four bytes. */
#include "fuzz.h"

#include "run/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_error err = WEFT_ERROR_INIT;
    (void)fuzz_file("a", "weft", 4);
    (void)fuzz_file(WEFT_MANIFEST_NAME, data, size);
    fuzz_judge(weft_manifest_glance(fuzz_directory(), 50, &err), &err);
    fuzz_judge(weft_manifest_verify(fuzz_directory(), 50, NULL, &err), &err);
    return 0;
}
