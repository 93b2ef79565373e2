/* preflight.c: validation of a plugin file before its code runs. */
#include "fuzz.h"

#include "plugin/load.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_preflight found;
    weft_error err = WEFT_ERROR_INIT;
    memset(&found, 0, sizeof found);
    fuzz_judge(weft_preflight_read(&found, data, size, &err), &err);
    return 0;
}
