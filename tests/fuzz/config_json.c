/* config_json.c: a model's config.json, through the plugin's create and declare, and as it is saved in another type. */
#include "fuzz.h"

#include <stdlib.h>

#include "model/config_json.h"
#include "model/declare.h"
#include "plugin/services.h"
#include <weft/plugin.h>

extern fuzz_entry weft_plugin_entry_llama;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const weft_plugin *plugin = fuzz_plugin(weft_plugin_entry_llama);
    struct weft_config *config = NULL;
    void *keys = fuzz_config(&config, plugin, NULL, 0);
    weft_declared *declared = NULL;
    weft_error err = WEFT_ERROR_INIT;
    const weft_status status = weft_declared_create(&declared, weft_services(), plugin->table, keys,
                                                    fuzz_file("config.json", data, size), &err);
    fuzz_judge(status, &err);
    if (status == WEFT_OK) {
        size_t n = 0;
        char *saved = weft_config_json_with_dtype(declared->config_text, declared->config_bytes, WEFT_BF16, &n);
        if (saved == NULL) abort();
        free(saved);
    }
    weft_declared_destroy(declared);
    fuzz_config_free(config, keys);
    return 0;
}
