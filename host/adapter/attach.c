/* host/adapter/attach.c: see attach.h. */
#include "adapter/attach.h"

#include "adapter/sites.h"
#include "model/builder.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_status check_claims(const weft_declared *declared, weft_error *err) {
    for (int32_t i = 0; i < declared->n_sites; i++)
        if (declared->sites[i].claimed == declared->n_adapters) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the adapter plugin claims no site, and so changes nothing");
}

/* Copies the views to one array for the plugin. */
static weft_status declare_on_sites(weft_declared *declared, weft_error *err) {
    weft_site *views = calloc((size_t)declared->n_sites + 1, sizeof *views);
    weft_adapter_job job = {.struct_size = (uint32_t)sizeof job,
                            .sites = views,
                            .n_sites = (uint32_t)declared->n_sites,
                            .site_stride = (uint32_t)sizeof *views,
                            .n_layers = declared->info.n_layers,
                            .width = declared->carry_width};
    weft_status status = WEFT_OK;
    if (views == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the sites of an adapter");
    for (int32_t i = 0; i < declared->n_sites; i++) views[i] = declared->sites[i].view;
    status = weft_builder_adapt(declared, &job, err);
    free(views);
    return status == WEFT_OK ? check_claims(declared, err) : status;
}

weft_status weft_adapter_attach(weft_declared *declared, const weft_host *host, const weft_adapter_plugin *plugin,
                                const void *plugin_config, const weft_adapter_source *source, weft_error *err) {
    weft_joined_adapter *joins = &declared->adapters[declared->n_adapters];
    weft_status status = declared->n_adapters == 0 ? weft_sites_collect(declared, err) : WEFT_OK;
    if (status != WEFT_OK) return weft_plugin_blame(declared->plugin, status, err);
    joins->plugin = plugin;
    declared->n_adapters++;
    WEFT_PLUGIN_CALL(status, plugin, create, err, &joins->adapter, host, plugin_config, source);
    if (status == WEFT_OK && joins->adapter == NULL)
        status = weft_error_set(err, WEFT_E_PLUGIN, "it answers WEFT_OK in its create and has made nothing");
    if (status == WEFT_OK) status = declare_on_sites(declared, err);
    return weft_plugin_blame(plugin, status, err);
}
