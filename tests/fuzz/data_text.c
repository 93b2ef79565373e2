/* data_text.c: a file of the data plugin `text`: the first byte chooses how it is read, the rest is the file. Each
 * byte is an id. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "plugin/services.h"
#include <weft/data.h>

extern fuzz_entry weft_plugin_entry_text;

enum { CONTEXT = 16, ROWS = 2 };

static weft_status encode(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                          weft_error *err) {
    (void)job;
    (void)err;
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = (unsigned char)text[i];
        const weft_status status = sink->put(sink->context, &id, 1);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

/* The first rows of each split. */
static void take_leaves(const weft_data_plugin *plugin, const weft_data *data) {
    int32_t ids[ROWS * CONTEXT], targets[ROWS * CONTEXT], starts[ROWS * CONTEXT], positions[ROWS * CONTEXT];
    float weights[ROWS * CONTEXT];
    for (int32_t split = WEFT_SPLIT_TRAIN; split <= WEFT_SPLIT_ALL; split++) {
        weft_split_info info = {.struct_size = (uint32_t)sizeof info};
        const weft_leaf_request request = {(uint32_t)sizeof request, 0, split, ROWS, 0};
        weft_leaf leaf = {.struct_size = (uint32_t)sizeof leaf,
                          .ids = ids,
                          .targets = targets,
                          .weights = weights,
                          .starts = starts,
                          .positions = positions};
        weft_error err = WEFT_ERROR_INIT;
        plugin->split_info(data, split, &info);
        if (info.rows > 0) fuzz_judge(plugin->leaf(data, &leaf, &request, &err), &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const ways[] = {"data.format=jsonl", "data.document=file", "data.document=line",
                                       "data.document=paragraph"};
    const weft_plugin *plugin = fuzz_plugin(weft_plugin_entry_text);
    const weft_data_plugin *table = plugin->table;
    const weft_data_job job = {
        .struct_size = (uint32_t)sizeof job, .seed = 1, .vocab_size = 256, .max_context = CONTEXT, .encode = encode};
    char path[512];
    const char *overrides[4] = {path, "data.context=16", "data.validation=0.2", NULL};
    weft_config *config = NULL;
    void *keys = NULL;
    weft_data *made = NULL;
    weft_error err = WEFT_ERROR_INIT;
    if (size == 0) return 0;
    overrides[3] = ways[data[0] % 4];
    (void)snprintf(path, sizeof path, "data.path=%s", fuzz_file("data", data + 1, size - 1));
    keys = fuzz_config(&config, plugin, overrides, 4);
    fuzz_judge(table->create(&made, weft_services(), keys, &job, &err), &err);
    if (made != NULL) {
        take_leaves(table, made);
        table->destroy(made);
    }
    fuzz_config_free(config, keys);
    return 0;
}
