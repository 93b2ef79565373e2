/* host/graph/dropout.c: y = x / (1 - p) for kept elements, else 0. Both (B,T,D).
 *
 * The mask is a function of seed, sequence index in the stream, site and element (weft_dropout). So forward, recompute
 * and backward draw the same mask and store no mask. The site is the segment's number and the ordinal of the call in
 * it. */
#include "graph/gradient.h"
#include "graph/operators.h"

/* A site has 24 bits. */
enum { SEGMENT_DROPOUTS = 1 << 10, SEGMENTS = 1 << 14 };

static weft_status dropout_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status == WEFT_OK && (graph->n_dropouts >= SEGMENT_DROPOUTS || graph->segment >= SEGMENTS))
        status = weft_error_set(err, WEFT_E_UNSUPPORTED,
                                "a segment has at most %d dropouts, and they lie in the first %d", SEGMENT_DROPOUTS,
                                SEGMENTS);
    node->width = weft_graph_value(graph, node->inputs[0])->width;
    return status;
}

static void lower_dropout(weft_lowering *l, const weft_node *node, int32_t x, int32_t y, int32_t accumulate) {
    const weft_graph_spec *spec = &l->graph->spec;
    const weft_dropout args = {.struct_size = (uint32_t)sizeof args,
                               .batch = spec->rows,
                               .row = spec->length * node->width,
                               .seed = spec->seed,
                               .p = node->factor,
                               .site = node->site,
                               .accumulate = accumulate,
                               .dtype = l->graph->dtype};
    weft_lower_begin(l, &weft_kernel_dropout, &args, sizeof args);
    WEFT_BIND(l, weft_dropout, x, x);
    WEFT_BIND(l, weft_dropout, first, weft_lower_storage(l, WEFT_HOME_FIRST, 0, 0, weft_dtype_bytes(WEFT_I64)));
    WEFT_BIND(l, weft_dropout, y, y);
    weft_lower_end(l);
}

static void dropout_forward(weft_lowering *l, const weft_node *node) {
    lower_dropout(l, node, weft_lower_value(l, node->inputs[0]), weft_lower_value(l, node->output), 0);
}

static void dropout_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    int32_t accumulate = 0;
    const int32_t dx = weft_gradient_target_over(l, node->inputs[0], dy, &accumulate);
    if (dx != 0) lower_dropout(l, node, dy, dx, accumulate);
}

const weft_operator weft_operator_dropout = {.name = "dropout",
                                             .inputs = {"x"},
                                             .infer = dropout_infer,
                                             .forward = dropout_forward,
                                             .backward = dropout_backward,
                                             .in_place = 1u << 0};

/* Drops elements only in training, but checks p in every mode. */
weft_value weft_op_dropout(weft_graph *graph, weft_value x, double p) {
    weft_node node = {.op = &weft_operator_dropout, .inputs = {x}, .n_inputs = 1, .factor = p};
    weft_value y = {0};
    if (!(p >= 0.0 && p < 1.0)) return weft_record_fail(graph, &node, WEFT_E_PLUGIN, "p is %g; it lies in [0, 1)", p);
    if (p == 0.0 || graph->spec.mode != WEFT_MODE_TRAIN) return x;
    node.site = graph->segment * SEGMENT_DROPOUTS + graph->n_dropouts;
    y = weft_record_node(graph, &node);
    if (y.id != 0) graph->n_dropouts++;
    return y;
}
