/* tests/tensor/test_families.c: operator features of families other than LLaMA: gradients against finite differences of
 * the forward, on the reference device and on device/cpu; and the two devices against each other, in fp32 and bf16. */
#include "graph_cases.h"
#include "graph_models.h"

enum { D = RIG_D, V = RIG_V, HEADS = RIG_HEADS, KV = RIG_KV_HEADS, HD = RIG_HEAD };

#define MIDDLE .carry_width = D, .n_segments = 3

/* ---- biases and norms ---- */

RETURNS(linear, ops->linear(g, carry, r->weights[0]))

RETURNS(rms_norm, ops->rms_norm(g, carry, r->weights[0], 1e-5))

/* A sum that is normed next and used again later; one that is only normed; and one that is normed later. */
FORWARD(sums_normed) {
    const weft_value sum = ops->add(g, carry, ops->linear(g, carry, r->weights[0]));
    const weft_value h = ops->add(g, sum, ops->rms_norm(g, sum, r->weights[1], 1e-5));
    const weft_value twice = ops->add(g, h, h);
    const weft_value late = ops->add(g, carry, ops->rms_norm(g, twice, r->weights[1], 1e-5));
    const weft_value other = ops->linear(g, h, r->weights[0]);
    return ops->add(g, other, ops->rms_norm(g, late, r->weights[1], 1e-5));
}

RETURNS(layer_norm, ops->layer_norm(g, carry, r->weights[0], 1e-5))

/* Two norms with shared gain, bias and input: every sum accumulates. */
FORWARD(layer_norms) {
    const weft_value a = ops->layer_norm(g, carry, r->weights[0], 1e-5);
    return ops->add(g, ops->layer_norm(g, a, r->weights[0], 1e-5), ops->swiglu(g, carry, a));
}

/* ---- packed matrices and low-rank parts ---- */

enum { WIDE = 64, RANK = 3 }; /* WIDE: a block */

/* Wider in between, and two times from one value, so that gradients accumulate. */
FORWARD(packed) {
    const weft_value up = ops->linear(g, carry, r->weights[0]);
    const weft_value gate = ops->linear(g, carry, r->weights[1]);
    return ops->linear(g, ops->swiglu(g, gate, up), r->weights[2]);
}

/* An adapter above and one below; the input of both has a gradient. */
FORWARD(low_rank) {
    const weft_value y = ops->linear(g, carry, r->weights[0]);
    return ops->linear(g, ops->swiglu(g, y, carry), r->weights[0]);
}

/* ---- slices ---- */

/* Returns rows of the first weight as a weight; each slice name has its own object, as in a model. */
static weft_weight *slice(const rig *r, int name, int64_t first, int64_t rows) {
    static weft_weight slices[4];
    slices[name] = *r->weights[0];
    slices[name].is_slice = true;
    slices[name].first = first;
    slices[name].out = rows;
    return &slices[name];
}

/* All rows of a fused gate and up. */
FORWARD(fused) {
    const int64_t half = r->weights[0]->out / 2;
    const weft_value gate = ops->linear(g, carry, slice(r, 0, 0, half));
    return ops->swiglu(g, gate, ops->linear(g, carry, slice(r, 1, half, half)));
}

/* Some rows are unused: their gradient is zero. */
RETURNS(some_rows, ops->linear(g, carry, slice(r, 0, 3, D)))
RETURNS(some_columns, ops->linear(g, carry, slice(r, 0, D / 2, D)))

/* A matrix that is not square, and the reverse shape. */
RETURNS(linear_and_back, ops->linear(g, ops->linear(g, carry, r->weights[0]), r->weights[1]))

/* Rows shared by two slices, in two segments: their sums are computed separately and added once. */
FORWARD(shared_rows) {
    const weft_value none = {0};
    weft_value x = carry, y = {0};
    if (s == 0) return ops->embedding(g, ops->ids(g), r->weights[1]);
    y = ops->linear(g, x, slice(r, 0, 0, D));
    x = ops->swiglu(g, ops->linear(g, x, slice(r, 1, D / 2, D)), y);
    if (s == 1) return x;
    ops->lm_head(g, x, r->weights[1], NULL);
    return none;
}

/* ---- rotation and attention ---- */

static weft_value rotate_half(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x) {
    const weft_rope_args args = {
        .struct_size = (uint32_t)sizeof args, .heads = D / HD, .head_dim = HD, .rotary_dim = HD / 2};
    return ops->rope(g, x, ops->positions(g), r->table, &args);
}

RETURNS(part_of_the_head, rotate_half(r, g, ops, carry))

/* Rotated two times and added to itself: rope's backward must accumulate, also for the unrotated part. */
FORWARD(parts_added) {
    const weft_value once = rotate_half(r, g, ops, carry);
    return ops->add(g, rotate_half(r, g, ops, ops->swiglu(g, carry, once)), once);
}

static weft_value attend(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x, int64_t window, double cap) {
    const weft_attention_args args = {.struct_size = (uint32_t)sizeof args,
                                      .heads = HEADS,
                                      .kv_heads = KV,
                                      .head_dim = HD,
                                      .scale = 0.5,
                                      .window = window,
                                      .cap = cap};
    const weft_value q = ops->linear(g, x, r->weights[0]);
    const weft_value k = ops->linear(g, x, r->weights[1]);
    const weft_value v = ops->linear(g, x, r->weights[2]);
    return ops->linear(g, ops->attention(g, q, k, v, ops->starts(g), &args), r->weights[3]);
}

RETURNS(window, attend(r, g, ops, carry, 3, 0.0))
RETURNS(itself, attend(r, g, ops, carry, 1, 0.0))
RETURNS(capped, attend(r, g, ops, carry, 0, 1.0))
RETURNS(capped_window, attend(r, g, ops, carry, 4, 0.7))

/* ---- activations and scales ---- */

RETURNS(silu, ops->activation(g, carry, WEFT_SILU))
RETURNS(gelu, ops->activation(g, ops->linear(g, carry, r->weights[0]), WEFT_GELU))
RETURNS(gelu_tanh, ops->activation(g, ops->linear(g, carry, r->weights[0]), WEFT_GELU_TANH))
RETURNS(geglu, ops->gated(g, carry, ops->linear(g, carry, r->weights[0]), WEFT_GELU))
RETURNS(geglu_tanh, ops->gated(g, ops->linear(g, carry, r->weights[0]), carry, WEFT_GELU_TANH))
RETURNS(geglu_self, ops->gated(g, carry, carry, WEFT_GELU_TANH))
RETURNS(scale, ops->scale(g, ops->linear(g, carry, r->weights[0]), 2.83))

/* Scaled and used again: the gradient must not overwrite live values, and accumulates. */
FORWARD(scales) {
    const weft_value a = ops->scale(g, carry, 0.3);
    return ops->add(g, ops->swiglu(g, a, carry), ops->scale(g, a, -1.7));
}

/* ---- positions and logits ---- */

FORWARD(learned_positions) {
    const weft_value ids = ops->embedding(g, ops->ids(g), r->weights[0]);
    return ops->add(g, ids, ops->embedding(g, ops->positions(g), r->weights[1]));
}

static weft_value head(const rig *r, weft_graph *g, const weft_ops *ops, weft_value carry, double by, double cap) {
    const weft_head_args args = {.struct_size = (uint32_t)sizeof args, .scale = by, .cap = cap};
    const weft_value none = {0};
    ops->lm_head(g, carry, r->weights[0], &args);
    return none;
}

RETURNS(scaled_head, head(r, g, ops, carry, 0.4, 0.0))
RETURNS(capped_head, head(r, g, ops, carry, 0.0, 1.5))
RETURNS(head_of_all, head(r, g, ops, carry, 1.3, 2.0))

/* ---- a plugin's operator, in both dtypes ---- */

/* y = 3 x with the device's own kernel, in forward and backward. */
static weft_status times_three(const weft_custom_call *call, weft_ref x, weft_ref y, int32_t accumulate,
                               weft_error *err) {
    const int64_t *n = call->args;
    const weft_scale args = {.struct_size = (uint32_t)sizeof args,
                             .x = x,
                             .y = y,
                             .n = *n,
                             .factor = 3.0,
                             .accumulate = accumulate,
                             .dtype = call->dtype};
    return call->kernels->scale(call->device, call->stream, &args, err);
}

static weft_status three_forward(const weft_custom_call *call, weft_error *err) {
    return times_three(call, call->inputs[0], call->output, 0, err);
}

static weft_status three_backward(const weft_custom_call *call, weft_error *err) {
    return times_three(call, call->d_output, call->d_inputs[0], call->accumulate[0], err);
}

static const weft_custom_op three = {.struct_size = (uint32_t)sizeof three,
                                     .name = "three",
                                     .forward = three_forward,
                                     .backward = three_backward,
                                     .dtypes = 1u << WEFT_F32 | 1u << WEFT_BF16};

FORWARD(custom) {
    const int64_t n = (int64_t)r->rows * r->length * D;
    const weft_value y = ops->linear(g, carry, r->weights[0]);
    return ops->add(g, y, ops->custom(g, &three, &y, 1, D, &n, sizeof n));
}

static const rig_weight matrix[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {0}};
static const rig_weight up[] = {{"up", WEFT_WEIGHT_LINEAR, 3 * D, D}, {"down", WEFT_WEIGHT_LINEAR, D, 3 * D}, {0}};
static const rig_weight gain[] = {{"n", WEFT_WEIGHT_GAIN, D, D}, {0}};
static const rig_weight matrix_and_gain[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {"n", WEFT_WEIGHT_GAIN, D, D}, {0}};
static const rig_weight head_gain[] = {{"n", WEFT_WEIGHT_GAIN, HD, HD}, {0}};
static const rig_weight heads[] = {{"q", WEFT_WEIGHT_LINEAR, HEADS *HD, D},
                                   {"k", WEFT_WEIGHT_LINEAR, KV *HD, D},
                                   {"v", WEFT_WEIGHT_LINEAR, KV *HD, D},
                                   {"o", WEFT_WEIGHT_LINEAR, D, HEADS *HD},
                                   {0}};
static const rig_weight two_tables[] = {{"e", WEFT_WEIGHT_EMBEDDING, V, D}, {"p", WEFT_WEIGHT_EMBEDDING, 24, D}, {0}};
static const rig_weight head_matrix[] = {{"w", WEFT_WEIGHT_EMBEDDING, V, D}, {0}};

static const rig_weight wide[] = {{"up", WEFT_WEIGHT_LINEAR, 2 * WIDE, WIDE},
                                  {"gate", WEFT_WEIGHT_LINEAR, 2 * WIDE, WIDE},
                                  {"down", WEFT_WEIGHT_LINEAR, WIDE, 2 * WIDE},
                                  {0}};
static const rig_weight parts[] = {{"w", WEFT_WEIGHT_LINEAR, WIDE, WIDE},
                                   {"d", WEFT_WEIGHT_LINEAR, RANK, WIDE},
                                   {"u", WEFT_WEIGHT_LINEAR, WIDE, RANK},
                                   {0}};

static const rig_weight two[] = {{"w", WEFT_WEIGHT_LINEAR, 2 * D, D}, {0}};
static const rig_weight two_and_table[] = {{"w", WEFT_WEIGHT_LINEAR, 2 * D, D},
                                           {"table", WEFT_WEIGHT_EMBEDDING, V, D},
                                           {0}};
static const rig_weight two_wide[] = {{"w", WEFT_WEIGHT_LINEAR, 2 * WIDE, WIDE}, {0}};

#define END  .carry_width = D, .n_segments = 2
#define BASE .carry_width = WIDE, .n_segments = 3

/* clang-format off: a table */
static const graph_case cases[] = {
    {{"linear with a bias", matrix, .biased = 1u, MIDDLE, .forward = linear}, 1, 1},
    {{"a frozen matrix with a bias", matrix, .biased = 1u, .frozen = 1u, MIDDLE, .forward = linear}, 1, 1},
    {{"a matrix with a frozen bias", matrix, .biased = 1u, .frozen = 2u, MIDDLE, .forward = linear}, 1, 1},
    {{"a transposed linear", matrix, .transposed = 1u, MIDDLE, .forward = linear}, 1, 1},
    {{"a transposed linear with a bias", up, .transposed = 1u, .biased = 1u, MIDDLE, .forward = linear_and_back}, 1, 1},
    {{"a frozen transposed linear", up, .transposed = 1u, .frozen = 1u, MIDDLE, .forward = linear_and_back}, 1, 1},
    {{"two transposed slices", two, .transposed = 1u, .biased = 1u, MIDDLE, .forward = fused}, 1, 1},
    {{"two frozen transposed slices", two, .transposed = 1u, .frozen = 1u, MIDDLE, .forward = fused}, 1, 1},
    {{"some columns of a transposed linear", two, .transposed = 1u, .biased = 1u, MIDDLE, .forward = some_columns},
     1,
     1},
    {{"transposed slices that share columns", two_and_table, .transposed = 1u, MIDDLE, .forward = shared_rows}, 0, 2},
    {{"low rank on what is transposed", parts, .low_rank = 1u, .transposed = 1u, BASE, .forward = low_rank}, 1, 1},
    {{"packed linears", wide, .packed = 7u, BASE, .forward = packed}, 1, 1},
    {{"packed linears with biases", wide, .packed = 7u, .biased = 7u, BASE, .forward = packed}, 1, 1},
    {{"a packed linear beside others", wide, .packed = 2u, BASE, .forward = packed}, 1, 1},
    {{"two slices", two, MIDDLE, .forward = fused}, 1, 1},
    {{"two slices with biases", two, .biased = 1u, MIDDLE, .forward = fused}, 1, 1},
    {{"two frozen slices with biases", two, .biased = 1u, .frozen = 1u, MIDDLE, .forward = fused}, 1, 1},
    {{"two packed slices with biases", two_wide, .packed = 1u, .biased = 1u, BASE, .forward = fused}, 1, 1},
    {{"a slice alone", two, .biased = 1u, MIDDLE, .forward = some_rows}, 1, 1},
    {{"slices that share rows", two_and_table, .biased = 1u, MIDDLE, .forward = shared_rows}, 0, 2},
    {{"low rank", parts, .low_rank = 1u, BASE, .forward = low_rank}, 1, 1},
    {{"low rank on what is frozen", parts, .low_rank = 1u, .frozen = 1u, BASE, .forward = low_rank}, 1, 1},
    {{"low rank on what is packed", parts, .low_rank = 1u, .packed = 1u, .biased = 1u, BASE, .forward = low_rank},
     1,
     1},
    {{"low rank, half of it trained", parts, .low_rank = 1u, .packed = 1u, .frozen = 2u, BASE, .forward = low_rank},
     1,
     1},
    {{"rms_norm of heads", head_gain, MIDDLE, .forward = rms_norm}, 1, 1},
    {{"rms_norm from one", gain, .from_one = 1u, MIDDLE, .forward = rms_norm}, 1, 1},
    {{"sums that are normed", matrix_and_gain, MIDDLE, .forward = sums_normed}, 1, 1},
    {{"layer_norm", gain, .biased = 1u, MIDDLE, .forward = layer_norm}, 1, 1},
    {{"layer_norm of heads", head_gain, .biased = 1u, MIDDLE, .forward = layer_norm}, 1, 1},
    {{"layer_norm from one", gain, .biased = 1u, .from_one = 1u, MIDDLE, .forward = layer_norm}, 1, 1},
    {{"layer_norm with a frozen gain", gain, .biased = 1u, .frozen = 1u, MIDDLE, .forward = layer_norm}, 1, 1},
    {{"layer_norm with a frozen bias", gain, .biased = 1u, .frozen = 2u, MIDDLE, .forward = layer_norm}, 1, 1},
    {{"layer_norms that share", gain, .biased = 1u, MIDDLE, .forward = layer_norms}, 1, 1},
    {{"rope over a part", .table_width = HD / 2, MIDDLE, .forward = part_of_the_head}, 1, 1},
    {{"rope over a part, added", .table_width = HD / 2, MIDDLE, .forward = parts_added}, 1, 1},
    {{"attention in a window", heads, MIDDLE, .forward = window}, 1, 1},
    {{"attention to itself", heads, MIDDLE, .forward = itself}, 1, 1},
    {{"capped attention", heads, MIDDLE, .forward = capped}, 1, 1},
    {{"capped attention in a window", heads, MIDDLE, .forward = capped_window}, 1, 1},
    {{"silu", MIDDLE, .forward = silu}, 1, 1},
    {{"gelu", matrix, MIDDLE, .forward = gelu}, 1, 1},
    {{"gelu by tanh", matrix, MIDDLE, .forward = gelu_tanh}, 1, 1},
    {{"geglu", matrix, MIDDLE, .forward = geglu}, 1, 1},
    {{"geglu by tanh", matrix, MIDDLE, .forward = geglu_tanh}, 1, 1},
    {{"geglu of one value", MIDDLE, .forward = geglu_self}, 1, 1},
    {{"scale", matrix, MIDDLE, .forward = scale}, 1, 1},
    {{"scales", MIDDLE, .forward = scales}, 1, 1},
    {{"learned positions", two_tables, MIDDLE, .forward = learned_positions}, 0, 0},
    {{"head with a bias", head_matrix, .biased = 1u, END, .forward = head_of_all}, 1, 1},
    {{"frozen head with a bias", head_matrix, .biased = 1u, .frozen = 1u, END, .forward = head_of_all}, 1, 1},
    {{"scaled head", head_matrix, END, .forward = scaled_head}, 1, 1},
    {{"capped head", head_matrix, END, .forward = capped_head}, 1, 1},
    {{"frozen capped head", head_matrix, .frozen = 1u, END, .forward = capped_head}, 1, 1},
    {{"custom in both types", matrix, MIDDLE, .forward = custom}, 1, 1},
};
/* clang-format on */

GRAPH_CASE_TESTS(cases)

TESTS(a_whole_model_agrees, RIG_DEVICES) {
    const graph_case whole = {.model = rig_family_model, .first = 0, .last = 3};
    graph_case_check_gradients(&whole, _i);
    graph_case_check_devices(&whole, WEFT_F32);
    graph_case_check_devices(&whole, WEFT_BF16);
    graph_case_check_bf16(&whole);
}

/* Rounded once, ties to even; fp32 to nearest, too. */
TEST(factors_are_rounded_as_the_type_holds_them) {
    ck_assert_double_eq(weft_rounded(45.254833995939045, WEFT_BF16), 45.25);
    ck_assert_double_eq(weft_rounded(1.0 + 0x1p-8, WEFT_BF16), 1.0);
    ck_assert_double_eq(weft_rounded(1.0 + 0x3p-8, WEFT_BF16), 1.0 + 0x1p-6);
    ck_assert_double_eq(weft_rounded(-0.1, WEFT_F32), (double)-0.1f);
}

int main(void) {
    return run_tests(test_case("finite differences", 120, NULL, NULL));
}
