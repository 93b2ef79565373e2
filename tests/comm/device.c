/* tests/comm/device.c: the device selected by the environment, for communicators that work only on its memory. */
#include "ranks.h"

#include <stdlib.h>

#include "config/config.h"
#include "device_choice.h"
#include "plugin/load.h"
#include "plugin/services.h"

const weft_device_plugin *device_of_environment(weft_device **out) {
    const char *path = getenv("WEFT_TEST_DEVICE_FILE"), *overrides[DEVICE_CHOICE_MOST];
    const size_t n = path == NULL ? 0 : device_choice_overrides(overrides);
    const weft_loaded *loaded = NULL;
    const weft_device_plugin *table = NULL;
    const weft_plugin *plugin = NULL;
    weft_config *config = NULL;
    weft_error err = WEFT_ERROR_INIT;
    void *keys = NULL;
    if (path == NULL) return NULL;
    must_be_ok(weft_plugin_load(&loaded, path, NULL, "device", NULL, &err), err);
    plugin = loaded->plugin;
    table = weft_loaded_table(loaded, device);
    keys = calloc(1, plugin->config_size + 1);
    must(keys != NULL);
    must_be_ok(weft_config_load(&config, NULL, overrides, n, &err), err);
    must_be_ok(weft_config_fill(config, keys, "device", plugin->keys, plugin->n_keys, plugin->key_stride, &err), err);
    must_be_ok(table->create(out, weft_services(), keys, weft_services_world()->local_rank, &err), err);
    weft_config_free(config);
    free(keys);
    return table;
}
