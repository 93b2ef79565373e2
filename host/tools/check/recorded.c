/* host/tools/check/recorded.c: see recorded.h. */
#include "tools/check/recorded.h"

#include "base/alloc.h"
#include "graph/record.h"

#include <stdlib.h>

enum { ROWS = 2, LENGTH = 8, CACHE = 16 };

static const int32_t modes[] = {WEFT_MODE_TRAIN, WEFT_MODE_EVALUATE, WEFT_MODE_GENERATE};

enum { MODES = sizeof modes / sizeof modes[0] };

weft_status weft_recorded_make(weft_recorded *out, const weft_declared *declared, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->n = MODES * declared->n_segments;
    out->graphs = weft_alloc(out->n, sizeof(weft_graph *));
    for (int32_t i = 0; i < out->n && status == WEFT_OK; i++) {
        const int32_t mode = modes[i / declared->n_segments];
        const weft_graph_spec spec = {.mode = mode,
                                      .dtype = WEFT_F32,
                                      .rows = ROWS,
                                      .length = LENGTH,
                                      .cache_rows = mode == WEFT_MODE_GENERATE ? CACHE : 0,
                                      .carry_gradient = mode == WEFT_MODE_TRAIN};
        status = weft_graph_record(&out->graphs[i], declared, i % declared->n_segments, &spec, err);
        if (status == WEFT_E_UNSUPPORTED) status = WEFT_OK;
    }
    return status;
}

void weft_recorded_free(weft_recorded *recorded) {
    for (int32_t i = 0; i < recorded->n; i++) weft_graph_destroy(recorded->graphs[i]);
    free(recorded->graphs);
    memset(recorded, 0, sizeof *recorded);
}

static void add_weight(weft_answer *to, const weft_weight *weight) {
    static const weft_weight none = {.parameter = -1};
    const weft_weight *w = weight == NULL ? &none : weight;
    WEFT_ANSWER_ADD(to, w->parameter);
    WEFT_ANSWER_ADD(to, w->out);
    WEFT_ANSWER_ADD(to, w->first);
}

static void add_node(weft_answer *to, const weft_node *node) {
    const int32_t table = node->table == NULL ? -1 : node->table->index;
    WEFT_ANSWER_ADD(to, node->op); /* a host object at the same address in every forked process */
    weft_answer_add_text(to, node->label);
    weft_answer_add(to, node->inputs, (size_t)node->n_inputs * sizeof node->inputs[0]);
    WEFT_ANSWER_ADD(to, node->output.id);
    WEFT_ANSWER_ADD(to, node->width);
    WEFT_ANSWER_ADD(to, node->places);
    add_weight(to, node->weight);
    for (int i = 0; i < WEFT_NODE_CONSTANTS; i++) add_weight(to, node->constants[i]);
    WEFT_ANSWER_ADD(to, table);
    weft_answer_add_text(to, node->custom == NULL ? NULL : node->custom->name);
    /* all bits of the arguments that the graph copied from the plugin */
    WEFT_ANSWER_ADD(to, node->rope);
    WEFT_ANSWER_ADD(to, node->attention);
    WEFT_ANSWER_ADD(to, node->head);
    WEFT_ANSWER_ADD(to, node->eps);
    WEFT_ANSWER_ADD(to, node->factor);
    WEFT_ANSWER_ADD(to, node->form);
    WEFT_ANSWER_ADD(to, node->site);
}

void weft_recorded_add(weft_answer *to, const weft_recorded *recorded) {
    for (int32_t g = 0; g < recorded->n; g++) {
        const weft_graph *graph = recorded->graphs[g];
        const int32_t n = graph == NULL ? -1 : graph->n_nodes;
        WEFT_ANSWER_ADD(to, n);
        for (int32_t i = 0; i < n; i++) add_node(to, &graph->nodes[i]);
        if (graph != NULL) WEFT_ANSWER_ADD(to, graph->carry_out.id);
    }
}

bool weft_recorded_same(const weft_recorded *a, const weft_recorded *b) {
    weft_answer one, two;
    weft_answer_begin(&one);
    weft_answer_begin(&two);
    weft_recorded_add(&one, a);
    weft_recorded_add(&two, b);
    return one.fingerprint == two.fingerprint;
}
