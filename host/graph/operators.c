/* host/graph/operators.c: the functions that a model's forward calls: one per operator, and the micro-batch's arrays.
 * At a site that an adapter claims, the adapter's operators run in place of the model's (weft/adapter.h). */
#include "base/alloc.h"
#include "graph/record.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* Records a node with the inputs that the operator names. */
static weft_value record(weft_graph *graph, weft_node *node) {
    while (node->n_inputs < WEFT_INPUT_NAMES && node->op->inputs[node->n_inputs] != NULL) node->n_inputs++;
    return weft_record_node(graph, node);
}

/* Copies the model's arguments of a node into this host's struct; `from` NULL: all zero. `least` is the struct's size
 * in SDK 1.0. Fails the graph if the arguments are shorter, or set fields that this host does not know. */
static void take_arguments(weft_graph *graph, const weft_node *node, void *to, size_t size, const void *from,
                           uint32_t least) {
    uint32_t given = 0;
    memset(to, 0, size);
    if (from == NULL) return;
    memcpy(&given, from, sizeof given);
    if (given < least)
        (void)weft_record_fail(graph, node, WEFT_E_PLUGIN,
                               "the arguments' struct_size is %u; it is their sizeof, at least %u", (unsigned)given,
                               (unsigned)least);
    else if (!weft_struct_take(to, size, from))
        (void)weft_record_fail(
            graph, node, WEFT_E_UNSUPPORTED,
            "the arguments set fields beyond the %zu bytes that this host supports. Fix: build the model "
            "plugin with this host's headers, or use a newer host",
            size);
}
#define TAKE(graph, node, to, from, type) take_arguments(graph, node, &(to), sizeof(to), from, WEFT_SIZE_1_0(type))

/* ---- adapters ---- */

/* An adapter's call, during which all operators are unadapted and errors name the adapter. */
typedef struct adapting {
    const weft_adapter_plugin *plugin;
    weft_adapter *adapter;
    uint32_t site;
    weft_call_record before;
    uint64_t fp;
    bool had_failed;
} adapting;

/* claim: 1 + the site. */
static adapting begin(weft_graph *graph, int32_t claim, const char *slot) {
    const weft_joined_adapter *by = &graph->declared->adapters[graph->declared->sites[claim - 1].claimed - 1];
    graph->adapting = claim;
    return (adapting){by->plugin,        by->adapter,  (uint32_t)claim - 1, weft_plugin_enter(by->plugin, slot),
                      weft_process_fp(), graph->failed};
}

/* Checks that the adapter's result has the width of the operator's own result. */
static weft_value end(weft_graph *graph, const adapting *self, weft_value given, int64_t width) {
    const weft_value_record *value = given.id < (uint32_t)graph->n_values ? weft_graph_value(graph, given) : NULL;
    weft_error changed = WEFT_ERROR_INIT;
    /* Before leave, which would put it back and keep the failure for a later call. */
    const weft_status kept = weft_process_end_call(self->fp, "it was called", &changed);
    (void)weft_plugin_leave(self->before, WEFT_OK, NULL);
    if (kept != WEFT_OK) (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "%s", changed.text);
    else if (given.id == 0 || value == NULL)
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "it returns no value of this segment");
    else if (value->width != width || value->dtype != graph->dtype)
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN,
                               "it returns %lld %s per position; the model requires %lld %s", (long long)value->width,
                               weft_dtype_name(value->dtype), (long long)width, weft_dtype_name(graph->dtype));
    if (graph->failed && !self->had_failed) {
        (void)weft_error_prefix(&graph->failure, "at '%s': ", graph->declared->sites[self->site].view.path);
        (void)weft_plugin_blame(self->plugin, (weft_status)graph->failure.code, &graph->failure);
    }
    graph->adapting = 0;
    return graph->failed ? (weft_value){0} : given;
}

/* True if the caller is the model: operators that an adapter records are not adapted. */
static bool is_model(const weft_graph *graph) {
    return graph->adapting == 0 && graph->open;
}

/* True if an adapter has claimed the weight and the caller is the model. */
static bool adapts(const weft_graph *graph, const weft_weight *weight) {
    return weight != NULL && weight->claim != 0 && is_model(graph);
}

/* Returns 1 + the claimed site of this kind and ordinal, in this segment or (-1) in any; else 0. */
static int32_t claim_of(const weft_graph *graph, int32_t kind, int32_t segment, int32_t ordinal) {
    for (int32_t i = 0; i < graph->declared->n_sites; i++) {
        const weft_declared_site *site = &graph->declared->sites[i];
        if (site->claimed && site->view.kind == kind &&
            (segment < 0 || (site->segment == segment && site->ordinal == ordinal)))
            return i + 1;
    }
    return 0;
}

/* ---- the micro-batch ---- */

static void graph_info(const weft_graph *graph, weft_graph_info *out) {
    out->mode = graph->spec.mode;
    out->rows = graph->spec.rows;
    out->length = graph->spec.length;
    out->dtype = graph->dtype;
}

/* Returns 0 for an invalid value. */
static int64_t value_width(const weft_graph *graph, weft_value value) {
    return value.id < (uint32_t)graph->n_values ? weft_graph_value(graph, value)->width : 0;
}

static weft_value micro_batch_part(weft_graph *graph, weft_value *part, int32_t home) {
    if (part->id == 0) *part = weft_record_outside(graph, home, WEFT_I32, 1);
    return *part;
}

static weft_value micro_batch_ids(weft_graph *graph) {
    return micro_batch_part(graph, &graph->ids, WEFT_HOME_IDS);
}

static weft_value micro_batch_positions(weft_graph *graph) {
    return micro_batch_part(graph, &graph->positions, WEFT_HOME_POSITIONS);
}

static weft_value micro_batch_starts(weft_graph *graph) {
    return micro_batch_part(graph, &graph->starts, WEFT_HOME_STARTS);
}

/* Reports an error to a model that calls it: no kernel of device/1 sums a value into the fp64 loss. */
static void refuse_loss(weft_graph *graph, weft_value value, int32_t kind) {
    (void)value;
    (void)kind;
    (void)weft_record_fail(
        graph, NULL, WEFT_E_UNSUPPORTED,
        "`loss` is not supported by SDK 1.0: the loss of a model is that of its lm_head; remove the call");
}

/* ---- operators ---- */

static weft_value op_embedding(weft_graph *graph, weft_value ids, weft_weight *table) {
    weft_node node = {.op = &weft_operator_embedding, .inputs = {ids}, .weight = table};
    if (!adapts(graph, table)) return record(graph, &node);
    const adapting self = begin(graph, table->claim, "embedding");
    const weft_value y = self.plugin->embedding(self.adapter, self.site, graph, &weft_graph_ops, ids, table);
    return end(graph, &self, y, table->in);
}

static weft_value op_linear(weft_graph *graph, weft_value x, weft_weight *weight) {
    weft_node node = {.op = &weft_operator_linear, .inputs = {x}, .weight = weight};
    if (!adapts(graph, weight)) return record(graph, &node);
    const adapting self = begin(graph, weight->claim, "linear");
    const weft_value y = self.plugin->linear(self.adapter, self.site, graph, &weft_graph_ops, x, weight);
    return end(graph, &self, y, weight->out);
}

static weft_value op_rms_norm(weft_graph *graph, weft_value x, weft_weight *gain, double eps) {
    return record(graph, &(weft_node){.op = &weft_operator_rms_norm, .inputs = {x}, .weight = gain, .eps = eps});
}

static weft_value op_layer_norm(weft_graph *graph, weft_value x, weft_weight *weight, double eps) {
    return record(graph, &(weft_node){.op = &weft_operator_layer_norm, .inputs = {x}, .weight = weight, .eps = eps});
}

static weft_value op_rope(weft_graph *graph, weft_value x, weft_value positions, weft_table *table,
                          const weft_rope_args *args) {
    weft_node node = {.op = &weft_operator_rope, .inputs = {x, positions}, .table = table};
    TAKE(graph, &node, node.rope, args, weft_rope_args);
    return record(graph, &node);
}

/* Records the offset of this call's keys and values in the state of generation. */
static weft_value record_attention(weft_graph *graph, weft_node *node, const weft_attention_args *args) {
    weft_value output;
    node->state = graph->state_bytes;
    TAKE(graph, node, node->attention, args, weft_attention_args);
    output = record(graph, node);
    if (graph->spec.mode == WEFT_MODE_GENERATE && !graph->failed)
        graph->state_bytes += 2 * weft_attention_state_bytes(graph, node);
    return output;
}

static weft_value op_attention(weft_graph *graph, weft_value q, weft_value k, weft_value v, weft_value starts,
                               const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_attention, .inputs = {q, k, v, starts}};
    const int32_t claim = is_model(graph) ? claim_of(graph, WEFT_SITE_ATTENTION, graph->segment, graph->n_attentions++)
                                          : 0;
    if (claim == 0) return record_attention(graph, &node, args);
    const weft_site *site = &graph->declared->sites[claim - 1].view;
    const adapting self = begin(graph, claim, "attention");
    const weft_value o = self.plugin->attention(self.adapter, self.site, graph, &weft_graph_ops, q, k, v, starts, args);
    return end(graph, &self, o, site->heads * site->head_dim);
}

/* Returns the table with which rope rotated q, or NULL without rope. The prefix's positions count in this table, and a
 * table that depends on the sequence length is computed for prefix and sequence together. */
static const weft_table *table_of(const weft_graph *graph, weft_value q) {
    const int32_t node = q.id < (uint32_t)graph->n_values ? weft_graph_value(graph, q)->node : -1;
    return node >= 0 && graph->nodes[node].op == &weft_operator_rope ? graph->nodes[node].table : NULL;
}

static weft_value op_attention_with_prefix(weft_graph *graph, weft_value q, weft_value k, weft_value v,
                                           weft_value starts, weft_value prefix_k, weft_value prefix_v,
                                           const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_attention_with_prefix,
                      .inputs = {q, k, v, starts, prefix_k, prefix_v},
                      .table = table_of(graph, q)};
    const weft_value output = record_attention(graph, &node, args);
    if (output.id != 0 && node.table != NULL)
        graph->table_rows = weft_larger(graph->table_rows, weft_value_places(weft_graph_value(graph, prefix_k)) +
                                                               weft_graph_positions(graph));
    return output;
}

static weft_value op_prefix_attention(weft_graph *graph, weft_value q, weft_value prefix_k, weft_value prefix_v,
                                      const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_prefix_attention, .inputs = {q, prefix_k, prefix_v}};
    TAKE(graph, &node, node.attention, args, weft_attention_args);
    return record(graph, &node);
}

static weft_value op_activation(weft_graph *graph, weft_value x, int32_t form) {
    return record(graph, &(weft_node){.op = &weft_operator_activation, .inputs = {x}, .form = form});
}

static weft_value op_gated(weft_graph *graph, weft_value gate, weft_value up, int32_t form) {
    return record(graph, &(weft_node){.op = form == WEFT_SILU ? &weft_operator_swiglu : &weft_operator_geglu,
                                      .inputs = {gate, up},
                                      .form = form});
}

static weft_value op_swiglu(weft_graph *graph, weft_value gate, weft_value up) {
    return op_gated(graph, gate, up, WEFT_SILU);
}

static weft_value op_scale(weft_graph *graph, weft_value x, double factor) {
    return record(graph, &(weft_node){.op = &weft_operator_scale, .inputs = {x}, .factor = factor});
}

static weft_value op_add(weft_graph *graph, weft_value a, weft_value b) {
    return record(graph, &(weft_node){.op = &weft_operator_add, .inputs = {a, b}});
}

static weft_value op_multiply(weft_graph *graph, weft_value x, weft_weight *factors) {
    return record(graph, &(weft_node){.op = &weft_operator_multiply, .inputs = {x}, .weight = factors});
}

static weft_value op_weight_norm(weft_graph *graph, weft_value x, const weft_weight_norm_args *args) {
    weft_node node = {.op = &weft_operator_weight_norm, .inputs = {x}};
    weft_weight_norm_args own;
    TAKE(graph, &node, own, args, weft_weight_norm_args);
    node.weight = own.magnitude;
    node.constants[WEFT_CONSTANT_MATRIX] = own.weight;
    node.constants[WEFT_CONSTANT_DOWN] = own.down;
    node.constants[WEFT_CONSTANT_UP] = own.up;
    node.factor = own.factor;
    return record(graph, &node);
}

/* A site has 24 bits. */
enum { SEGMENT_DROPOUTS = 1 << 10, SEGMENTS = 1 << 14 };

/* Drops elements only in training, but checks p in every mode. Site: the segment and the ordinal of the call in it. */
static weft_value op_dropout(weft_graph *graph, weft_value x, double p) {
    weft_node node = {.op = &weft_operator_dropout, .inputs = {x}, .factor = p};
    if (!(p >= 0.0 && p < 1.0))
        return weft_record_fail(graph, &node, WEFT_E_PLUGIN, "p is %g; it must be in [0, 1)", p);
    if (p == 0.0 || graph->spec.mode != WEFT_MODE_TRAIN) return x;
    if (graph->n_dropouts >= SEGMENT_DROPOUTS || graph->segment >= SEGMENTS)
        return weft_record_fail(graph, &node, WEFT_E_UNSUPPORTED,
                                "a segment has at most %d dropouts, and they are in the first %d segments",
                                SEGMENT_DROPOUTS, SEGMENTS);
    node.site = graph->segment * SEGMENT_DROPOUTS + graph->n_dropouts;
    x = record(graph, &node);
    if (x.id != 0) graph->n_dropouts++;
    return x;
}

static weft_value op_matrix(weft_graph *graph, weft_weight *weight) {
    return record(graph, &(weft_node){.op = &weft_operator_matrix, .weight = weight});
}

static void op_lm_head(weft_graph *graph, weft_value x, weft_weight *weight, const weft_head_args *args) {
    weft_node node = {.op = &weft_operator_lm_head, .inputs = {x}, .weight = weight};
    const int32_t claim = is_model(graph) ? claim_of(graph, WEFT_SITE_HEAD, -1, 0) : 0;
    if (claim != 0 && !graph->failed && x.id != 0 && x.id < (uint32_t)graph->n_values) {
        const int64_t width = weft_graph_value(graph, x)->width;
        const adapting self = begin(graph, claim, "head");
        node.inputs[0] = self.plugin->head(self.adapter, self.site, graph, &weft_graph_ops, x);
        node.inputs[0] = end(graph, &self, node.inputs[0], width);
    }
    TAKE(graph, &node, node.head, args, weft_head_args);
    (void)record(graph, &node);
    if (!graph->failed) graph->head = graph->n_nodes - 1;
}

/* Checks the call. This host does not read named values. */
static void op_output(weft_graph *graph, weft_value value, const char *name) {
    if (graph->spec.mode != WEFT_MODE_EVALUATE) return;
    if (name == NULL || value.id == 0 || value.id >= (uint32_t)graph->n_values)
        (void)weft_record_fail(graph, NULL, WEFT_E_PLUGIN, "output %s: not a value of this segment",
                               name == NULL ? "without a name" : name);
}

/* Checks the sizes that the node itself must store, which cannot wait for infer. */
static weft_status check_custom(const weft_custom_op *op, int32_t n_inputs, int64_t width, weft_error *err) {
    if (op == NULL || !WEFT_WHOLE(op, weft_custom_op) || op->name == NULL || op->forward == NULL ||
        op->backward == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "a custom operator needs a name, a forward and a backward");
    if (n_inputs < 1 || n_inputs > WEFT_NODE_INPUTS)
        return weft_error_set(err, WEFT_E_PLUGIN, "custom %s: %d inputs; 1 to %d are possible", op->name, n_inputs,
                              WEFT_NODE_INPUTS);
    if (width < 1)
        return weft_error_set(err, WEFT_E_PLUGIN, "custom %s: the result's width is %lld. Allowed: 1 or more", op->name,
                              (long long)width);
    return WEFT_OK;
}

static weft_value op_custom(weft_graph *graph, const weft_custom_op *op, const weft_value *inputs, int32_t n_inputs,
                            int64_t width, const void *args, size_t n) {
    weft_error err = WEFT_ERROR_INIT;
    weft_node node = {.op = &weft_operator_custom, .n_inputs = n_inputs, .custom = op, .width = width};
    weft_status status = check_custom(op, n_inputs, width, &err);
    if (status == WEFT_OK && n > 0) {
        node.custom_args = malloc(n);
        if (node.custom_args == NULL) status = weft_error_set(&err, WEFT_E_MEMORY, "no memory for %zu bytes", n);
        else memcpy(node.custom_args, args, n);
    }
    if (status != WEFT_OK) return weft_record_fail(graph, NULL, status, "%s", err.text);
    for (int32_t i = 0; i < n_inputs; i++) node.inputs[i] = inputs[i];
    (void)snprintf(node.label, sizeof node.label, "%s", op->name);
    return record(graph, &node);
}

const weft_ops weft_graph_ops = {.struct_size = (uint32_t)sizeof(weft_ops),
                                 .info = graph_info,
                                 .width = value_width,
                                 .ids = micro_batch_ids,
                                 .positions = micro_batch_positions,
                                 .starts = micro_batch_starts,
                                 .embedding = op_embedding,
                                 .linear = op_linear,
                                 .rms_norm = op_rms_norm,
                                 .layer_norm = op_layer_norm,
                                 .rope = op_rope,
                                 .attention = op_attention,
                                 .activation = op_activation,
                                 .gated = op_gated,
                                 .swiglu = op_swiglu,
                                 .scale = op_scale,
                                 .add = op_add,
                                 .lm_head = op_lm_head,
                                 .loss = refuse_loss,
                                 .output = op_output,
                                 .custom = op_custom,
                                 .multiply = op_multiply,
                                 .dropout = op_dropout,
                                 .weight_norm = op_weight_norm,
                                 .matrix = op_matrix,
                                 .attention_with_prefix = op_attention_with_prefix,
                                 .prefix_attention = op_prefix_attention};
