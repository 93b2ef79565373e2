/* host/graph/recording.c: creates and destroys a graph: records a model's forward as values and nodes. See record.h. */
#include "base/alloc.h"
#include "graph/record.h"
#include "plugin/enter.h"

#include <stdlib.h>

const char *weft_graph_name(const weft_graph *graph) {
    return graph->declared->segments[graph->segment].name;
}

weft_value weft_record_fail(weft_graph *graph, const weft_node *node, weft_status code, const char *format, ...) {
    const weft_value none = {0};
    va_list args;
    if (graph->failed) return none;
    graph->failed = true;
    va_start(args, format);
    (void)vsnprintf(graph->failure.text, sizeof graph->failure.text, format, args);
    va_end(args);
    graph->failure.code = (int32_t)code;
    if (node != NULL && node->label[0] != '\0')
        (void)weft_error_prefix(&graph->failure, "%s %s: ", node->op->name, node->label);
    else if (node != NULL) (void)weft_error_prefix(&graph->failure, "%s: ", node->op->name);
    return none;
}

static weft_value append_value(weft_graph *graph, const weft_value_record *record) {
    const weft_value value = {(uint32_t)graph->n_values};
    graph->values = weft_grow(graph->values, graph->n_values);
    graph->values[graph->n_values++] = *record;
    return value;
}

weft_value weft_record_outside(weft_graph *graph, int32_t home, int32_t dtype, int64_t width) {
    const weft_value none = {0};
    const weft_value_record record = {
        .node = -1, .home = home, .dtype = dtype, .width = width, .count = weft_graph_places(graph) * width};
    return graph->failed ? none : append_value(graph, &record);
}

/* Sets the label "q_proj" from "model.layers.3.self_attn.q_proj.weight": the next-to-last component of the name. */
static void label_from_weight(weft_node *node, const weft_declared *declared) {
    const char *name = declared->parameters[node->weight->parameter].name;
    const char *end = strrchr(name, '.'), *start = NULL;
    if (node->label[0] != '\0') return;
    if (end == NULL) end = name + strlen(name);
    for (start = end; start > name && start[-1] != '.'; start--) {
    }
    (void)snprintf(node->label, sizeof node->label, "%.*s", (int)(end - start), start);
}

/* A plugin that stores handles in static variables uses the handles of the instance declared last for all instances. */
#define NOT_ITS_OWN                                                                                                    \
    "was not declared by this instance of the model. Fix: store the builder's handles in the instance that create "    \
    "returns, because several instances exist at a time"

static weft_status check_weight(const weft_graph *graph, const weft_weight *weight, weft_error *err) {
    if (weight->owner == graph->declared && weight->parameter >= 0 && weight->parameter < graph->declared->n_parameters)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the weight " NOT_ITS_OWN);
}

static weft_status check_table(const weft_graph *graph, const weft_table *table, weft_error *err) {
    const weft_declared *declared = graph->declared;
    if (table->index >= 0 && table->index < declared->n_tables && declared->tables[table->index] == table)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the table " NOT_ITS_OWN);
}

static weft_status check_inputs(const weft_graph *graph, const weft_node *node, weft_error *err) {
    for (int32_t i = 0; i < node->n_inputs; i++) {
        const uint32_t id = node->inputs[i].id;
        const char *name = i < WEFT_INPUT_NAMES ? node->op->inputs[i] : NULL;
        char number[24];
        if (id != 0 && id < (uint32_t)graph->n_values) continue;
        (void)snprintf(number, sizeof number, "input %d", (int)i);
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "%s%s%s is not a value of this segment (the first segment has no carry; values of other "
                              "segments cannot be used)",
                              name == NULL ? "" : "`", name == NULL ? number : name, name == NULL ? "" : "`");
    }
    return WEFT_OK;
}

int32_t weft_graph_read_index(const weft_graph *graph, int32_t parameter) {
    int32_t i = 0;
    while (i < graph->n_reads && graph->reads[i].parameter != parameter) i++;
    return i;
}

int32_t weft_graph_read_dtype(const weft_graph *graph, int32_t parameter) {
    const weft_parameter *p = &graph->declared->parameters[parameter];
    if (weft_parameter_is_packed(p)) return p->dtype;
    return weft_parameter_is_matrix(p) ? graph->dtype : WEFT_F32;
}

/* Records the reads of the parameters of a weight object; NULL: none. */
static void note_weight(weft_graph *graph, const weft_node *node, const weft_weight *weight) {
    for (int32_t k = 0; k < 2 && weight != NULL; k++) {
        const int32_t parameter = k == 0 ? weight->parameter : weight->bias;
        const int32_t i = weft_graph_read_index(graph, parameter);
        if (parameter < 0) continue;
        if (i == graph->n_reads) {
            graph->reads = weft_grow(graph->reads, i);
            graph->reads[graph->n_reads++].parameter = parameter;
        }
        if (node->op != &weft_operator_embedding) graph->reads[i].in_products = true;
    }
}

/* Gives the output the shape of input 0, which must be numbers. */
static weft_status take_shape(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[0]);
    const int64_t places = weft_value_places(value);
    node->places = places == weft_graph_places(graph) ? 0 : places;
    node->width = value->width;
    return weft_infer_numbers(graph, node, 0, 0, err);
}

static weft_status check_node(weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!graph->open) return weft_error_set(err, WEFT_E_PLUGIN, "operators may be called inside `forward` only");
    if (graph->head >= 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "no operator may follow lm_head, which ends its segment");
    if (node->weight != NULL) status = check_weight(graph, node->weight, err);
    for (int32_t i = 0; i < WEFT_NODE_CONSTANTS && status == WEFT_OK; i++)
        if (node->constants[i] != NULL) status = check_weight(graph, node->constants[i], err);
    if (status == WEFT_OK && node->table != NULL) status = check_table(graph, node->table, err);
    if (status == WEFT_OK && node->weight != NULL) label_from_weight(node, graph->declared);
    if (status == WEFT_OK) status = check_inputs(graph, node, err);
    if (status == WEFT_OK && node->op->any_places) status = take_shape(graph, node, err);
    if (status == WEFT_OK) status = node->op->infer(graph, node, err);
    if (status == WEFT_OK && node->width > ((int64_t)1 << 40) / weft_node_places(graph, node))
        status = weft_error_set(err, WEFT_E_PLUGIN, "a result of width %lld with %lld positions is too large",
                                (long long)node->width, (long long)weft_node_places(graph, node));
    return status;
}

/* True if the gradient of the node's output reaches a trained parameter. */
static bool output_wants_gradient(const weft_graph *graph, const weft_node *node) {
    if (graph->spec.mode != WEFT_MODE_TRAIN) return false;
    if (node->weight != NULL && weft_weight_trains(graph, node->weight)) return true;
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (weft_graph_value(graph, node->inputs[i])->wants_gradient) return true;
    return false;
}

static void append_results(weft_graph *graph, weft_node *node) {
    const int32_t index = graph->n_nodes;
    if (node->width > 0) {
        const weft_value_record output = {.node = index,
                                          .dtype = graph->dtype,
                                          .width = node->width,
                                          .count = node->width * weft_node_places(graph, node),
                                          .wants_gradient = output_wants_gradient(graph, node)};
        node->output = append_value(graph, &output);
    }
    if (node->statistic_count > 0) {
        const weft_value_record statistic = {
            .node = index, .dtype = WEFT_F32, .width = 1, .count = node->statistic_count};
        node->statistic = append_value(graph, &statistic);
    }
}

weft_value weft_record_node(weft_graph *graph, weft_node *node) {
    weft_error err = WEFT_ERROR_INIT;
    const weft_value none = {0};
    if (!graph->failed) {
        const weft_status status = check_node(graph, node, &err);
        if (status != WEFT_OK) (void)weft_record_fail(graph, node, status, "%s", err.text);
    }
    if (graph->failed) {
        free(node->custom_args);
        return none;
    }
    for (int32_t i = 0; i < WEFT_NODE_CONSTANTS; i++) note_weight(graph, node, node->constants[i]);
    note_weight(graph, node, node->weight);
    append_results(graph, node);
    graph->nodes = weft_grow(graph->nodes, graph->n_nodes);
    graph->nodes[graph->n_nodes++] = *node;
    return node->output;
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
                              "forward returned a value of %lld positions as its carry; the micro-batch has %lld",
                              (long long)weft_value_places(value), (long long)weft_graph_places(graph));
    if (value->dtype != graph->dtype || value->width != declared->carry_width)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "forward returned a carry of %lld %s per position; the model declared %lld %s",
                              (long long)value->width, weft_dtype_name(value->dtype), (long long)declared->carry_width,
                              weft_dtype_name(graph->dtype));
    return WEFT_OK;
}

static weft_status run_forward(weft_graph *graph, weft_error *err) {
    const weft_declared *declared = graph->declared;
    weft_status status = WEFT_OK;
    weft_value result = {0};
    (void)weft_record_outside(graph, WEFT_HOME_NONE, 0, 0); /* value 0: invalid */
    if (graph->segment > 0) {
        graph->carry_in = weft_record_outside(graph, WEFT_HOME_CARRY_IN, graph->dtype, declared->carry_width);
        weft_graph_value(graph, graph->carry_in)->wants_gradient = graph->spec.mode == WEFT_MODE_TRAIN &&
                                                                   graph->spec.carry_gradient;
    }
    graph->open = true;
    weft_slow_warning_begin(declared->plugin, "forward");
    WEFT_PLUGIN_QUERY(result, declared->plugin, forward, declared->model, (uint32_t)graph->segment, graph,
                      &weft_graph_ops, graph->carry_in);
    weft_slow_warning_end();
    graph->open = false;
    if (graph->failed) status = weft_error_set(err, (weft_status)graph->failure.code, "%s", graph->failure.text);
    else status = check_result(graph, result, err);
    graph->carry_out = graph->segment == declared->n_segments - 1 ? (weft_value){0} : result;
    if (status != WEFT_OK) (void)weft_error_prefix(err, "segment %s: ", weft_graph_name(graph));
    return status;
}

weft_status weft_graph_record(weft_graph **out, const weft_declared *declared, int32_t segment,
                              const weft_graph_spec *spec, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    weft_graph *graph = weft_alloc(1, sizeof *graph);
    graph->declared = declared;
    graph->segment = segment;
    graph->spec = *spec;
    graph->dtype = spec->dtype;
    graph->head = -1;
    graph->failure = none;
    const weft_status status = run_forward(graph, err);
    if (status == WEFT_OK) *out = graph;
    else weft_graph_destroy(graph);
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
    free(graph->reads);
    free(graph->nodes);
    free(graph->values);
    free(graph);
}

weft_graph_read *weft_graph_reads(weft_graph *graph, int32_t *n_reads) {
    *n_reads = graph->n_reads;
    return graph->reads;
}
