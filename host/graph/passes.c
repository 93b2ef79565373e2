/* host/graph/passes.c: turns a record into executable passes and computes their sizes.
 *
 * The backward is written first: forward must keep the values that it reads. */
#include "graph/record.h"
#include "base/units.h"

/* ---- shared argument checks of operators ---- */

weft_status weft_infer_shape(const weft_graph *graph, const weft_node *node, int32_t i, int64_t width, int64_t places,
                             weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[i]);
    if (value->dtype != graph->dtype)
        return weft_error_set(err, WEFT_E_PLUGIN, "`%s` has dtype %s; %s is required", node->op->inputs[i],
                              weft_dtype_name(value->dtype), weft_dtype_name(graph->dtype));
    if (width != 0 && value->width != width)
        return weft_error_set(err, WEFT_E_PLUGIN, "`%s` has width %lld; %lld is required", node->op->inputs[i],
                              (long long)value->width, (long long)width);
    if (weft_value_places(value) != places)
        return weft_error_set(err, WEFT_E_PLUGIN, "`%s` has %lld positions; %lld are required", node->op->inputs[i],
                              (long long)weft_value_places(value), (long long)places);
    return WEFT_OK;
}

weft_status weft_infer_numbers(const weft_graph *graph, const weft_node *node, int32_t i, int64_t width,
                               weft_error *err) {
    return weft_infer_shape(graph, node, i, width, weft_node_places(graph, node), err);
}

weft_status weft_infer_places(const weft_graph *graph, const weft_node *node, int32_t i, weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[i]);
    if (value->dtype == WEFT_I32 && value->width == 1) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "`%s` has %lld %s per position; one int32 is required, as returned by ids(), positions() and "
                          "starts()",
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
    const weft_weight *weight = node->weight;
    const weft_parameter *p = status == WEFT_OK ? &graph->declared->parameters[weight->parameter] : NULL;
    if (p == NULL || (!weft_parameter_is_packed(p) && !weight->transposed && !weight->is_slice)) return status;
    return weft_error_set(err, WEFT_E_PLUGIN, "the weight is %s, which only `linear` supports%s",
                          weft_parameter_is_packed(p) ? weft_dtype_name(p->dtype)
                          : weight->transposed        ? "transposed"
                                                      : "a slice",
                          weft_parameter_is_packed(p) ? ". Fix: declare it with storage 0" : "");
}

weft_status weft_infer_vocabulary(const weft_graph *graph, const weft_node *node, weft_error *err) {
    const int64_t rows = node->weight->out, ids = graph->declared->info.vocab_size;
    if (rows == ids) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the matrix has %lld rows, and vocab_size in the model's info is %lld",
                          (long long)rows, (long long)ids);
}

weft_status weft_infer_gain(const weft_node *node, int64_t width, weft_error *err) {
    if (node->weight == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "the gain is NULL");
    if (node->weight->role != WEFT_WEIGHT_GAIN)
        return weft_error_set(err, WEFT_E_PLUGIN, "the weight is a matrix; a norm's gain is needed");
    if (width % node->weight->in != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "`%s` has width %lld, which is not a multiple of the gain's %lld elements",
                              node->op->inputs[0], (long long)width, (long long)node->weight->in);
    return WEFT_OK;
}

/* ---- forward passes ----
 *
 * One record yields three variants. A variant runs the nodes that its results require: the carry, the loss or logits,
 * and the tape. Then every value gets a storage: the tape if backward reads it, the slot of the outgoing
 * carry, else scratch. An operator that can work in place overwrites an input that no later node reads. */

static bool on_tape(const weft_lowering *l, const weft_value_record *value) {
    return value->kept && (l->kind == WEFT_PASS_FORWARD || l->kind == WEFT_PASS_RECOMPUTE);
}

/* True if the pass must compute the node as a result, with or without a reader inside the pass. */
static bool is_result(const weft_lowering *l, const weft_node *node, int32_t index) {
    const weft_graph *graph = l->graph;
    if (index == graph->head) return graph->spec.mode != WEFT_MODE_TRAIN;
    if (on_tape(l, weft_graph_value(graph, node->output)) || on_tape(l, weft_graph_value(graph, node->statistic)))
        return true;
    return l->kind != WEFT_PASS_RECOMPUTE && node->output.id == graph->carry_out.id;
}

/* Marks needed nodes from last to first: a node is needed if it is a result or a needed node reads it. */
static void find_needed(weft_lowering *l) {
    const weft_graph *graph = l->graph;
    for (int32_t v = 0; v < graph->n_values; v++) l->last_reader[v] = -1;
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        const weft_node *node = &graph->nodes[i];
        if (!is_result(l, node, i) && !l->needed[i]) continue;
        l->needed[i] = true;
        for (int32_t k = 0; k < node->n_inputs; k++) {
            const uint32_t id = node->inputs[k].id;
            if (l->last_reader[id] < 0) l->last_reader[id] = i;
            if (graph->values[id].node >= 0) l->needed[graph->values[id].node] = true;
        }
    }
}

/* True if value `input` of needed node `index` may share the storage of the node's output. */
static bool may_share(const weft_lowering *l, weft_value input, weft_value output, int32_t index) {
    const weft_value_record *in = weft_graph_value(l->graph, input), *out = weft_graph_value(l->graph, output);
    return in->node >= 0 && l->storage_of[input.id] == 0 && !on_tape(l, in) && input.id != l->graph->carry_out.id &&
           l->last_reader[input.id] == index && weft_value_bytes(in) == weft_value_bytes(out);
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
            if ((node->op->in_place >> k & 1u) == 0 || !may_share(l, node->inputs[k], node->output, i)) continue;
            l->storage_of[node->inputs[k].id] = l->storage_of[node->output.id];
            break;
        }
    }
}

/* Copies a carry that is stored elsewhere (on the tape, or as the incoming carry) to the slot of the outgoing carry. */
static void copy_carry_out(weft_lowering *l) {
    const weft_value carry = l->graph->carry_out;
    const int64_t bytes = weft_value_bytes(weft_graph_value(l->graph, carry));
    int32_t from = 0;
    if (carry.id == 0 || l->kind == WEFT_PASS_RECOMPUTE) return;
    from = weft_lower_value(l, carry);
    if (l->pass->storages[from].home == WEFT_HOME_CARRY_OUT) return;
    weft_lower_copy(l, weft_lower_storage(l, WEFT_HOME_CARRY_OUT, 0, 0, bytes), from, bytes);
}

static void lower_forward(weft_graph *graph, int32_t kind) {
    weft_lowering l = weft_lowering_begin(graph, kind);
    find_needed(&l);
    assign_storages(&l);
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        l.node = i;
        if (l.needed[i]) graph->nodes[i].op->forward(&l, &graph->nodes[i]);
    }
    l.node = -1;
    copy_carry_out(&l);
    if (graph->spec.mode == WEFT_MODE_EVALUATE && graph->head >= 0) { /* no later call reuses the hidden states */
        graph->hidden = weft_lower_value(&l, graph->nodes[graph->head].inputs[0]);
        l.pass->storages[graph->hidden].last = l.pass->n_calls - 1;
    }
    weft_lowering_end(&l);
}

/* ---- backward ----
 *
 * Nodes are visited from last to first. A node whose output has a gradient computes contributions to the gradients of
 * its inputs and weight. The order of all sums depends only on the record. */

/* True if training must run this segment's backward: for its own or earlier parameters, or for the loss. */
static bool has_backward(const weft_graph *graph) {
    bool needs = graph->head >= 0 || (graph->spec.carry_gradient && graph->carry_in.id != 0);
    for (int32_t i = 0; i < graph->n_reads; i++)
        needs |= graph->declared->parameters[graph->reads[i].parameter].trainable != 0;
    return graph->spec.mode == WEFT_MODE_TRAIN && needs;
}

/* Writes the gradient for the previous segment to its slot: a copy of a shared gradient, or zero if there is none. */
static void finish_carry_gradient(weft_lowering *l) {
    const weft_value carry = l->graph->carry_in;
    const weft_value_record *record = weft_graph_value(l->graph, carry);
    const int32_t gradient = weft_gradient_of(l, carry);
    int32_t slot = 0;
    if (carry.id == 0 || !record->wants_gradient) return;
    if (l->pass->storages[gradient].home == WEFT_HOME_D_CARRY_IN) return;
    slot = weft_lower_storage(l, WEFT_HOME_D_CARRY_IN, 0, 0, weft_value_bytes(record));
    if (gradient == 0) weft_lower_zero(l, slot);
    else weft_lower_copy(l, slot, gradient, weft_value_bytes(record));
}

/* Assigns tape offsets, one after the other, to all forward values that backward reads. */
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

static void lower_backward(weft_graph *graph) {
    weft_lowering l = weft_lowering_begin(graph, WEFT_PASS_BACKWARD);
    const weft_value_record *carry = weft_graph_value(graph, graph->carry_out);
    if (graph->carry_out.id != 0 && carry->wants_gradient) /* the gradient from the next segment */
        weft_gradient_share(&l, graph->carry_out,
                            weft_lower_storage(&l, WEFT_HOME_D_CARRY_OUT, 0, 0, weft_value_bytes(carry)));
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        const weft_node *node = &graph->nodes[i];
        l.node = i;
        if (i != graph->head && weft_gradient_of(&l, node->output) == 0) continue;
        node->op->backward(&l, node);
        weft_gradient_release(&l, node->output);
    }
    l.node = -1;
    finish_carry_gradient(&l);
    weft_weight_finish_gradients(&l);
    place_on_tape(graph, &l);
    graph->sizes.backward_reads_carry = graph->carry_in.id != 0 && l.storage_of[graph->carry_in.id] != 0;
    weft_lowering_end(&l);
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
    sizes->forward_flops = forward->flops;
    sizes->backward_flops = backward->flops;
}

void weft_graph_plan(weft_graph *graph) {
    graph->sizes.has_backward = has_backward(graph);
    if (graph->sizes.has_backward) lower_backward(graph);
    lower_forward(graph, WEFT_PASS_UNTAPED);
    if (graph->sizes.tape > 0) {
        lower_forward(graph, WEFT_PASS_FORWARD);
        lower_forward(graph, WEFT_PASS_RECOMPUTE);
    }
    fill_sizes(graph);
}

const weft_graph_sizes *weft_graph_size(const weft_graph *graph) {
    return &graph->sizes;
}
