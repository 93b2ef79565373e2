/* llama.h: the model plugin of the build tree, loaded directly, and models declared with it. */
#ifndef WEFT_TEST_MODEL_LLAMA_H
#define WEFT_TEST_MODEL_LLAMA_H

#include <dlfcn.h>
#include <jansson.h>
#include <weft/plugin.h>

#include "fixture.h"

typedef struct llama_test_settings {
    const char *ignore;
} llama_test_settings;

static inline const char *llama_environment(const char *name) {
    const char *value = getenv(name);
    ck_assert_msg(value != NULL, "the environment lacks %s", name);
    return value;
}

/* Returns the path of a file of tests/golden. Two results are valid at a time. */
static inline const char *llama_golden(const char *name) {
    static char paths[2][512];
    static int next;
    next = (next + 1) % 2;
    (void)snprintf(paths[next], sizeof paths[next], "%s/tests/golden/%s", llama_environment("WEFT_SOURCE"), name);
    return paths[next];
}

/* Loads a plugin of the build tree: "model-llama". */
static inline const weft_plugin *built_plugin(const char *name) {
    char path[512];
    void *file = NULL;
    weft_plugin_entry_fn *entry = NULL;
    const weft_plugin_list *list = NULL;
    weft_error err = WEFT_ERROR_INIT;
    (void)snprintf(path, sizeof path, "%s/plugins/weft-%s.so", llama_environment("WEFT_BUILD"), name);
    file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(file != NULL, "%s", dlerror());
    *(void **)(void *)&entry = dlsym(file, "weft_plugin_entry");
    list = entry(&fixture_host, &err);
    return &list->plugins[0];
}

static inline const weft_model_plugin *llama_plugin(void) {
    const weft_plugin *plugin = built_plugin("model-llama");
    ck_assert_uint_eq(plugin->config_size, sizeof(llama_test_settings));
    return plugin->table;
}

static inline weft_status llama_declare(weft_declared **out, const char *config_path, const char *ignore,
                                        weft_error *err) {
    const llama_test_settings settings = {ignore};
    return weft_declared_create(out, &fixture_host, llama_plugin(), &settings, config_path, NULL, err);
}

static inline weft_declared *llama_declared(const char *config_path) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *declared = NULL;
    ck_assert_ok(llama_declare(&declared, config_path, "", &err), err);
    return declared;
}

/* Writes a configuration to scratch/config.json, and declares it by the plugin "model-FAMILY". */
static inline weft_status declare_json(weft_declared **out, const char *family, const json_t *config, weft_error *err) {
    const llama_test_settings settings = {""};
    char plugin[32], *text = json_dumps(config, JSON_INDENT(1));
    (void)snprintf(plugin, sizeof plugin, "model-%s", family);
    write_text(scratch_path("config.json"), text);
    free(text);
    return weft_declared_create(out, &fixture_host, built_plugin(plugin)->table, &settings, scratch_path("config.json"),
                                NULL, err);
}

#endif
