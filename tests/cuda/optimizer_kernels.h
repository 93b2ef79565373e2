/* cuda/optimizer_kernels.h: the updates of the optimizers that come with the host, from their files. */
#ifndef WEFT_TEST_CUDA_OPTIMIZER_KERNELS_H
#define WEFT_TEST_CUDA_OPTIMIZER_KERNELS_H

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <weft/optimizer.h>

static void *no_host_alloc(const weft_host *h, size_t bytes, size_t alignment) {
    (void)h;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

/* The update of plugins/weft-optimizer-<id>.so. The file stays loaded, and so does what it gave. */
static const weft_elementwise *optimizer_kernel(const char *id) {
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
    static char nothing[4096]; /* an update does not depend on keys */
    ck_assert_uint_le(plugin->config_size, sizeof nothing);
    ck_assert_int_eq(table->create(&optimizer, &none, nothing, &err), WEFT_OK);
    return table->update(optimizer);
}

#endif
