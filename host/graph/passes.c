/* host/graph/passes.c: turns a record into executable passes and computes their sizes.
 *
 * The backward is written first: forward must keep the values that it reads. */
#include "graph/operators.h"

static weft_status lower_all(weft_graph *graph, weft_error *err) {
    weft_status status = weft_lower_backward(graph, err);
    if (status == WEFT_OK) status = weft_lower_forward(graph, WEFT_PASS_UNTAPED, err);
    if (status == WEFT_OK && graph->sizes.tape > 0) status = weft_lower_forward(graph, WEFT_PASS_FORWARD, err);
    if (status == WEFT_OK && graph->sizes.tape > 0) status = weft_lower_forward(graph, WEFT_PASS_RECOMPUTE, err);
    return status;
}

static void fill_sizes(weft_graph *graph) {
    weft_graph_sizes *sizes = &graph->sizes;
    const weft_pass *backward = &graph->passes[WEFT_PASS_BACKWARD];
    const weft_pass *forward = &graph->passes[sizes->tape > 0 ? WEFT_PASS_FORWARD : WEFT_PASS_UNTAPED];
    sizes->carry = graph->carry_out.id == 0 ? 0 : weft_value_bytes(weft_graph_value(graph, graph->carry_out));
    sizes->forward_work = forward->work;
    sizes->forward_work_untaped = graph->passes[WEFT_PASS_UNTAPED].work;
    sizes->recompute_work = graph->passes[WEFT_PASS_RECOMPUTE].work;
    sizes->backward_work = backward->work;
    sizes->state = graph->state_bytes;
    sizes->table_rows = graph->table_rows;
    sizes->draws = graph->n_dropouts > 0;
    sizes->has_loss = graph->head >= 0;
    sizes->forward_flops = forward->flops;
    sizes->forward_bytes = forward->bytes;
    sizes->backward_flops = backward->flops;
    sizes->backward_bytes = backward->bytes;
}

weft_status weft_graph_plan(weft_graph *graph, weft_error *err) {
    weft_status status = WEFT_OK;
    if (graph->planned)
        return weft_error_set(err, WEFT_E_HOST, "segment %s has been planned already", weft_graph_name(graph));
    status = lower_all(graph, err);
    if (status != WEFT_OK) {
        (void)weft_error_prefix(err, "segment %s: ", weft_graph_name(graph));
        return status;
    }
    fill_sizes(graph);
    graph->planned = true;
    return WEFT_OK;
}

const weft_graph_sizes *weft_graph_size(const weft_graph *graph) {
    return &graph->sizes;
}
