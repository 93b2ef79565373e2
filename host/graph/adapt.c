/* host/graph/adapt.c: see adapt.h. During an adapter's call all operators are unadapted, and errors name the
 * adapter. */
#include "graph/adapt.h"

#include "plugin/enter.h"
#include "plugin/process.h"
#include "graph/operators.h"

typedef struct adapting {
    weft_call_record before;
    uint64_t fp;
    bool had_failed;
} adapting;

/* claim: 1 + the site. */
static const weft_joined_adapter *claimant(const weft_graph *graph, int32_t claim) {
    return &graph->declared->adapters[graph->declared->sites[claim - 1].claimed - 1];
}

static adapting begin(weft_graph *graph, int32_t claim, const char *slot) {
    const adapting self = {weft_plugin_enter(claimant(graph, claim)->plugin, slot), weft_process_fp(), graph->failed};
    graph->adapting = claim;
    return self;
}

/* Checks that the adapter's result has the width of the operator's own result. */
static weft_value end(weft_graph *graph, adapting self, weft_value given, int64_t width) {
    const weft_declared *declared = graph->declared;
    const char *path = declared->sites[graph->adapting - 1].view.path;
    const weft_value none = {0};
    weft_error changed = WEFT_ERROR_INIT;
    /* Before leave, which would put it back and keep the failure for a later call. */
    const weft_status kept = weft_process_end_call(self.fp, "it was called", &changed);
    (void)weft_plugin_leave(self.before, WEFT_OK, NULL);
    if (kept != WEFT_OK && !graph->failed) (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "%s", changed.text);
    if (!graph->failed && (given.id == 0 || given.id >= (uint32_t)graph->n_values))
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "it gives no value of this segment");
    else if (!graph->failed &&
             (weft_graph_value(graph, given)->width != width || weft_graph_value(graph, given)->dtype != graph->dtype))
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "it gives %lld %s per place; the model needs %lld %s",
                               (long long)weft_graph_value(graph, given)->width,
                               weft_dtype_name(weft_graph_value(graph, given)->dtype), (long long)width,
                               weft_dtype_name(graph->dtype));
    if (graph->failed && !self.had_failed) {
        (void)weft_error_prefix(&graph->failure, "at '%s': ", path);
        (void)weft_plugin_blame(claimant(graph, graph->adapting)->plugin, (weft_status)graph->failure.code,
                                &graph->failure);
    }
    graph->adapting = 0;
    return graph->failed ? none : given;
}

weft_value weft_adapt_linear(weft_graph *graph, weft_value x, weft_weight *weight) {
    const weft_joined_adapter *by = claimant(graph, weight->claim);
    const adapting self = begin(graph, weight->claim, "linear");
    const weft_value y =
        by->plugin->linear(by->adapter, (uint32_t)weight->claim - 1, graph, &weft_graph_ops, x, weight);
    return end(graph, self, y, weight->out);
}

weft_value weft_adapt_embedding(weft_graph *graph, weft_value ids, weft_weight *table) {
    const weft_joined_adapter *by = claimant(graph, table->claim);
    const adapting self = begin(graph, table->claim, "embedding");
    const weft_value y =
        by->plugin->embedding(by->adapter, (uint32_t)table->claim - 1, graph, &weft_graph_ops, ids, table);
    return end(graph, self, y, table->in);
}

static int32_t claimed_head(const weft_graph *graph) {
    const weft_declared *declared = graph->declared;
    for (int32_t i = 0; graph->adapting == 0 && graph->open && i < declared->n_sites; i++)
        if (declared->sites[i].claimed && declared->sites[i].view.kind == WEFT_SITE_HEAD) return i + 1;
    return 0;
}

weft_value weft_adapt_head(weft_graph *graph, weft_value x) {
    const int32_t claim = claimed_head(graph);
    const bool known = x.id != 0 && x.id < (uint32_t)graph->n_values;
    weft_value y = x;
    if (claim == 0 || graph->failed || !known) return x;
    const weft_joined_adapter *by = claimant(graph, claim);
    const adapting self = begin(graph, claim, "head");
    y = by->plugin->head(by->adapter, (uint32_t)claim - 1, graph, &weft_graph_ops, x);
    return end(graph, self, y, weft_graph_value(graph, x)->width);
}

int32_t weft_adapts_attention(weft_graph *graph) {
    const weft_declared *declared = graph->declared;
    int32_t ordinal = 0;
    if (graph->adapting != 0 || !graph->open) return 0;
    ordinal = graph->n_attentions++;
    for (int32_t i = 0; i < declared->n_sites; i++) {
        const weft_declared_site *site = &declared->sites[i];
        if (site->claimed && site->view.kind == WEFT_SITE_ATTENTION && site->segment == graph->segment &&
            site->ordinal == ordinal)
            return i + 1;
    }
    return 0;
}

weft_value weft_adapt_attention(weft_graph *graph, int32_t claim, weft_value q, weft_value k, weft_value v,
                                weft_value starts, const weft_attention_args *args) {
    const weft_declared *declared = graph->declared;
    const weft_site *site = &declared->sites[claim - 1].view;
    const weft_joined_adapter *by = claimant(graph, claim);
    const adapting self = begin(graph, claim, "attention");
    const weft_value o =
        by->plugin->attention(by->adapter, (uint32_t)claim - 1, graph, &weft_graph_ops, q, k, v, starts, args);
    return end(graph, self, o, site->heads * site->head_dim);
}
