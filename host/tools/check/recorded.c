/* host/tools/check/recorded.c: see recorded.h. */
#include "tools/check/recorded.h"

#include "graph/record.h"

#include <stdlib.h>

enum { ROWS = 2, LENGTH = 8, CACHE = 16 };

static const int32_t modes[] = {WEFT_MODE_TRAIN, WEFT_MODE_EVALUATE, WEFT_MODE_GENERATE};

enum { MODES = sizeof modes / sizeof modes[0] };

weft_status weft_recorded_make(weft_recorded *out, const weft_declared *declared, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->n = MODES * declared->n_segments;
    out->graphs = calloc((size_t)out->n + 1, sizeof(weft_graph *));
    if (out->graphs == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for records");
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
    for (int32_t i = 0; i < recorded->n && recorded->graphs != NULL; i++) weft_graph_destroy(recorded->graphs[i]);
    free(recorded->graphs);
    memset(recorded, 0, sizeof *recorded);
}

/* ---- comparison ---- */

static bool same_weight(const weft_weight *a, const weft_weight *b) {
    if (a == NULL || b == NULL) return a == b;
    return a->parameter == b->parameter && a->out == b->out && a->first == b->first;
}

static bool same_values(const weft_value *a, const weft_value *b, int32_t n) {
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Compares all bits of the arguments that the graph copied from the plugin. */
static bool same_arguments(const weft_node *a, const weft_node *b) {
    return memcmp(&a->rope, &b->rope, sizeof a->rope) == 0 &&
           memcmp(&a->attention, &b->attention, sizeof a->attention) == 0 &&
           memcmp(&a->head, &b->head, sizeof a->head) == 0 && memcmp(&a->eps, &b->eps, sizeof a->eps) == 0 &&
           memcmp(&a->factor, &b->factor, sizeof a->factor) == 0 && a->form == b->form && a->site == b->site;
}

static bool same_node(const weft_node *a, const weft_node *b) {
    bool is_same = a->op == b->op && strcmp(a->label, b->label) == 0 && a->n_inputs == b->n_inputs &&
                   same_values(a->inputs, b->inputs, a->n_inputs) && a->output.id == b->output.id &&
                   a->width == b->width && a->places == b->places && same_weight(a->weight, b->weight);
    for (int i = 0; i < WEFT_NODE_CONSTANTS; i++) is_same = is_same && same_weight(a->constants[i], b->constants[i]);
    if (a->table != NULL || b->table != NULL)
        is_same = is_same && a->table != NULL && b->table != NULL && a->table->index == b->table->index;
    if (a->custom != NULL || b->custom != NULL)
        is_same = is_same && a->custom != NULL && b->custom != NULL && strcmp(a->custom->name, b->custom->name) == 0;
    return is_same && same_arguments(a, b);
}

static bool same_graph(const weft_graph *a, const weft_graph *b) {
    if (a == NULL || b == NULL) return a == b;
    if (a->n_nodes != b->n_nodes || a->carry_out.id != b->carry_out.id) return false;
    for (int32_t i = 0; i < a->n_nodes; i++)
        if (!same_node(&a->nodes[i], &b->nodes[i])) return false;
    return true;
}

bool weft_recorded_same(const weft_recorded *a, const weft_recorded *b) {
    if (a->n != b->n) return false;
    for (int32_t i = 0; i < a->n; i++)
        if (!same_graph(a->graphs[i], b->graphs[i])) return false;
    return true;
}

/* ---- fingerprint ---- */

static void add_weight(weft_answer *to, const weft_weight *weight) {
    static const weft_weight none = {.parameter = -1};
    const weft_weight *w = weight == NULL ? &none : weight;
    WEFT_ANSWER_ADD(to, w->parameter);
    WEFT_ANSWER_ADD(to, w->out);
    WEFT_ANSWER_ADD(to, w->first);
}

static void add_arguments(weft_answer *to, const weft_node *node) {
    WEFT_ANSWER_ADD(to, node->rope);
    WEFT_ANSWER_ADD(to, node->attention);
    WEFT_ANSWER_ADD(to, node->head);
    WEFT_ANSWER_ADD(to, node->eps);
    WEFT_ANSWER_ADD(to, node->factor);
    WEFT_ANSWER_ADD(to, node->form);
    WEFT_ANSWER_ADD(to, node->site);
}

static void add_node(weft_answer *to, const weft_node *node) {
    WEFT_ANSWER_ADD(to, node->op); /* a host object at the same address in every forked process */
    weft_answer_add_text(to, node->label);
    weft_answer_add(to, node->inputs, (size_t)node->n_inputs * sizeof node->inputs[0]);
    WEFT_ANSWER_ADD(to, node->output.id);
    WEFT_ANSWER_ADD(to, node->width);
    WEFT_ANSWER_ADD(to, node->places);
    add_weight(to, node->weight);
    for (int i = 0; i < WEFT_NODE_CONSTANTS; i++) add_weight(to, node->constants[i]);
    if (node->table != NULL) WEFT_ANSWER_ADD(to, node->table->index);
    if (node->custom != NULL) weft_answer_add_text(to, node->custom->name);
    add_arguments(to, node);
}

void weft_recorded_add(weft_answer *to, const weft_recorded *recorded) {
    for (int32_t g = 0; g < recorded->n; g++) {
        const weft_graph *graph = recorded->graphs[g];
        const int32_t n = graph == NULL ? -1 : graph->n_nodes;
        WEFT_ANSWER_ADD(to, n);
        for (int32_t i = 0; i < n; i++) add_node(to, &graph->nodes[i]);
    }
}
