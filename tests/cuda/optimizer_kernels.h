/* cuda/optimizer_kernels.h: the update kernels of the host's own optimizers, loaded from their plugin files. */
#ifndef WEFT_TEST_CUDA_OPTIMIZER_KERNELS_H
#define WEFT_TEST_CUDA_OPTIMIZER_KERNELS_H

#include <check.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include <weft/optimizer.h>

static void *no_host_alloc(const weft_host *h, size_t bytes, size_t alignment) {
    (void)h;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

/* All keys are zero except one; NULL: all. */
static void set_key(char *config, const weft_plugin *plugin, const char *name) {
    const int64_t yes = 1;
    const double half = 0.5;
    for (uint32_t i = 0; name != NULL && i < plugin->n_keys; i++) {
        const weft_key *key = (const weft_key *)(const void *)((const char *)plugin->keys + i * plugin->key_stride);
        if (strcmp(key->name, name) != 0) continue;
        memcpy(config + key->offset, key->type == WEFT_KEY_F64 ? (const void *)&half : &yes, 8);
        return;
    }
    ck_assert_msg(name == NULL, "%s has no key %s", plugin->id, name);
}

/* Returns the update of plugins/weft-optimizer-<id>.so, for the given key. The plugin stays loaded, so the result
 * remains valid. */
static const weft_elementwise *optimizer_kernel_with(const char *id, const char *key) {
    static weft_host none = {.struct_size = sizeof none, .alloc = no_host_alloc};
    char path[4096];
    weft_error err = WEFT_ERROR_INIT;
    weft_optimizer *optimizer = NULL;
    weft_plugin_entry_fn *entry = NULL;
    void *file, *symbol;
    (void)snprintf(path, sizeof path, "%s/plugins/weft-optimizer-%s.so", getenv("WEFT_BUILD"), id);
    file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(file != NULL, "%s", dlerror());
    symbol = dlsym(file, "weft_plugin_entry");
    ck_assert_ptr_nonnull(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    const weft_plugin *plugin = entry(&none, &err)->plugins;
    const weft_optimizer_plugin *table = plugin->table;
    static max_align_t config[256];
    ck_assert_uint_le(plugin->config_size, sizeof config);
    memset(config, 0, sizeof config);
    set_key((char *)config, plugin, key);
    ck_assert_int_eq(table->create(&optimizer, &none, config, &err), WEFT_OK);
    return table->update(optimizer);
}
static inline const weft_elementwise *optimizer_kernel(const char *id) {
    return optimizer_kernel_with(id, NULL);
}

#endif
