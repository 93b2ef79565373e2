/* data_text.c: a file of the data plugin `text`. The first byte selects the format, the rest is the file. */
#include "bytes_job.h"

#include <stdio.h>

extern fuzz_entry weft_plugin_entry_text;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const ways[] = {"data.format=jsonl", "data.document=file", "data.document=line",
                                       "data.document=paragraph"};
    char path[512];
    if (size == 0) return 0;
    (void)snprintf(path, sizeof path, "data.path=%s", fuzz_file("data", data + 1, size - 1));
    {
        const char *const overrides[] = {path, "data.context=16", "data.validation=0.2", ways[data[0] % 4]};
        fuzz_take_data(weft_plugin_entry_text, overrides, 4);
    }
    return 0;
}
