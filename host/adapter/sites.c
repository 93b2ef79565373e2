/* host/adapter/sites.c: see sites.h. */
#include "adapter/sites.h"

#include "graph/operators.h"

#include <stdlib.h>

enum { PLACES = 2 }; /* shape of the recorded micro-batch; the reads of segments do not depend on it */

typedef struct collector {
    weft_declared *declared;
    weft_declared_site *sites;
    int32_t n, capacity;
} collector;

static weft_status add_site(collector *self, const weft_declared_site *site, weft_error *err) {
    const weft_status status =
        weft_array_reserve((void **)&self->sites, self->n, &self->capacity, sizeof *self->sites, "sites", err);
    if (status == WEFT_OK) self->sites[self->n++] = *site;
    return status;
}

/* Returns 3 for "model.layers.3.mlp" below "model.layers"; -1 outside blocks. */
static int32_t layer_of(const weft_declared *declared, const char *path) {
    const char *list = declared->info.layer_path;
    const size_t n = list == NULL ? 0 : strlen(list);
    if (n == 0 || strncmp(path, list, n) != 0 || path[n] != '.') return -1;
    return path[n + 1] < '0' || path[n + 1] > '9' ? -1 : (int32_t)strtol(path + n + 1, NULL, 10);
}

/* ---- weights ---- */

static int32_t site_of_whole(const collector *self, const weft_weight *slice) {
    for (int32_t i = 0; i < self->n; i++) {
        const weft_weight *weight = self->sites[i].view.weight;
        if (weight->parameter == slice->parameter && !weight->is_slice) return i;
    }
    return -1;
}

static weft_status add_weight(collector *self, weft_weight *weight, weft_error *err) {
    weft_declared *declared = self->declared;
    const weft_parameter *parameter = &declared->parameters[weight->parameter];
    weft_module *module = declared->modules[parameter->module];
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
                 .layer = layer_of(declared, module->path),
                 .whole = weight->is_slice ? site_of_whole(self, weight) : -1,
                 .storage = weft_parameter_is_packed(parameter) ? parameter->dtype : 0,
                 .has_bias = weight->bias >= 0}};
    return weight->role == WEFT_WEIGHT_GAIN ? WEFT_OK : add_site(self, &site, err);
}

/* ---- recorded segments ---- */

/* Adds a separate site for a head that is tied to an embedding, without the weight, so that an adapter does not change
 * embedding lookups. */
static weft_status add_tied_head(collector *self, const weft_graph *graph, weft_error *err) {
    const weft_declared *declared = self->declared;
    const weft_weight *weight = graph->nodes[graph->head].weight;
    weft_module *module = declared->modules[declared->segments[graph->segment].module];
    const weft_declared_site site = {
        .view = {.struct_size = (uint32_t)sizeof(weft_site),
                 .path = declared->info.head_path != NULL ? declared->info.head_path : module->path,
                 .class_name = module->class_name,
                 .module = module,
                 .out = weight->out,
                 .in = weight->in,
                 .kind = WEFT_SITE_HEAD,
                 .layer = -1,
                 .whole = -1}};
    return add_site(self, &site, err);
}

static weft_status note_head(collector *self, const weft_graph *graph, weft_error *err) {
    if (graph->head < 0) return WEFT_OK;
    for (int32_t i = 0; i < self->n; i++) {
        weft_site *view = &self->sites[i].view;
        if (view->weight != graph->nodes[graph->head].weight || view->kind != WEFT_SITE_LINEAR) continue;
        view->kind = WEFT_SITE_HEAD;
        return WEFT_OK;
    }
    return add_tied_head(self, graph, err);
}

static weft_status add_attention(collector *self, const weft_graph *graph, const weft_node *node, int32_t ordinal,
                                 weft_error *err) {
    const weft_declared *declared = self->declared;
    weft_module *module = declared->modules[declared->segments[graph->segment].module];
    const weft_declared_site site = {.view = {.struct_size = (uint32_t)sizeof(weft_site),
                                              .path = module->path,
                                              .class_name = module->class_name,
                                              .module = module,
                                              .heads = node->attention.heads,
                                              .kv_heads = node->attention.kv_heads,
                                              .head_dim = node->attention.head_dim,
                                              .kind = WEFT_SITE_ATTENTION,
                                              .layer = layer_of(declared, module->path),
                                              .whole = -1},
                                     .segment = graph->segment,
                                     .ordinal = ordinal};
    return add_site(self, &site, err);
}

static weft_status look_at_segment(collector *self, int32_t segment, weft_error *err) {
    const weft_graph_spec spec = {.mode = WEFT_MODE_TRAIN, .dtype = WEFT_F32, .rows = 1, .length = PLACES};
    weft_graph *graph = NULL;
    int32_t ordinal = 0;
    weft_status status = weft_graph_record(&graph, self->declared, segment, &spec, err);
    if (status != WEFT_OK) return status;
    status = note_head(self, graph, err);
    for (int32_t i = 0; i < graph->n_nodes && status == WEFT_OK; i++)
        if (graph->nodes[i].op == &weft_operator_attention)
            status = add_attention(self, graph, &graph->nodes[i], ordinal++, err);
    weft_graph_destroy(graph);
    return status;
}

/* ---- collect ---- */

weft_status weft_sites_collect(weft_declared *declared, weft_error *err) {
    collector self = {.declared = declared};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < declared->n_weights && status == WEFT_OK; i++)
        status = add_weight(&self, declared->weights[i], err);
    for (int32_t s = 0; s < declared->n_segments && status == WEFT_OK; s++) status = look_at_segment(&self, s, err);
    if (status == WEFT_OK) {
        declared->sites = self.sites;
        declared->n_sites = self.n;
    } else {
        free(self.sites);
    }
    return status;
}
