/* tests/tensor/test_ops.c: every operator's backward, single and composed, against finite differences of its forward,
 * on the reference device and on device/cpu; and the two devices against each other, in fp32 and bf16. */
#include "graph_cases.h"
#include "graph_models.h"

enum { D = RIG_D, V = RIG_V, HEADS = RIG_HEADS, KV = RIG_KV_HEADS, HD = RIG_HEAD };

/* Most models here test segment 1 of three, which has an incoming and an outgoing carry. */
#define MIDDLE .carry_width = D, .n_segments = 3

RETURNS(linear, ops->linear(g, carry, r->weights[0]))
RETURNS(embedding, ops->embedding(g, ops->ids(g), r->weights[0]))
RETURNS(rms_norm, ops->rms_norm(g, carry, r->weights[0], 1e-5))
RETURNS(rope, rig_rotate(r, g, ops, carry, D / HD))

/* The carry is rotated two times and added to itself: rope's backward must accumulate. */
FORWARD(rope_twice) {
    const weft_value once = rig_rotate(r, g, ops, carry, D / HD);
    const weft_value twice = rig_rotate(r, g, ops, rig_rotate(r, g, ops, carry, D / HD), D / HD);
    return ops->add(g, twice, once);
}

FORWARD(attention) {
    const weft_value q = ops->linear(g, carry, r->weights[0]);
    const weft_value k = ops->linear(g, carry, r->weights[1]);
    const weft_value v = ops->linear(g, carry, r->weights[2]);
    return ops->linear(g, rig_attend(g, ops, q, k, v, HEADS, KV), r->weights[3]);
}

/* One value as query, key and value: three contributions from one call. */
RETURNS(self_attention, rig_attend(g, ops, carry, carry, carry, D / HD, D / HD))

/* Keys and values of a frozen branch need no gradient. */
FORWARD(query_attention) {
    const weft_value memory = ops->embedding(g, ops->ids(g), r->weights[0]);
    return rig_attend(g, ops, carry, memory, memory, D / HD, D / HD);
}

RETURNS(swiglu, ops->swiglu(g, carry, ops->linear(g, carry, r->weights[0])))
RETURNS(swiglu_self, ops->swiglu(g, carry, carry))
RETURNS(doubled, ops->add(g, carry, carry))

/* x + (x + x W): gradients are shared, then accumulated, in every order. */
FORWARD(sums) {
    const weft_value y = ops->linear(g, carry, r->weights[0]);
    const weft_value a = ops->add(g, carry, y), b = ops->add(g, y, y);
    const weft_value left = ops->swiglu(g, ops->add(g, a, b), a);
    return ops->add(g, left, ops->rms_norm(g, b, r->weights[1], 1e-5));
}

/* p + q, with q used again below: accumulating into q's gradient must not change the shared gradient of p. */
FORWARD(shared_sum) {
    const weft_value p = ops->linear(g, carry, r->weights[0]);
    const weft_value q = ops->swiglu(g, carry, carry);
    const weft_value n = ops->rms_norm(g, q, r->weights[1], 1e-5);
    const weft_value sum = ops->swiglu(g, ops->add(g, p, q), carry);
    return ops->add(g, sum, n);
}

/* p next to a branch of two operators, below a sum with a frozen value: the incoming gradient's last reader is p, which
 * accumulates more gradients, but must not write to it. */
FORWARD(deep_branch) {
    const weft_value p = ops->linear(g, carry, r->weights[0]);
    const weft_value branch = ops->rms_norm(g, p, r->weights[1], 1e-5);
    const weft_value deep = ops->rms_norm(g, branch, r->weights[1], 1e-5);
    return ops->add(g, ops->add(g, p, ops->embedding(g, ops->ids(g), r->weights[2])), deep);
}

/* y is rotated and used again, so the rotation cannot be in place. */
FORWARD(read_again) {
    const weft_value y = ops->linear(g, carry, r->weights[0]);
    const weft_value z = rig_rotate(r, g, ops, y, D / HD);
    return ops->add(g, z, ops->linear(g, y, r->weights[0]));
}

/* The output does not depend on the input. */
RETURNS(deaf, ops->embedding(g, ops->ids(g), r->weights[0]))

FORWARD(same) {
    (void)ops->linear(g, carry, r->weights[0]); /* unused, so its gradient is zero */
    return carry;
}

FORWARD(head) {
    const weft_value none = {0};
    ops->lm_head(g, carry, r->weights[0], NULL);
    return none;
}

/* y = x0 x1, element by element, with a factor in its arguments. */
static weft_status product_forward(const weft_custom_call *call, weft_error *err) {
    const double *factor = call->args;
    const float *a = call->kernels->host_view(call->device, call->inputs[0]);
    const float *b = call->kernels->host_view(call->device, call->inputs[1]);
    float *y = call->kernels->host_view(call->device, call->output);
    for (int64_t i = 0; i < (int64_t)factor[1]; i++) y[i] = (float)factor[0] * a[i] * b[i];
    return WEFT_OK;
}

static weft_status product_backward(const weft_custom_call *call, weft_error *err) {
    const double *factor = call->args;
    const float *dy = call->kernels->host_view(call->device, call->d_output);
    for (int k = 0; k < 2; k++) {
        const float *other = call->kernels->host_view(call->device, call->inputs[1 - k]);
        float *dx = NULL;
        if (call->d_inputs[k].buffer == NULL) continue;
        dx = call->kernels->host_view(call->device, call->d_inputs[k]);
        for (int64_t i = 0; i < (int64_t)factor[1]; i++) {
            const float part = (float)factor[0] * other[i] * dy[i];
            dx[i] = call->accumulate[k] ? dx[i] + part : part;
        }
    }
    return WEFT_OK;
}

static const weft_custom_op product = {.struct_size = (uint32_t)sizeof(weft_custom_op),
                                       .name = "product",
                                       .keeps_inputs = 1,
                                       .forward = product_forward,
                                       .backward = product_backward};

FORWARD(custom) {
    const double args[2] = {0.7, (double)r->rows * r->length * D};
    const weft_value y = ops->linear(g, carry, r->weights[0]);
    const weft_value pair[2] = {carry, y}, twice[2] = {carry, carry};
    const weft_value a = ops->custom(g, &product, pair, 2, D, args, sizeof args);
    const weft_value b = ops->custom(g, &product, twice, 2, D, args, sizeof args);
    return ops->add(g, a, b);
}

/* One matrix and its bias in two segments, used two times in the lower one: both sums there are computed separately and
 * added once. */
FORWARD(shared) {
    const weft_value none = {0};
    if (s == 0) return ops->embedding(g, ops->ids(g), r->weights[1]);
    if (s == 1) return ops->linear(g, ops->swiglu(g, ops->linear(g, carry, r->weights[0]), carry), r->weights[0]);
    ops->lm_head(g, ops->linear(g, carry, r->weights[0]), r->weights[1], NULL);
    return none;
}

/* ---- adapter operators ---- */

/* A gain for all channels, one for heads, and a gate. */
FORWARD(factors) {
    const weft_value a = ops->multiply(g, carry, r->weights[0]);
    const weft_value b = ops->multiply(g, a, r->weights[1]);
    return ops->add(g, ops->multiply(g, b, r->weights[2]), a);
}

/* The same elements in forward and backward, and others in another call. */
FORWARD(dropouts) {
    const weft_value a = ops->linear(g, ops->dropout(g, carry, 0.4), r->weights[0]);
    return ops->add(g, ops->dropout(g, a, 0.25), ops->dropout(g, carry, 0.5));
}

/* The norms are constants, so all their inputs are frozen. */
FORWARD(weight_norm) {
    const weft_weight_norm_args args = {.struct_size = sizeof args,
                                        .magnitude = r->weights[3],
                                        .weight = r->weights[0],
                                        .down = r->weights[1],
                                        .up = r->weights[2],
                                        .factor = 1.25};
    const weft_value y = ops->linear(g, carry, r->weights[0]);
    const weft_value part = ops->linear(g, ops->linear(g, carry, r->weights[1]), r->weights[2]);
    return ops->weight_norm(g, ops->add(g, y, ops->scale(g, part, 1.25)), &args);
}

/* Keys and values are trained rows; queries are rotated, with the prefix as preceding positions. */
FORWARD(prefix) {
    const weft_attention_args args = {
        .struct_size = sizeof args, .heads = HEADS, .kv_heads = KV, .head_dim = HD, .scale = 0.6};
    const weft_value q = rig_rotate(r, g, ops, ops->linear(g, carry, r->weights[0]), HEADS);
    const weft_value k = rig_rotate(r, g, ops, ops->linear(g, carry, r->weights[1]), KV);
    const weft_value v = ops->linear(g, carry, r->weights[2]);
    const weft_value keys = ops->matrix(g, r->weights[4]), values = ops->matrix(g, r->weights[5]);
    const weft_value starts = ops->starts(g);
    return ops->linear(g, ops->attention_with_prefix(g, q, k, v, starts, keys, values, &args), r->weights[3]);
}

/* Rows of one prompt through two projections, one of them frozen; separate attention with a gate. */
FORWARD(prompt) {
    const weft_attention_args args = {
        .struct_size = sizeof args, .heads = HEADS, .kv_heads = KV, .head_dim = HD, .scale = 0.6};
    const weft_value q = ops->linear(g, carry, r->weights[0]);
    const weft_value rows = ops->matrix(g, r->weights[4]);
    const weft_value keys = ops->linear(g, rows, r->weights[1]);
    const weft_value values = ops->scale(g, ops->linear(g, rows, r->weights[2]), 0.5);
    const weft_value o = ops->multiply(g, ops->prefix_attention(g, q, keys, values, &args), r->weights[5]);
    return ops->linear(g, o, r->weights[3]);
}

enum { PLACES = 5, RANK = 2 };
/* clang-format off: of queries, keys, values and the output */
#define HEAD_MATRICES                                                                                                  \
    {"q", WEFT_WEIGHT_LINEAR, HEADS * HD, D}, {"k", WEFT_WEIGHT_LINEAR, KV * HD, D},                                   \
        {"v", WEFT_WEIGHT_LINEAR, KV * HD, D}, {                                                                       \
        "o", WEFT_WEIGHT_LINEAR, D, HEADS *HD                                                                          \
    }
/* clang-format on */

static const rig_weight three_gains[] = {
    {"c", WEFT_WEIGHT_GAIN, 1, D}, {"h", WEFT_WEIGHT_GAIN, 1, D / HD}, {"g", WEFT_WEIGHT_GAIN, 1, 1}, {0}};
static const rig_weight normed[] = {{"w", WEFT_WEIGHT_LINEAR, D, D},
                                    {"a", WEFT_WEIGHT_LINEAR, RANK, D},
                                    {"b", WEFT_WEIGHT_LINEAR, D, RANK},
                                    {"m", WEFT_WEIGHT_GAIN, D, D},
                                    {0}};
static const rig_weight with_prefix[] = {
    HEAD_MATRICES, {"pk", WEFT_WEIGHT_EMBEDDING, PLACES, KV *HD}, {"pv", WEFT_WEIGHT_EMBEDDING, PLACES, KV *HD}, {0}};
static const rig_weight with_prompt[] = {
    HEAD_MATRICES, {"p", WEFT_WEIGHT_EMBEDDING, PLACES, D}, {"g", WEFT_WEIGHT_GAIN, 1, 1}, {0}};

static const rig_weight matrix[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {0}};
static const rig_weight table[] = {{"w", WEFT_WEIGHT_EMBEDDING, V, D}, {0}};
static const rig_weight gain[] = {{"w", WEFT_WEIGHT_GAIN, D, D}, {0}};
static const rig_weight matrix_and_gain[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {"n", WEFT_WEIGHT_GAIN, D, D}, {0}};
static const rig_weight matrix_and_table[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {"e", WEFT_WEIGHT_EMBEDDING, V, D}, {0}};
static const rig_weight three[] = {
    {"w", WEFT_WEIGHT_LINEAR, D, D}, {"n", WEFT_WEIGHT_GAIN, D, D}, {"e", WEFT_WEIGHT_EMBEDDING, V, D}, {0}};
static const rig_weight heads[] = {HEAD_MATRICES, {0}};

#define LANGUAGE_MODEL rig_language_weights, .carry_width = D, .table_width = HD

/* clang-format off: a table */
static const graph_case cases[] = {
    {{"linear", matrix, MIDDLE, .forward = linear}, 1, 1},
    {{"frozen linear", matrix, .frozen = 1u, MIDDLE, .forward = linear}, 1, 1},
    {{"embedding", table, MIDDLE, .forward = embedding}, 0, 0},
    {{"rms_norm", gain, MIDDLE, .forward = rms_norm}, 1, 1},
    {{"rope", .table_width = HD, MIDDLE, .forward = rope}, 1, 1},
    {{"rope twice", .table_width = HD, MIDDLE, .forward = rope_twice}, 1, 1},
    {{"attention", heads, MIDDLE, .forward = attention}, 1, 1},
    {{"attention of one value", MIDDLE, .forward = self_attention}, 1, 1},
    {{"attention to a frozen memory", table, .frozen = 1u, MIDDLE, .forward = query_attention}, 1, 1},
    {{"swiglu", matrix, MIDDLE, .forward = swiglu}, 1, 1},
    {{"swiglu of one value", MIDDLE, .forward = swiglu_self}, 1, 1},
    {{"add", MIDDLE, .forward = doubled}, 1, 1},
    {{"sums", matrix_and_gain, MIDDLE, .forward = sums}, 1, 1},
    {{"a shared sum", matrix_and_gain, MIDDLE, .forward = shared_sum}, 1, 1},
    {{"a deep branch", three, .frozen = 4u, MIDDLE, .forward = deep_branch}, 1, 1},
    {{"a value read again", matrix, .frozen = 1u, .table_width = HD, MIDDLE, .forward = read_again}, 1, 1},
    {{"a carry that nobody reads", table, MIDDLE, .forward = deaf}, 1, 1},
    {{"the carry unchanged", matrix, MIDDLE, .forward = same}, 1, 1},
    {{"head", table, .carry_width = D, .n_segments = 2, .forward = head}, 1, 1},
    {{"frozen head", table, .frozen = 1u, .carry_width = D, .n_segments = 2, .forward = head}, 1, 1},
    {{"custom", matrix, .fp32_alone = true, MIDDLE, .forward = custom}, 1, 1},
    {{"attention block", LANGUAGE_MODEL, .n_segments = 4, .forward = rig_language_forward}, 1, 1},
    {{"mlp block", LANGUAGE_MODEL, .n_segments = 4, .forward = rig_language_forward}, 2, 2},
    {{"tied model", LANGUAGE_MODEL, .n_segments = 4, .forward = rig_language_forward}, 0, 3},
    {{"partly frozen model", LANGUAGE_MODEL, .frozen = 0x716u, .n_segments = 4, .forward = rig_language_forward}, 0, 3},
    {{"tied model in one segment", LANGUAGE_MODEL, .n_segments = 1, .forward = rig_language_whole}, 0, 0},
    {{"factors", three_gains, MIDDLE, .forward = factors}, 1, 1},
    {{"dropout", matrix, MIDDLE, .forward = dropouts}, 1, 1},
    {{"weight_norm", normed, .frozen = 7u, MIDDLE, .forward = weight_norm}, 1, 1},
    {{"weight_norm with a bias", normed, .frozen = 23u, .biased = 1u, MIDDLE, .forward = weight_norm}, 1, 1},
    {{"attention with a prefix", with_prefix, .table_width = HD, MIDDLE, .forward = prefix}, 1, 1},
    {{"a prefix alone is trained", with_prefix, .frozen = 15u, .table_width = HD, MIDDLE, .forward = prefix}, 1, 1},
    {{"attention to a prompt", with_prompt, .frozen = 2u, MIDDLE, .forward = prompt}, 1, 1},
    {{"a matrix in two segments", matrix_and_table, MIDDLE, .forward = shared}, 0, 2},
    {{"a bias in two segments", matrix_and_table, .biased = 1u, MIDDLE, .forward = shared}, 0, 2},
};
/* clang-format on */

GRAPH_CASE_TESTS(cases)

int main(void) {
    return run_tests(test_case("finite differences", 120, NULL, NULL));
}
