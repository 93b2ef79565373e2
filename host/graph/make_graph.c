/* host/graph/make_graph.c: creates, records and destroys a graph: calls the model's forward and checks its result. */
#include "base/alloc.h"
#include "graph/operators.h"
#include "plugin/enter.h"

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
static weft_status check_result(const weft_graph *graph, weft_value result, weft_error *err) {
    const weft_declared *declared = graph->declared;
    const weft_value_record *value = NULL;
    if (graph->segment == declared->n_segments - 1)
        return result.id == 0 && graph->head >= 0
                   ? WEFT_OK
                   : weft_error_set(err, WEFT_E_PLUGIN, "the last segment ends in lm_head and returns no value");
    if (graph->head >= 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "lm_head belongs into the last segment, which is %s",
                              declared->segments[declared->n_segments - 1].name);
    if (result.id == 0 || result.id >= (uint32_t)graph->n_values)
        return weft_error_set(err, WEFT_E_PLUGIN, "forward returned no carry, and this is not the last segment");
    value = weft_graph_value(graph, result);
    if (weft_value_places(value) != weft_graph_places(graph))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "forward returned a value of %lld places as its carry; the micro-batch has %lld",
                              (long long)weft_value_places(value), (long long)weft_graph_places(graph));
    if (value->dtype != graph->dtype || value->width != declared->carry_width)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "forward returned a carry of %lld %s per place; the model declared %lld %s",
                              (long long)value->width, weft_dtype_name(value->dtype), (long long)declared->carry_width,
                              weft_dtype_name(graph->dtype));
    return WEFT_OK;
}

static weft_status run_forward(weft_graph *graph, weft_error *err) {
    const weft_declared *declared = graph->declared;
    weft_status status = WEFT_OK;
    weft_value result = {0};
    weft_call_record before;
    weft_slow_warning slow;
    (void)weft_record_outside(graph, WEFT_HOME_NONE, 0, 0); /* value 0: invalid */
    if (graph->segment > 0) {
        graph->carry_in = weft_record_outside(graph, WEFT_HOME_CARRY_IN, graph->dtype, declared->carry_width);
        weft_graph_value(graph, graph->carry_in)->wants_gradient = graph->spec.mode == WEFT_MODE_TRAIN &&
                                                                   graph->spec.carry_gradient;
    }
    graph->open = true;
    weft_slow_warning_begin(&slow, declared->plugin, "forward");
    before = weft_plugin_enter(declared->plugin, "forward");
    result =
        declared->plugin->forward(declared->model, (uint32_t)graph->segment, graph, &weft_graph_ops, graph->carry_in);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    weft_slow_warning_end(&slow);
    graph->open = false;
    if (graph->failed) status = weft_error_set(err, (weft_status)graph->failure.code, "%s", graph->failure.text);
    else status = check_result(graph, result, err);
    graph->carry_out = graph->segment == declared->n_segments - 1 ? (weft_value){0} : result;
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "segment %s: ", weft_graph_name(graph));
}

weft_status weft_graph_record(weft_graph **out, const weft_declared *declared, int32_t segment,
                              const weft_graph_spec *spec, weft_error *err) {
    weft_status status = check_spec(declared, segment, spec, err);
    weft_error failure = WEFT_ERROR_INIT;
    weft_graph *graph = NULL;
    if (status != WEFT_OK) return status;
    graph = weft_alloc(1, sizeof *graph);
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
    for (int i = 0; i < WEFT_N_PASSES; i++) {
        free(graph->passes[i].calls);
        free(graph->passes[i].operands);
        free(graph->passes[i].storages);
    }
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

/* ---- printing ---- */

static void print_shape(const weft_graph *graph, const weft_value_record *value, FILE *to) {
    if (value->width == 1 && value->dtype == WEFT_I32)
        (void)fprintf(to, "(%d,%d)", graph->spec.rows, graph->spec.length);
    else if (weft_value_places(value) != weft_graph_places(graph))
        (void)fprintf(to, "(%lld,%lld)", (long long)weft_value_places(value), (long long)value->width);
    else (void)fprintf(to, "(%d,%d,%lld)", graph->spec.rows, graph->spec.length, (long long)value->width);
}

static void print_node(const weft_graph *graph, const weft_node *node, FILE *to) {
    const weft_value_record *output = weft_graph_value(graph, node->output);
    (void)fprintf(to, "%s%s%s", node->op->name, node->label[0] == '\0' ? "" : " ", node->label);
    for (int32_t i = 0; i < node->n_inputs; i++) {
        (void)fputs(i == 0 ? " " : ", ", to);
        print_shape(graph, weft_graph_value(graph, node->inputs[i]), to);
    }
    (void)fputs(" -> ", to);
    if (node->output.id != 0) print_shape(graph, output, to);
    else (void)fputs(graph->spec.mode == WEFT_MODE_GENERATE ? "logits of the last place" : "loss", to);
    if (output->kept) (void)fputs(", kept for backward", to);
    (void)fputc('\n', to);
}

void weft_graph_print(const weft_graph *graph, FILE *to) {
    for (int32_t i = 0; i < graph->n_nodes; i++) print_node(graph, &graph->nodes[i], to);
}
