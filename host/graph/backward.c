/* host/graph/backward.c: derives the backward of a segment from its record.
 *
 * Nodes are visited from last to first. A node whose output has a gradient computes contributions to the gradients of
 * its inputs and weight. The order of all sums depends only on the record. */
#include "base/sizes.h"
#include "graph/gradient.h"
#include "graph/operators.h"
#include "graph/weight.h"

static bool any_trained(const weft_graph *graph) {
    for (int32_t i = 0; i < graph->n_reads; i++)
        if (graph->declared->parameters[graph->reads[i].parameter].trainable) return true;
    return false;
}

/* True if training must run this segment's backward: it trains parameters, an earlier segment does, or it computes the
 * loss. */
static bool has_backward(const weft_graph *graph) {
    const bool carries = graph->spec.carry_gradient && graph->carry_in.id != 0;
    return graph->spec.mode == WEFT_MODE_TRAIN && (any_trained(graph) || carries || graph->head >= 0);
}

/* Binds the gradient from the next segment to the outgoing carry. */
static void begin_at_carry_out(weft_lowering *l) {
    const weft_value carry = l->graph->carry_out;
    const weft_value_record *record = weft_graph_value(l->graph, carry);
    if (carry.id == 0 || !record->wants_gradient) return;
    weft_gradient_share(l, carry, weft_lower_storage(l, WEFT_HOME_D_CARRY_OUT, 0, 0, weft_value_bytes(record)));
}

/* Writes the gradient for the previous segment to its slot: copied if it shares another value's gradient, zero without
 * contributions. */
static void finish_carry_gradient(weft_lowering *l) {
    const weft_value carry = l->graph->carry_in;
    const weft_value_record *record = weft_graph_value(l->graph, carry);
    const int32_t gradient = weft_gradient_of(l, carry);
    int32_t slot = 0;
    if (carry.id == 0 || !record->wants_gradient || l->status != WEFT_OK) return;
    if (l->pass->storages[gradient].home == WEFT_HOME_D_CARRY_IN) return;
    slot = weft_lower_storage(l, WEFT_HOME_D_CARRY_IN, 0, 0, weft_value_bytes(record));
    if (gradient == 0) weft_lower_zero(l, slot);
    else weft_lower_copy(l, slot, gradient);
}

static void walk_from_last_to_first(weft_lowering *l) {
    const weft_graph *graph = l->graph;
    for (int32_t i = graph->n_nodes - 1; i >= 0 && l->status == WEFT_OK; i--) {
        const weft_node *node = &graph->nodes[i];
        l->node = i;
        if (i != graph->head && weft_gradient_of(l, node->output) == 0) continue;
        node->op->backward(l, node);
        weft_gradient_release(l, node->output);
    }
    l->node = -1;
}

/* Assigns tape offsets, one after the other, to all forward values that backward reads. The tape is live from forward
 * to backward. */
static void place_on_tape(weft_graph *graph, weft_lowering *l) {
    int64_t end = 0;
    for (int32_t v = 1; v < graph->n_values; v++) {
        weft_value_record *record = &graph->values[v];
        if (!record->kept) continue;
        record->tape = weft_cache_lines(end);
        end = record->tape + weft_value_bytes(record);
        l->pass->storages[l->storage_of[v]].offset = record->tape;
    }
    graph->sizes.tape = end;
}

weft_status weft_lower_backward(weft_graph *graph, weft_error *err) {
    weft_lowering l;
    weft_status status = WEFT_OK;
    graph->sizes.has_backward = has_backward(graph);
    if (!graph->sizes.has_backward) return WEFT_OK;
    status = weft_lowering_init(&l, graph, WEFT_PASS_BACKWARD, err);
    if (status != WEFT_OK) return status;
    begin_at_carry_out(&l);
    walk_from_last_to_first(&l);
    finish_carry_gradient(&l);
    weft_weight_finish_gradients(&l);
    if (l.status == WEFT_OK) place_on_tape(graph, &l);
    graph->sizes.backward_reads_carry = graph->carry_in.id != 0 && l.storage_of[graph->carry_in.id] != 0;
    status = l.status;
    weft_lowering_free(&l);
    if (status == WEFT_OK) status = weft_pass_place(l.pass, err);
    return status;
}
