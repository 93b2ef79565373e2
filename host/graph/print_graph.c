/* host/graph/print_graph.c: prints a recorded segment for users. */
#include "graph/operators.h"

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
