/* host/graph/call_costs.c: see calls.h. */
#include "graph/calls.h"

#include "graph/operators.h"

static const char *pass_name(int32_t pass) {
    if (pass == WEFT_PASS_BACKWARD) return "backward";
    return pass == WEFT_PASS_RECOMPUTE ? "recompute" : "forward";
}

void weft_call_describe(weft_call_info *out, const weft_graph *graph, const weft_call *call) {
    const weft_node *node = call->node < 0 ? NULL : &graph->nodes[call->node];
    const weft_kernel *kernel = call->kernel;
    weft_call_info info = {.flops = call->flops, .bytes = call->bytes};
    info.operation = node == NULL || kernel->glue ? kernel->name : node->op->name;
    if (node != NULL && node->custom != NULL && !kernel->glue) info.operation = node->custom->name;
    info.part = kernel->part != NULL ? kernel->part : pass_name(call->pass);
    info.label = node == NULL ? "" : node->label;
    info.recompute = call->pass == WEFT_PASS_RECOMPUTE;
    if (kernel->products != NULL) info.n_products = kernel->products(&call->args, info.products);
    *out = info;
}
