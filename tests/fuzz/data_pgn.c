/* data_pgn.c: chess games of the data plugin `text`. */
#include "bytes_job.h"

#include <stdio.h>

extern fuzz_entry weft_plugin_entry_text;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[512];
    (void)snprintf(path, sizeof path, "data.path=%s", fuzz_file("data", data, size));
    {
        const char *const overrides[] = {path, "data.context=16", "data.validation=0.2", "data.format=pgn"};
        fuzz_take_data(weft_plugin_entry_text, overrides, 4);
    }
    return 0;
}
