/* host/graph/infer.c: shared argument checks of operators. */
#include "graph/operators.h"

weft_status weft_infer_numbers(const weft_graph *graph, const weft_node *node, int32_t i, int64_t width,
                               weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[i]);
    if (value->dtype != graph->dtype)
        return weft_error_set(err, WEFT_E_PLUGIN, "`%s` holds %s; %s is needed", node->op->inputs[i],
                              weft_dtype_name(value->dtype), weft_dtype_name(graph->dtype));
    if (width != 0 && value->width != width)
        return weft_error_set(err, WEFT_E_PLUGIN, "`%s` is %lld wide; %lld is needed", node->op->inputs[i],
                              (long long)value->width, (long long)width);
    if (weft_value_places(value) != weft_node_places(graph, node))
        return weft_error_set(err, WEFT_E_PLUGIN, "`%s` has %lld places; %lld are needed", node->op->inputs[i],
                              (long long)weft_value_places(value), (long long)weft_node_places(graph, node));
    return WEFT_OK;
}

weft_status weft_infer_alike(const weft_graph *graph, weft_node *node, weft_error *err) {
    const int64_t width = weft_graph_value(graph, node->inputs[0])->width;
    weft_status status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, 1, width, err);
    node->width = width;
    return status;
}

weft_status weft_infer_places(const weft_graph *graph, const weft_node *node, int32_t i, weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[i]);
    if (value->dtype == WEFT_I32 && value->width == 1) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "`%s` is %lld %s per place; one int32 is needed, as ids(), positions() and "
                          "starts() give",
                          node->op->inputs[i], (long long)value->width, weft_dtype_name(value->dtype));
}

weft_status weft_infer_matrix(const weft_node *node, weft_error *err) {
    if (node->weight == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "the weight is NULL");
    if (node->weight->role == WEFT_WEIGHT_GAIN)
        return weft_error_set(err, WEFT_E_PLUGIN, "the weight is a norm's gain; a matrix is needed");
    return WEFT_OK;
}

weft_status weft_infer_dense(const weft_graph *graph, const weft_node *node, weft_error *err) {
    const weft_status status = weft_infer_matrix(node, err);
    const weft_parameter *p = status == WEFT_OK ? &graph->declared->parameters[node->weight->parameter] : NULL;
    if (p != NULL && weft_parameter_is_packed(p))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the weight is stored in %s, which `linear` alone reads; declare it with storage 0",
                              weft_dtype_name(p->dtype));
    if (p != NULL && node->weight->transposed)
        return weft_error_set(err, WEFT_E_PLUGIN, "the weight is transposed, which `linear` alone reads");
    if (p != NULL && node->weight->is_slice)
        return weft_error_set(err, WEFT_E_PLUGIN, "the weight is a slice, which `linear` alone reads");
    return status;
}

weft_status weft_infer_gain(const weft_node *node, int64_t width, weft_error *err) {
    if (node->weight == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "the gain is NULL");
    if (node->weight->role != WEFT_WEIGHT_GAIN)
        return weft_error_set(err, WEFT_E_PLUGIN, "the weight is a matrix; a norm's gain is needed");
    if (width % node->weight->in != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "`%s` is %lld wide; the gain has %lld elements, which do not fit a whole number of times",
                              node->op->inputs[0], (long long)width, (long long)node->weight->in);
    return WEFT_OK;
}
