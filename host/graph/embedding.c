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
    weft_lower_begin(l, &weft_kernel_embedding, &args, sizeof args);
    WEFT_BIND(l, weft_embedding, ids, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_embedding, table, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_embedding, y, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

static void embedding_backward(weft_lowering *l, const weft_node *node) {
    weft_embedding args = embedding_arguments(l, node);
    const int32_t dtable = weft_weight_gradient(l, node->weight, &args.accumulate);
    if (dtable == 0) return;
    weft_lower_begin(l, &weft_kernel_embedding_backward, &args, sizeof args);
    WEFT_BIND(l, weft_embedding, ids, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_embedding, dy, weft_gradient_of(l, node->output));
    WEFT_BIND(l, weft_embedding, dtable, dtable);
    weft_lower_end(l);
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

static void head_bind(weft_lowering *l, const weft_node *node) {
    const int64_t places = weft_graph_places(l->graph) * WEFT_PLACE_BYTES;
    WEFT_BIND(l, weft_head, x, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_head, w, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_head, bias, weft_weight_bias(l, node->weight));
    WEFT_BIND(l, weft_head, targets, weft_lower_storage(l, WEFT_HOME_TARGETS, 0, 0, places));
    WEFT_BIND(l, weft_head, weights, weft_lower_storage(l, WEFT_HOME_WEIGHTS, 0, 0, places));
    WEFT_BIND(l, weft_head, loss, weft_lower_storage(l, WEFT_HOME_LOSS, 0, 0, weft_dtype_bytes(WEFT_F64)));
}

static void lower_head_loss(weft_lowering *l, const weft_node *node) {
    const weft_head args = head_arguments(l, node);
    weft_lower_begin(l, &weft_kernel_head_loss, &args, sizeof args);
    head_bind(l, node);
    weft_lower_end(l);
}

/* Scales the logits. In training the loss kernel does this itself. */
static void scale_logits(weft_lowering *l, const weft_node *node, int32_t logits) {
    const weft_scale args = {.n = l->graph->spec.rows * node->weight->out,
                             .factor = node->head.scale != 0.0 ? node->head.scale : 1.0,
                             .cap = node->head.cap,
                             .dtype = WEFT_F32};
    if (node->head.scale == 0.0 && node->head.cap == 0.0) return;
    weft_lower_begin(l, &weft_kernel_scale, &args, sizeof args);
    WEFT_BIND(l, weft_scale, x, logits);
    WEFT_BIND(l, weft_scale, y, logits);
    weft_lower_end(l);
}

/* logits (B,V) = x at position T - 1 of each sequence, times W^T; fp32 for any type of x */
static void lower_last_logits(weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    const int64_t bytes = spec->rows * node->weight->out * weft_dtype_bytes(WEFT_F32);
    const int32_t logits = weft_lower_storage(l, WEFT_HOME_LOGITS, 0, 0, bytes);
    weft_weight_product(l, node->weight, logits, WEFT_F32, weft_lower_value(l, node->inputs[0]), spec->rows,
                        spec->length * node->weight->in, (spec->length - 1) * node->weight->in);
    scale_logits(l, node, logits);
}

static void head_forward(weft_lowering *l, const weft_node *node) {
    if (l->graph->spec.mode == WEFT_MODE_EVALUATE) lower_head_loss(l, node);
    if (l->graph->spec.mode == WEFT_MODE_GENERATE) lower_last_logits(l, node);
}

/* Returns the kernel for the required gradients, besides that of a bias. */
static const weft_kernel *head_gradient_kernel(int32_t dx, int32_t dw) {
    if (dx != 0 && dw != 0) return &weft_kernel_head_loss_grad;
    if (dx != 0) return &weft_kernel_head_loss_dx;
    return dw != 0 ? &weft_kernel_head_loss_dw : &weft_kernel_head_loss_dbias;
}

static void head_backward(weft_lowering *l, const weft_node *node) {
    weft_head args = head_arguments(l, node);
    const int32_t dw = weft_weight_gradient(l, node->weight, &args.accumulate_dw);
    const int32_t dbias = weft_weight_bias_gradient(l, node->weight, &args.accumulate_dbias);
    const int32_t dx = weft_gradient_begin(l, node->inputs[0]);
    if (dw == 0 && dbias == 0 && dx == 0) {
        lower_head_loss(l, node);
        return;
    }
    weft_lower_begin(l, head_gradient_kernel(dx, dw), &args, sizeof args);
    head_bind(l, node);
    WEFT_BIND(l, weft_head, dx, dx);
    WEFT_BIND(l, weft_head, dw, dw);
    WEFT_BIND(l, weft_head, dbias, dbias);
    if (l->graph->dtype == WEFT_F16)
        WEFT_BIND(l, weft_head, seed, weft_lower_storage(l, WEFT_HOME_SEED, 0, 0, weft_dtype_bytes(WEFT_F32)));
    weft_lower_end(l);
    weft_gradient_end(l, node->inputs[0], dx);
}

const weft_operator weft_operator_lm_head = {.name = "lm_head", .inputs = {"x"}, WEFT_OPERATOR(head)};
