/* host/graph/embedding.c: rows of a table, chosen by ids or by positions. ids: (B,T) int32, y: (B,T,D). */
#include "graph/record.h"

/* Checks that positions fit in the table. The data pipeline guarantees that ids are below vocab_size. */
static weft_status check_rows(const weft_graph *graph, const weft_node *node, weft_error *err) {
    const int64_t positions = weft_graph_positions(graph);
    const int32_t home = weft_graph_value(graph, node->inputs[0])->home;
    if (home == WEFT_HOME_IDS) return weft_infer_vocabulary(graph, node, err);
    if (home != WEFT_HOME_POSITIONS || positions <= node->weight->out) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the table has %lld rows, and the last position is %lld",
                          (long long)node->weight->out, (long long)positions - 1);
}

static weft_status embedding_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_dense(graph, node, err);
    if (status == WEFT_OK) status = weft_infer_places(graph, node, 0, err);
    if (status == WEFT_OK) status = check_rows(graph, node, err);
    if (status == WEFT_OK) node->width = node->weight->in;
    return status;
}

static weft_embedding embedding_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_embedding){.rows = weft_graph_places(l->graph),
                            .width = node->weight->in,
                            .vocab = node->weight->out,
                            .dtype = l->graph->dtype,
                            .dtype_table = l->graph->dtype,
                            .has_padding = node->weight->has_padding,
                            .padding = node->weight->padding};
}

static void embedding_forward(weft_lowering *l, const weft_node *node) {
    const weft_embedding args = embedding_arguments(l, node);
    WEFT_CALL(l, &weft_kernel_embedding, args, WEFT_AT(ids, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(table, weft_lower_parameter(l, node->weight->parameter)),
              WEFT_AT(y, weft_lower_value(l, node->output)));
}

static void embedding_backward(weft_lowering *l, const weft_node *node) {
    weft_embedding args = embedding_arguments(l, node);
    const int32_t dtable = weft_weight_gradient(l, node->weight, node->weight->parameter, &args.accumulate);
    if (dtable == 0) return;
    WEFT_CALL(l, &weft_kernel_embedding_backward, args, WEFT_AT(ids, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(dy, weft_gradient_of(l, node->output)), WEFT_AT(dtable, dtable));
}

const weft_operator weft_operator_embedding = {.name = "embedding", .inputs = {"ids"}, WEFT_OPERATOR(embedding)};

/* ---- the output layer of a language model. x: (B,T,D), W: (V,D) ----
 *
 * Training: forward only keeps x. Backward computes logits, loss and gradients together in chunks of rows, in fp16
 * times the loss scale. Evaluation: forward computes the loss. Generation: forward computes the logits of each
 * sequence's last position. */

static weft_status head_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_dense(graph, node, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, 0, node->weight->in, err);
    if (status == WEFT_OK) status = weft_infer_vocabulary(graph, node, err);
    if (status == WEFT_OK && !(node->head.cap >= 0.0 && node->head.scale - node->head.scale == 0.0))
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "logits scaled by %g and capped at %g; the scale is finite, and the cap not negative",
                                node->head.scale, node->head.cap);
    return status;
}

static weft_head head_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_head){.rows = weft_graph_places(l->graph),
                       .width = node->weight->in,
                       .vocab = node->weight->out,
                       .scale = node->head.scale,
                       .cap = node->head.cap,
                       .has_bias = node->weight->bias >= 0,
                       .dtype = l->graph->dtype};
}

/* Computes the loss, and the gradients with a storage. */
static void lower_head(weft_lowering *l, const weft_node *node, const weft_head *given, int32_t dx, int32_t dw,
                       int32_t dbias) {
    const weft_head args = *given;
    const int64_t places = weft_graph_places(l->graph) * WEFT_PLACE_BYTES;
    const bool scales = l->graph->dtype == WEFT_F16 && (dx != 0 || dw != 0 || dbias != 0);
    const weft_kernel *kernel = dx != 0 && dw != 0 ? &weft_kernel_head_loss_grad
                                : dx != 0          ? &weft_kernel_head_loss_dx
                                : dw != 0          ? &weft_kernel_head_loss_dw
                                : dbias != 0       ? &weft_kernel_head_loss_dbias
                                                   : &weft_kernel_head_loss;
    WEFT_CALL(l, kernel, args, WEFT_AT(x, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(w, weft_lower_parameter(l, node->weight->parameter)),
              WEFT_AT(bias, weft_lower_parameter(l, node->weight->bias)),
              WEFT_AT(targets, weft_lower_storage(l, WEFT_HOME_TARGETS, 0, 0, places)),
              WEFT_AT(weights, weft_lower_storage(l, WEFT_HOME_WEIGHTS, 0, 0, places)),
              WEFT_AT(loss, weft_lower_storage(l, WEFT_HOME_LOSS, 0, 0, weft_dtype_bytes(WEFT_F64))), WEFT_AT(dx, dx),
              WEFT_AT(dw, dw), WEFT_AT(dbias, dbias),
              WEFT_AT(seed, scales ? weft_lower_storage(l, WEFT_HOME_SEED, 0, 0, weft_dtype_bytes(WEFT_F32)) : 0));
}

/* logits (B,V) = x at position T - 1 of each sequence, times W^T, scaled; fp32 for any type of x. In training the loss
 * kernel scales them itself. */
static void lower_last_logits(weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    const weft_scale args = {.n = spec->rows * node->weight->out,
                             .factor = node->head.scale != 0.0 ? node->head.scale : 1.0,
                             .cap = node->head.cap,
                             .dtype = WEFT_F32};
    const int32_t logits = weft_lower_storage(l, WEFT_HOME_LOGITS, 0, 0, args.n * weft_dtype_bytes(WEFT_F32));
    weft_weight_product(l, node->weight, logits, WEFT_F32, weft_lower_value(l, node->inputs[0]), spec->rows,
                        spec->length * node->weight->in, (spec->length - 1) * node->weight->in);
    if (node->head.scale != 0.0 || node->head.cap != 0.0)
        WEFT_CALL(l, &weft_kernel_scale, args, WEFT_AT(x, logits), WEFT_AT(y, logits));
}

static void head_forward(weft_lowering *l, const weft_node *node) {
    const weft_head args = head_arguments(l, node);
    if (l->graph->spec.mode == WEFT_MODE_EVALUATE) lower_head(l, node, &args, 0, 0, 0);
    if (l->graph->spec.mode == WEFT_MODE_GENERATE) lower_last_logits(l, node);
}

static void head_backward(weft_lowering *l, const weft_node *node) {
    weft_head args = head_arguments(l, node);
    const int32_t dw = weft_weight_gradient(l, node->weight, node->weight->parameter, &args.accumulate_dw);
    const int32_t dbias = weft_weight_gradient(l, node->weight, node->weight->bias, &args.accumulate_dbias);
    const int32_t dx = weft_gradient_begin(l, node->inputs[0]);
    lower_head(l, node, &args, dx, dw, dbias);
    weft_gradient_end(l, node->inputs[0], dx);
}

const weft_operator weft_operator_lm_head = {.name = "lm_head", .inputs = {"x"}, WEFT_OPERATOR(head)};
