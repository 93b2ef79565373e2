/* config_json.c: a model's config.json, through create and declare of the first plugin whose name it holds, and as it
 * is saved in another type. */
#include "fuzz.h"

#include <stdlib.h>

#include "model/config_json.h"
#include "model/declare.h"
#include "plugin/services.h"
#include <weft/plugin.h>

#define FAMILIES(F) F(llama) F(mistral) F(qwen2) F(qwen3) F(smollm3) F(olmo2) F(gemma) F(gemma2) F(gemma3_text) F(phi3)
#define ENTRY(name) extern fuzz_entry weft_plugin_entry_##name;
FAMILIES(ENTRY)

static fuzz_entry *entry_for(const uint8_t *data, size_t size) {
#define ROW(name) {"\"" #name "\"", weft_plugin_entry_##name},
    static const struct {
        const char *name;
        fuzz_entry *entry;
    } families[] = {FAMILIES(ROW)};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (memmem(data, size, families[i].name, strlen(families[i].name)) != NULL) return families[i].entry;
    return families[0].entry;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const weft_plugin *plugin = fuzz_plugin(entry_for(data, size));
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
