/* host/graph/make_graph.c: creates, records and destroys a graph: calls the model's forward and checks its result. */
#include "plugin/enter.h"
#include "plugin/slow_warning.h"
#include "graph/operators.h"

#include <stdlib.h>

static weft_status check_spec(const weft_declared *declared, int32_t segment, const weft_graph_spec *spec,
                              weft_error *err) {
    if (segment < 0 || segment >= declared->n_segments)
        return weft_error_set(err, WEFT_E_HOST, "segment %d does not exist; the model has %d", segment,
                              declared->n_segments);
    if (spec->dtype != WEFT_F32 && spec->dtype != WEFT_BF16 && spec->dtype != WEFT_F16)
        return weft_error_set(err, WEFT_E_HOST, "a segment cannot be recorded in %s; fp32, bf16 and fp16 are possible",
                              weft_dtype_name(spec->dtype));
    if (spec->rows < 1 || spec->length < 1)
        return weft_error_set(err, WEFT_E_HOST, "a micro-batch of %d rows of %d places cannot be recorded", spec->rows,
                              spec->length);
    if (spec->mode == WEFT_MODE_GENERATE && spec->cache_rows < spec->length)
        return weft_error_set(err, WEFT_E_HOST, "a key-value state of %d places cannot hold %d", spec->cache_rows,
                              spec->length);
    return WEFT_OK;
}

/* Checks the segment's result: the next carry, or no value from the last segment. */
static void check_result(weft_graph *graph, weft_value result) {
    const bool last = graph->segment == graph->declared->n_segments - 1;
    const weft_value_record *value = NULL;
    if (graph->failed) return;
    if (last && (result.id != 0 || graph->head < 0)) {
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "the last segment ends in lm_head and returns no value");
        return;
    }
    if (last) return;
    if (graph->head >= 0) {
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "lm_head belongs into the last segment, which is %s",
                               graph->declared->segments[graph->declared->n_segments - 1].name);
        return;
    }
    if (result.id == 0 || result.id >= (uint32_t)graph->n_values) {
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN,
                               "forward returned no carry, and this is not the last segment");
        return;
    }
    value = weft_graph_value(graph, result);
    if (weft_value_places(value) != weft_graph_places(graph))
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN,
                               "forward returned a value of %lld places as its carry; the micro-batch has %lld",
                               (long long)weft_value_places(value), (long long)weft_graph_places(graph));
    else if (value->dtype != graph->dtype || value->width != graph->declared->carry_width)
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN,
                               "forward returned a carry of %lld %s per place; the model declared "
                               "%lld %s",
                               (long long)value->width, weft_dtype_name(value->dtype),
                               (long long)graph->declared->carry_width, weft_dtype_name(graph->dtype));
    graph->carry_out = result;
}

static weft_status run_forward(weft_graph *graph, weft_error *err) {
    const weft_declared *declared = graph->declared;
    weft_value result = {0};
    weft_doing before;
    weft_slow_warning slow;
    (void)weft_record_outside(graph, WEFT_HOME_NONE, 0, 0); /* value 0: invalid */
    if (graph->segment > 0) {
        graph->carry_in = weft_record_outside(graph, WEFT_HOME_CARRY_IN, graph->dtype, declared->carry_width);
        if (!graph->failed)
            weft_graph_value(graph, graph->carry_in)->wants_gradient = graph->spec.mode == WEFT_MODE_TRAIN &&
                                                                       graph->spec.carry_gradient;
    }
    if (!graph->failed) {
        graph->open = true;
        weft_slow_warning_begin(&slow, declared->plugin, "forward");
        before = weft_plugin_enter(declared->plugin, "forward");
        result = declared->plugin->forward(declared->model, (uint32_t)graph->segment, graph, &weft_graph_ops,
                                           graph->carry_in);
        (void)weft_plugin_leave(before, WEFT_OK, NULL);
        weft_slow_warning_end(&slow);
        graph->open = false;
        check_result(graph, result);
    }
    if (!graph->failed) return WEFT_OK;
    (void)weft_error_set(err, (weft_status)graph->failure.code, "%s", graph->failure.text);
    return weft_error_prefix(err, "segment %s: ", weft_graph_name(graph));
}

weft_status weft_graph_record(weft_graph **out, const weft_declared *declared, int32_t segment,
                              const weft_graph_spec *spec, weft_error *err) {
    weft_status status = check_spec(declared, segment, spec, err);
    weft_error failure = WEFT_ERROR_INIT;
    weft_graph *graph = NULL;
    if (status != WEFT_OK) return status;
    graph = calloc(1, sizeof *graph);
    if (graph == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the record of a segment");
    graph->declared = declared;
    graph->segment = segment;
    graph->spec = *spec;
    graph->dtype = spec->dtype;
    graph->head = -1;
    graph->failure = failure;
    status = run_forward(graph, &failure);
    if (status == WEFT_OK) *out = graph;
    else {
        weft_graph_destroy(graph);
        (void)weft_error_set(err, status, "%s", failure.text);
    }
    return status;
}

void weft_graph_destroy(weft_graph *graph) {
    if (graph == NULL) return;
    for (int i = 0; i < WEFT_N_PASSES; i++) weft_pass_free(&graph->passes[i]);
    for (int32_t i = 0; i < graph->n_nodes; i++) free(graph->nodes[i].custom_args);
    for (int32_t i = 0; i < graph->n_outputs; i++) free(graph->outputs[i].name);
    free(graph->outputs);
    free(graph->reads);
    free(graph->nodes);
    free(graph->values);
    free(graph);
}

weft_graph_read *weft_graph_reads(weft_graph *graph, int32_t *n_reads) {
    *n_reads = graph->n_reads;
    return graph->reads;
}
