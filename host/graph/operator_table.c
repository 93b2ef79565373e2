/* host/graph/operator_table.c: the functions that a model's forward calls: one per operator, and the micro-batch's
 * arrays. */
#include "graph/operators.h"

static void tell_graph(const weft_graph *graph, weft_graph_info *out) {
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
        "`loss` is not served by SDK 1.0: a model's loss is that of its lm_head; leave the call out");
}

const weft_ops weft_graph_ops = {.struct_size = (uint32_t)sizeof(weft_ops),
                                 .info = tell_graph,
                                 .width = value_width,
                                 .ids = micro_batch_ids,
                                 .positions = micro_batch_positions,
                                 .starts = micro_batch_starts,
                                 .embedding = weft_op_embedding,
                                 .linear = weft_op_linear,
                                 .rms_norm = weft_op_rms_norm,
                                 .layer_norm = weft_op_layer_norm,
                                 .rope = weft_op_rope,
                                 .attention = weft_op_attention,
                                 .activation = weft_op_activation,
                                 .gated = weft_op_gated,
                                 .swiglu = weft_op_swiglu,
                                 .scale = weft_op_scale,
                                 .add = weft_op_add,
                                 .lm_head = weft_op_lm_head,
                                 .loss = refuse_loss,
                                 .output = weft_record_output,
                                 .custom = weft_op_custom,
                                 .multiply = weft_op_multiply,
                                 .dropout = weft_op_dropout,
                                 .weight_norm = weft_op_weight_norm,
                                 .matrix = weft_op_matrix,
                                 .attention_with_prefix = weft_op_attention_with_prefix,
                                 .prefix_attention = weft_op_prefix_attention};
