/* host/adapter/attach.c: see adapter.h. */
#include "adapter/adapter.h"

#include "base/alloc.h"
#include "graph/record.h"
#include "model/declare.h"
#include "plugin/enter.h"

#include <stdlib.h>

enum { PLACES = 2 }; /* shape of the recorded micro-batch; the reads of segments do not depend on it */

static void add_site(weft_declared *self, const weft_declared_site *site) {
    self->sites = weft_grow(self->sites, self->n_sites);
    self->sites[self->n_sites++] = *site;
}

/* Returns 3 for "model.layers.3.mlp" below "model.layers"; -1 outside blocks. */
static int32_t layer_of(const weft_declared *declared, const char *path) {
    const char *list = declared->info.layer_path;
    const size_t n = list == NULL ? 0 : strlen(list);
    if (n == 0 || strncmp(path, list, n) != 0 || path[n] != '.') return -1;
    return path[n + 1] < '0' || path[n + 1] > '9' ? -1 : (int32_t)strtol(path + n + 1, NULL, 10);
}

/* ---- weights ---- */

static void add_weight(weft_declared *self, weft_weight *weight) {
    const weft_parameter *parameter = &self->parameters[weight->parameter];
    weft_module *module = self->modules[parameter->module];
    int32_t whole = -1; /* the site of the slice's complete matrix */
    for (int32_t i = 0; i < self->n_sites && weight->is_slice && whole < 0; i++) {
        const weft_weight *other = self->sites[i].view.weight;
        if (other->parameter == weight->parameter && !other->is_slice) whole = i;
    }
    const weft_declared_site site = {
        .view = {.struct_size = (uint32_t)sizeof(weft_site),
                 .path = module->path,
                 .class_name = module->class_name,
                 .module = module,
                 .weight = weight,
                 .out = weight->out,
                 .in = weight->in,
                 .first = weight->first,
                 .kind = weight->role == WEFT_WEIGHT_EMBEDDING ? WEFT_SITE_EMBEDDING : WEFT_SITE_LINEAR,
                 .layer = layer_of(self, module->path),
                 .whole = whole,
                 .storage = weft_parameter_is_packed(parameter) ? parameter->dtype : 0,
                 .has_bias = weight->bias >= 0}};
    if (weight->role != WEFT_WEIGHT_GAIN) add_site(self, &site);
}

/* ---- recorded segments ---- */

/* Returns a site of a segment's module. */
static weft_declared_site site_of_segment(const weft_declared *declared, int32_t segment, int32_t kind) {
    weft_module *module = declared->modules[declared->segments[segment].module];
    return (weft_declared_site){.view = {.struct_size = (uint32_t)sizeof(weft_site),
                                         .path = module->path,
                                         .class_name = module->class_name,
                                         .module = module,
                                         .kind = kind,
                                         .layer = -1,
                                         .whole = -1}};
}

/* Marks the head's site. A head that is tied to an embedding gets a separate site without the weight, so that an
 * adapter does not change embedding lookups. */
static void note_head(weft_declared *self, const weft_graph *graph) {
    const char *path = self->info.head_path;
    const weft_weight *weight = graph->head < 0 ? NULL : graph->nodes[graph->head].weight;
    weft_declared_site site;
    if (graph->head < 0) return;
    for (int32_t i = 0; i < self->n_sites; i++) {
        weft_site *view = &self->sites[i].view;
        if (view->weight != weight || view->kind != WEFT_SITE_LINEAR) continue;
        view->kind = WEFT_SITE_HEAD;
        return;
    }
    site = site_of_segment(self, graph->segment, WEFT_SITE_HEAD);
    if (path != NULL) site.view.path = path;
    site.view.out = weight->out;
    site.view.in = weight->in;
    add_site(self, &site);
}

static void add_attention(weft_declared *self, const weft_graph *graph, const weft_node *node, int32_t ordinal) {
    weft_declared_site site = site_of_segment(self, graph->segment, WEFT_SITE_ATTENTION);
    site.view.layer = layer_of(self, site.view.path);
    site.view.heads = node->attention.heads;
    site.view.kv_heads = node->attention.kv_heads;
    site.view.head_dim = node->attention.head_dim;
    site.segment = graph->segment;
    site.ordinal = ordinal;
    add_site(self, &site);
}

/* Fills the sites of a declared model without adapters: weights of one adapter are not sites of another. */
static weft_status collect_sites(weft_declared *declared, weft_error *err) {
    const weft_graph_spec spec = {.mode = WEFT_MODE_TRAIN, .dtype = WEFT_F32, .rows = 1, .length = PLACES};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < declared->n_weights; i++) add_weight(declared, declared->weights[i]);
    for (int32_t s = 0; s < declared->n_segments && status == WEFT_OK; s++) {
        weft_graph *graph = NULL;
        int32_t ordinal = 0;
        status = weft_graph_record(&graph, declared, s, &spec, err);
        if (status != WEFT_OK) break;
        note_head(declared, graph);
        for (int32_t i = 0; i < graph->n_nodes; i++)
            if (graph->nodes[i].op == &weft_operator_attention)
                add_attention(declared, graph, &graph->nodes[i], ordinal++);
        weft_graph_destroy(graph);
    }
    return status;
}

/* Copies the views to one array for the plugin. */
static weft_status declare_on_sites(weft_declared *declared, weft_error *err) {
    weft_site *views = weft_alloc(declared->n_sites, sizeof *views);
    weft_adapter_job job = {.struct_size = (uint32_t)sizeof job,
                            .sites = views,
                            .n_sites = (uint32_t)declared->n_sites,
                            .site_stride = (uint32_t)sizeof *views,
                            .n_layers = declared->info.n_layers,
                            .width = declared->carry_width};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < declared->n_sites; i++) views[i] = declared->sites[i].view;
    status = weft_builder_adapt(declared, &job, err);
    free(views);
    for (int32_t i = 0; i < declared->n_sites && status == WEFT_OK; i++)
        if (declared->sites[i].claimed == declared->n_adapters) return WEFT_OK;
    return status != WEFT_OK
               ? status
               : weft_error_set(err, WEFT_E_PLUGIN, "the adapter plugin claims no site, and so changes no module");
}

weft_status weft_adapter_attach(weft_declared *declared, const weft_host *host, const weft_adapter_plugin *plugin,
                                const void *plugin_config, const weft_adapter_source *source, weft_error *err) {
    weft_joined_adapter *joins = &declared->adapters[declared->n_adapters];
    weft_status status = declared->n_adapters == 0 ? collect_sites(declared, err) : WEFT_OK;
    if (status != WEFT_OK) return weft_plugin_blame(declared->plugin, status, err);
    joins->plugin = plugin;
    declared->n_adapters++;
    WEFT_PLUGIN_CALL(status, plugin, create, err, &joins->adapter, host, plugin_config, source);
    if (status == WEFT_OK && joins->adapter == NULL)
        status = weft_error_set(err, WEFT_E_PLUGIN, "it returned WEFT_OK from its create without an object");
    if (status == WEFT_OK) status = declare_on_sites(declared, err);
    return weft_plugin_blame(plugin, status, err);
}
