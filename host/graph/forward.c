/* host/graph/forward.c: writes the forward passes of a segment.
 *
 * One record yields three variants. A variant runs the nodes that its results require: the carry, the loss or logits,
 * named outputs, and the tape. Then every value gets a storage: the tape if backward reads it, the slot of the outgoing
 * carry, else scratch. An operator that can work in place overwrites an input that no later node reads. */
#include "graph/operators.h"

static bool on_tape(const weft_lowering *l, const weft_value_record *value) {
    return value->kept && (l->kind == WEFT_PASS_FORWARD || l->kind == WEFT_PASS_RECOMPUTE);
}

/* True if the pass must compute the node as a result, with or without a reader inside the pass. */
static bool leaves_behind(const weft_lowering *l, const weft_node *node, int32_t index) {
    const weft_graph *graph = l->graph;
    const bool whole = l->kind != WEFT_PASS_RECOMPUTE;
    if (index == graph->head) return graph->spec.mode != WEFT_MODE_TRAIN;
    if (on_tape(l, weft_graph_value(graph, node->output)) || on_tape(l, weft_graph_value(graph, node->statistic)))
        return true;
    return whole && (node->output.id == graph->carry_out.id || weft_graph_value(graph, node->output)->named);
}

/* Marks needed nodes from last to first: a node is needed if it is a result or a needed node reads it. */
static void find_needed(weft_lowering *l) {
    const weft_graph *graph = l->graph;
    for (int32_t v = 0; v < graph->n_values; v++) l->last_reader[v] = -1;
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        const weft_node *node = &graph->nodes[i];
        if (!leaves_behind(l, node, i) && !l->needed[i]) continue;
        l->needed[i] = true;
        for (int32_t k = 0; k < node->n_inputs; k++) {
            const uint32_t id = node->inputs[k].id;
            if (l->last_reader[id] < 0) l->last_reader[id] = i;
            if (graph->values[id].node >= 0) l->needed[graph->values[id].node] = true;
        }
    }
}

/* True if value `input` of needed node `index` may share the storage of the node's output. */
static bool may_lie_under(const weft_lowering *l, weft_value input, weft_value output, int32_t index) {
    const weft_value_record *in = weft_graph_value(l->graph, input), *out = weft_graph_value(l->graph, output);
    return in->node >= 0 && l->storage_of[input.id] == 0 && !on_tape(l, in) && !in->named &&
           input.id != l->graph->carry_out.id && l->last_reader[input.id] == index &&
           weft_value_bytes(in) == weft_value_bytes(out);
}

static int32_t new_storage(weft_lowering *l, weft_value value) {
    const weft_value_record *record = weft_graph_value(l->graph, value);
    const int64_t bytes = weft_value_bytes(record);
    if (on_tape(l, record)) return weft_lower_storage(l, WEFT_HOME_TAPE, 0, record->tape, bytes);
    if (value.id == l->graph->carry_out.id && l->kind != WEFT_PASS_RECOMPUTE)
        return weft_lower_storage(l, WEFT_HOME_CARRY_OUT, 0, 0, bytes);
    return weft_lower_work(l, bytes);
}

/* Assigns storages from last to first, so that an output's storage is known before its inputs'. The latest input shares
 * the output's storage: in x + f(x) that is f(x). */
static void assign_storages(weft_lowering *l) {
    const weft_graph *graph = l->graph;
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        const weft_node *node = &graph->nodes[i];
        if (!l->needed[i]) continue;
        if (node->output.id != 0 && l->storage_of[node->output.id] == 0)
            l->storage_of[node->output.id] = new_storage(l, node->output);
        if (node->statistic.id != 0 && on_tape(l, weft_graph_value(graph, node->statistic)))
            l->storage_of[node->statistic.id] = new_storage(l, node->statistic);
        for (int32_t k = node->n_inputs - 1; k >= 0; k--) {
            if ((node->op->in_place >> k & 1u) == 0 || !may_lie_under(l, node->inputs[k], node->output, i)) continue;
            l->storage_of[node->inputs[k].id] = l->storage_of[node->output.id];
            break;
        }
    }
}

/* Copies a carry that is stored elsewhere (on the tape, or as the incoming carry) to the slot of the outgoing carry. */
static void copy_carry_out(weft_lowering *l) {
    const weft_value carry = l->graph->carry_out;
    int32_t from = 0;
    if (carry.id == 0 || l->kind == WEFT_PASS_RECOMPUTE) return;
    from = weft_lower_value(l, carry);
    if (l->status != WEFT_OK || l->pass->storages[from].home == WEFT_HOME_CARRY_OUT) return;
    weft_lower_copy(l, weft_lower_storage(l, WEFT_HOME_CARRY_OUT, 0, 0, l->pass->storages[from].bytes), from);
}

/* Returns the value's storage and protects it from reuse by later calls. */
static int32_t keep_value(weft_lowering *l, weft_value value) {
    const int32_t storage = weft_lower_value(l, value);
    if (l->status == WEFT_OK && l->pass->storages[storage].last >= 0)
        l->pass->storages[storage].last = l->pass->n_calls - 1;
    return storage;
}

/* Protects the outputs of evaluation. */
static void keep_outputs(weft_lowering *l) {
    weft_graph *graph = l->graph;
    for (int32_t i = 0; i < graph->n_outputs && l->status == WEFT_OK; i++)
        graph->outputs[i].storage = keep_value(l, graph->outputs[i].value);
    if (graph->spec.mode == WEFT_MODE_EVALUATE && graph->head >= 0 && l->status == WEFT_OK)
        graph->hidden = keep_value(l, graph->nodes[graph->head].inputs[0]);
}

weft_status weft_lower_forward(weft_graph *graph, int32_t kind, weft_error *err) {
    weft_lowering l;
    weft_status status = weft_lowering_init(&l, graph, kind, err);
    if (status != WEFT_OK) return status;
    find_needed(&l);
    assign_storages(&l);
    for (int32_t i = 0; i < graph->n_nodes && l.status == WEFT_OK; i++) {
        l.node = i;
        if (l.needed[i]) graph->nodes[i].op->forward(&l, &graph->nodes[i]);
    }
    l.node = -1;
    copy_carry_out(&l);
    keep_outputs(&l);
    status = l.status;
    weft_lowering_free(&l);
    if (status == WEFT_OK) status = weft_pass_place(l.pass, err);
    return status;
}
