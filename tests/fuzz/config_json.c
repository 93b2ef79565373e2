/* config_json.c: a model's config.json, for create and declare of the first plugin named in it. Then again as saved, in
 * another dtype and with both spellings: the same model must be accepted. */
#include "fuzz.h"

#include <stdlib.h>

#include "model/config_json.h"
#include "model/weights.h"
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

/* Returns its saved form; freed by the caller. */
static char *saved_text(const weft_declared *declared, size_t *n) {
    char *text = strdup(declared->config_text);
    *n = declared->config_bytes;
    if (weft_config_json_set_dtype(&text, n, WEFT_BF16, NULL) != WEFT_OK) abort();
    if (weft_config_json_add_spellings(&text, n, NULL) != WEFT_OK) abort();
    return text;
}

static void check_saved(const weft_plugin *plugin, const void *keys, const weft_declared *before) {
    size_t n = 0;
    char *text = saved_text(before, &n);
    weft_declared *after = NULL;
    weft_error err = WEFT_ERROR_INIT;
    const weft_status status = weft_declared_create(&after, weft_services(), plugin->table, keys,
                                                    fuzz_file("saved.json", text, n), NULL, &err);
    if (status != WEFT_OK || weft_declared_numel(after, false) != weft_declared_numel(before, false)) {
        (void)fprintf(stderr, "%s\n%.*s\n", err.text, (int)n, text);
        abort();
    }
    weft_declared_destroy(after);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const weft_plugin *plugin = fuzz_plugin(entry_for(data, size));
    struct weft_config *config = NULL;
    void *keys = fuzz_config(&config, plugin, NULL, 0);
    weft_declared *declared = NULL;
    weft_error err = WEFT_ERROR_INIT;
    const weft_status status = weft_declared_create(&declared, weft_services(), plugin->table, keys,
                                                    fuzz_file("config.json", data, size), NULL, &err);
    fuzz_judge(status, &err);
    if (status == WEFT_OK) check_saved(plugin, keys, declared);
    weft_declared_destroy(declared);
    fuzz_config_free(config, keys);
    return 0;
}
