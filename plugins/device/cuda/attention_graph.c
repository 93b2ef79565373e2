/* attention_graph.c: see attention_graph.h.
 *
 * Builds the graph that cuDNN recognizes as attention:
 *
 *     s = scale q k^T, or with a cap cap tanh(scale / cap q k^T)
 *     s = -inf if the key is after the query, before its window, or before the start of its document
 *     m = max(s);  e = exp(s - m);  z = sum(e);  lse = m + log(z);  o = (e / z) v
 *
 * The mask is computed in the graph by operations on indices. Documents are passed in `starts`, in device memory, as in
 * the other kernels. Probabilities are rounded to bf16 before the multiplication with v. */
#include "attention_graph.h"

#ifdef CUDA_HAS_CUDNN

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

/* Tensor ids of a run's operands. */
enum { Q = 1, K, V, O, LSE, SCALE, NOTHING, STARTS, WINDOW, CAP, N_OPERANDS = CAP };
static bool is_by_value(int64_t name) {
    return name == SCALE || name == NOTHING || name == WINDOW || name == CAP;
}

/* A graph under construction: after a failed call the others do nothing. */
typedef struct graph {
    const cudnn_calls *calls;
    attention_plan *plan;
    cudnnStatus_t status;
    const char *call; /* the failed call */
    descriptor operations[32];
    int64_t n_operations, next_name;
} graph;

static void judge(graph *g, const char *call, cudnnStatus_t status) {
    g->status = status;
    g->call = call;
}
static bool is_fine(const graph *g) {
    return g->status == CUDNN_STATUS_SUCCESS;
}
/* cuDNN groups its status codes in thousands. */
static bool is_refused(const graph *g) {
    return g->status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

static descriptor make(graph *g, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (is_fine(g) && g->plan->n == ATTENTION_PLAN_MOST) judge(g, "a plan's graph", CUDNN_STATUS_INTERNAL_ERROR);
    if (!is_fine(g)) return NULL;
    judge(g, "cudnnBackendCreateDescriptor", g->calls->cudnnBackendCreateDescriptor(type, &d));
    if (d != NULL) g->plan->all[g->plan->n++] = d;
    return d;
}
static void set(graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                const void *values) {
    if (is_fine(g)) judge(g, "cudnnBackendSetAttribute", g->calls->cudnnBackendSetAttribute(d, name, type, n, values));
}
/* Returns the number of attributes; 0 after a failed call. */
static int64_t get(graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t most, void *values) {
    int64_t n = 0;
    if (is_fine(g))
        judge(g, "cudnnBackendGetAttribute", g->calls->cudnnBackendGetAttribute(d, name, type, most, &n, values));
    return !is_fine(g) ? 0 : n < most ? n : most;
}
static void set_one(graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor value) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void finish(graph *g, descriptor d) {
    if (is_fine(g)) judge(g, "cudnnBackendFinalize", g->calls->cudnnBackendFinalize(d));
}

/* ---- tensors ---- */

typedef struct sizes {
    int64_t of[4], apart[4];
} sizes;
/* (B, n, rows, columns), contiguous. */
static sizes packed(int64_t batch, int64_t n, int64_t rows, int64_t columns) {
    const sizes s = {{batch, n, rows, columns}, {n * rows * columns, rows * columns, columns, 1}};
    return s;
}
/* (B, heads, T, d), stored as (B, T, heads, d). */
static sizes of_heads(const attention_shape *shape, int64_t heads) {
    const int64_t d = shape->head_dim, t = shape->length;
    const sizes s = {{shape->batch, heads, t, d}, {t * heads * d, d, heads * d, 1}};
    return s;
}
static sizes transposed(sizes s) {
    const sizes t = {{s.of[0], s.of[1], s.of[3], s.of[2]}, {s.apart[0], s.apart[1], s.apart[3], s.apart[2]}};
    return t;
}

/* name 0: virtual, not in memory. */
static descriptor tensor(graph *g, int64_t name, sizes s, cudnnDataType_t type) {
    const descriptor d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool is_virtual = name == 0, by_value = is_by_value(name);
    const int64_t id = is_virtual ? g->next_name++ : name, align = type == CUDNN_DATA_BFLOAT16 ? 16 : 4;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s.of);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, s.apart);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(g, d);
    return d;
}

/* ---- operations ---- */

static const cudnnDataType_t computes_in = CUDNN_DATA_FLOAT;

static void add_operation(graph *g, descriptor operation) {
    finish(g, operation);
    g->operations[g->n_operations++] = operation;
}
static void product(graph *g, descriptor a, descriptor b, descriptor c) {
    const descriptor how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const descriptor d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computes_in);
    finish(g, how);
    set_one(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_one(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_one(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_one(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_operation(g, d);
}
/* y = mode(x, b) or mode(x), or x or b selected by `where`; axis: of an index, else -1. */
static void each(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor where, descriptor y,
                 int64_t axis) {
    const descriptor how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const descriptor d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &computes_in);
    if (axis >= 0) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, how);
    set_one(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_one(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL) set_one(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (where != NULL) set_one(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    set_one(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, d);
}
static void over_keys(graph *g, cudnnReduceTensorOp_t mode, descriptor x, descriptor y) {
    const descriptor how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const descriptor d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computes_in);
    finish(g, how);
    set_one(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_one(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_one(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_operation(g, d);
}

/* Returns scores: scaled, and soft-capped with a cap. With a cap, SCALE holds scale / cap. */
static descriptor scores(graph *g, const attention_shape *shape, sizes s) {
    const sizes one = packed(1, 1, 1, 1);
    const descriptor q = tensor(g, Q, of_heads(shape, shape->heads), CUDNN_DATA_BFLOAT16);
    const descriptor k = tensor(g, K, transposed(of_heads(shape, shape->kv_heads)), CUDNN_DATA_BFLOAT16);
    const descriptor raw = tensor(g, 0, s, CUDNN_DATA_FLOAT), scaled = tensor(g, 0, s, CUDNN_DATA_FLOAT);
    descriptor bent = NULL, capped = NULL;
    product(g, q, k, raw);
    each(g, CUDNN_POINTWISE_MUL, raw, tensor(g, SCALE, one, CUDNN_DATA_FLOAT), NULL, scaled, -1);
    if (!shape->has_cap) return scaled;
    bent = tensor(g, 0, s, CUDNN_DATA_FLOAT), capped = tensor(g, 0, s, CUDNN_DATA_FLOAT);
    each(g, CUDNN_POINTWISE_TANH_FWD, scaled, NULL, NULL, bent, -1);
    each(g, CUDNN_POINTWISE_MUL, bent, tensor(g, CAP, one, CUDNN_DATA_FLOAT), NULL, capped, -1);
    return capped;
}

/* Returns `from` where `compare`(a, b) is true, -inf elsewhere. */
static descriptor keep_where(graph *g, sizes s, descriptor from, descriptor nothing, cudnnPointwiseMode_t compare,
                             descriptor a, descriptor b) {
    const descriptor holds = tensor(g, 0, s, CUDNN_DATA_BOOLEAN), kept = tensor(g, 0, s, CUDNN_DATA_FLOAT);
    each(g, compare, a, b, NULL, holds, -1);
    each(g, CUDNN_POINTWISE_BINARY_SELECT, from, nothing, holds, kept, -1);
    return kept;
}

/* Returns scores with -inf at keys that a position does not see. */
static descriptor masked_scores(graph *g, const attention_shape *shape) {
    const sizes s = packed(shape->batch, shape->heads, shape->length, shape->length), one = packed(1, 1, 1, 1);
    const descriptor all = scores(g, shape, s);
    const descriptor starts = tensor(g, STARTS, packed(shape->batch, 1, shape->length, 1), CUDNN_DATA_INT32);
    const descriptor nothing = tensor(g, NOTHING, one, CUDNN_DATA_FLOAT);
    const descriptor query = tensor(g, 0, s, CUDNN_DATA_INT32), key = tensor(g, 0, s, CUDNN_DATA_INT32);
    descriptor seen = NULL, reach = NULL;
    each(g, CUDNN_POINTWISE_GEN_INDEX, all, NULL, NULL, query, 2);
    each(g, CUDNN_POINTWISE_GEN_INDEX, all, NULL, NULL, key, 3);
    seen = keep_where(g, s, all, nothing, CUDNN_POINTWISE_CMP_GE, query, key);
    if (shape->has_window) {
        reach = tensor(g, 0, s, CUDNN_DATA_INT32);
        each(g, CUDNN_POINTWISE_ADD, key, tensor(g, WINDOW, one, CUDNN_DATA_INT32), NULL, reach, -1);
        seen = keep_where(g, s, seen, nothing, CUDNN_POINTWISE_CMP_GT, reach, query);
    }
    return keep_where(g, s, seen, nothing, CUDNN_POINTWISE_CMP_GE, key, starts);
}

static void attend(graph *g, const attention_shape *shape) {
    const sizes s = packed(shape->batch, shape->heads, shape->length, shape->length);
    const sizes rows = packed(shape->batch, shape->heads, shape->length, 1);
    const descriptor seen = masked_scores(g, shape);
    const descriptor v = tensor(g, V, of_heads(shape, shape->kv_heads), CUDNN_DATA_BFLOAT16);
    const descriptor o = tensor(g, O, of_heads(shape, shape->heads), CUDNN_DATA_BFLOAT16);
    const descriptor lse = tensor(g, LSE, rows, CUDNN_DATA_FLOAT);
    const descriptor most = tensor(g, 0, rows, CUDNN_DATA_FLOAT), below = tensor(g, 0, s, CUDNN_DATA_FLOAT);
    const descriptor power = tensor(g, 0, s, CUDNN_DATA_FLOAT), sum = tensor(g, 0, rows, CUDNN_DATA_FLOAT);
    const descriptor log_sum = tensor(g, 0, rows, CUDNN_DATA_FLOAT), p = tensor(g, 0, s, CUDNN_DATA_BFLOAT16);
    over_keys(g, CUDNN_REDUCE_TENSOR_MAX, seen, most);
    each(g, CUDNN_POINTWISE_SUB, seen, most, NULL, below, -1);
    each(g, CUDNN_POINTWISE_EXP, below, NULL, NULL, power, -1);
    over_keys(g, CUDNN_REDUCE_TENSOR_ADD, power, sum);
    each(g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, log_sum, -1);
    each(g, CUDNN_POINTWISE_ADD, most, log_sum, NULL, lse, -1);
    each(g, CUDNN_POINTWISE_DIV, power, sum, NULL, p, -1);
    product(g, p, v, o);
}

/* ---- plan ---- */

/* The GPU: of a handle, or described by JSON. */
typedef struct target {
    cudnnHandle_t handle;
    descriptor described;
} target;

static descriptor describe(graph *g, const char *json) {
    const descriptor d = make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    finish(g, d);
    return d;
}

static descriptor close_graph(graph *g, const target *t) {
    const descriptor d = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_operations, g->operations);
    if (t->handle != NULL) set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    finish(g, d);
    return d;
}

/* cuDNN's engine configurations, best first; at most MOST_WAYS are considered. */
enum { MOST_WAYS = 8 };
static int64_t rank_ways(graph *g, const target *t, descriptor operations, descriptor ways[MOST_WAYS]) {
    const descriptor d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    set_one(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (t->described != NULL) set_one(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, t->described);
    finish(g, d);
    for (int i = 0; i < MOST_WAYS; i++) ways[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return get(g, d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_WAYS, ways);
}

/* True if cuDNN events a configuration as nondeterministic. */
static bool varies(graph *g, descriptor way) {
    descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    (void)get(g, way, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    n = get(g, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
            notes);
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    return false;
}

static void plan_of_way(graph *g, const target *t, descriptor way) {
    const descriptor d = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_one(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, way);
    if (t->handle != NULL) set(g, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    if (t->described != NULL) set_one(g, d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, t->described);
    finish(g, d);
    (void)get(g, d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &g->plan->workspace);
    if (is_fine(g)) g->plan->plan = d;
}

/* Selects the first configuration that is supported and deterministic. */
static void choose(graph *g, const target *t) {
    const descriptor operations = close_graph(g, t);
    descriptor ways[MOST_WAYS];
    const int64_t n = rank_ways(g, t, operations, ways);
    for (int64_t i = 0; i < n && g->plan->plan == NULL && (is_fine(g) || is_refused(g)); i++) {
        g->status = CUDNN_STATUS_SUCCESS; /* skip an unsupported configuration */
        if (!varies(g, ways[i])) plan_of_way(g, t, ways[i]);
    }
}

static weft_status refuse(const graph *g, weft_error *err) {
    const attention_shape *s = &g->plan->shape;
    const size_t version = g->calls->cudnnGetVersion();
    const bool has_none = is_fine(g) || is_refused(g);
    char words[512] = "", answer[256];
    if (!is_fine(g)) g->calls->cudnnGetLastErrorString(words, sizeof words);
    (void)snprintf(answer, sizeof answer, "%s answered %s, %d", is_fine(g) ? "" : g->call,
                   g->calls->cudnnGetErrorString(g->status), (int)g->status);
    return weft_error_set(err, has_none ? WEFT_E_UNSUPPORTED : WEFT_E_DEVICE,
                          "attention on device cuda: cuDNN %zu.%zu.%zu %s %lld sequences of %lld positions, %lld "
                          "heads, %lld of keys, of %lld numbers each%s%s (%s%s%s). Fix: set attention = auto.",
                          version / 10000, version / 100 % 100, version % 100,
                          has_none ? "has no plan for" : "failed to plan", (long long)s->batch, (long long)s->length,
                          (long long)s->heads, (long long)s->kv_heads, (long long)s->head_dim,
                          s->has_window ? ", with a window" : "", s->has_cap ? ", with a cap" : "",
                          is_fine(g) ? "it has no engine for it" : answer, words[0] == '\0' ? "" : ": ", words);
}

weft_status attention_plan_open(attention_plan *out, const cudnn_calls *calls, cudnnHandle_t handle, const char *json,
                                const attention_shape *shape, weft_error *err) {
    graph g = {.calls = calls, .plan = out, .next_name = N_OPERANDS + 1};
    target t = {handle, NULL};
    memset(out, 0, sizeof *out);
    out->shape = *shape;
    attend(&g, shape);
    if (handle == NULL) t.described = describe(&g, json);
    choose(&g, &t);
    return out->plan == NULL ? refuse(&g, err) : WEFT_OK;
}

cudnnStatus_t attention_plan_close(attention_plan *plan, const cudnn_calls *calls) {
    cudnnStatus_t first = CUDNN_STATUS_SUCCESS;
    while (plan->n > 0) {
        const cudnnStatus_t code = calls->cudnnBackendDestroyDescriptor(plan->all[--plan->n]);
        if (first == CUDNN_STATUS_SUCCESS) first = code;
    }
    return first;
}

weft_status attention_plan_run(cudnnStatus_t *ended, const attention_plan *plan, const cudnn_calls *calls,
                               cudnnHandle_t handle, const attention_operands *operands, weft_error *err) {
    static const int64_t names[N_OPERANDS] = {Q, K, V, O, LSE, SCALE, NOTHING, STARTS, WINDOW, CAP};
    float nothing = -INFINITY, scale = operands->scale, cap = operands->cap;
    int32_t window = operands->window;
    const void *at[N_OPERANDS] = {operands->q, operands->k, operands->v,      operands->o, operands->lse,
                                  &scale,      &nothing,    operands->starts, &window,     &cap};
    attention_plan of_run = {.shape = plan->shape};
    graph g = {.calls = calls, .plan = &of_run};
    const descriptor d = make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    int64_t known[N_OPERANDS], n = 0;
    for (int i = 0; i < N_OPERANDS; i++) { /* bind only operands that the graph uses */
        if ((names[i] == WINDOW && !plan->shape.has_window) || (names[i] == CAP && !plan->shape.has_cap)) continue;
        known[n] = names[i];
        at[n++] = at[i];
    }
    set(&g, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, known);
    set(&g, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    set(&g, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands->workspace);
    finish(&g, d);
    if (is_fine(&g)) judge(&g, "cudnnBackendExecute", calls->cudnnBackendExecute(handle, plan->plan, d));
    *ended = attention_plan_close(&of_run, calls);
    if (is_fine(&g)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DEVICE, "attention on device cuda: %s: cuDNN answered %s (%d).", g.call,
                          calls->cudnnGetErrorString(g.status), (int)g.status);
}

#endif
