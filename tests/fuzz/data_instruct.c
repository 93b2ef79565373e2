/* data_instruct.c: a file of the data plugin `instruct`. The first byte selects format and rules, the rest is the
 * file. */
#include "bytes_job.h"

#include <stdio.h>

extern fuzz_entry weft_plugin_entry_instruct;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const formats[] = {"data.format=json", "data.format=jsonl", "data.format=csv",
                                          "data.format=tsv"};
    static const char *const losses[] = {"data.loss_on=answers", "data.loss_on=last", "data.loss_on=text"};
    static const char *const separators[] = {"data.separator=comma", "data.separator=semicolon", "data.separator=tab",
                                             "data.separator=bar"};
    char path[512];
    if (size == 0) return 0;
    (void)snprintf(path, sizeof path, "data.path=%s", fuzz_file("data", data + 1, size - 1));
    {
        const unsigned how = data[0];
        const char *const overrides[] = {path,
                                         "data.context=16",
                                         "data.validation=0.2",
                                         formats[how % 4],
                                         losses[how / 4 % 3],
                                         how / 12 % 2 == 0 ? "data.packing=yes" : "data.packing=no",
                                         how / 24 % 2 == 0 ? "data.too_long=cut" : "data.too_long=drop",
                                         how / 48 % 2 == 0 ? "data.system=" : "data.system=S",
                                         separators[how / 4 % 4],
                                         how / 96 % 2 == 0 ? "data.columns=" : "data.columns=a, b"};
        fuzz_take_data(weft_plugin_entry_instruct, overrides, 10);
    }
    return 0;
}
