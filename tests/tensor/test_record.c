/* tests/tensor/test_record.c: recording of models: permitted calls, and errors for others. */
#include "graph_models.h"
#include "suite.h"

#include <math.h>

enum { D = RIG_D, V = RIG_V, HD = RIG_HEAD };
enum { TABLE = 0, GAIN = 1, MATRIX = 2, BIASED_GAIN = 3, ODD_GAIN = 4, FEW_PLACES = 5 };
enum { PACKED = 6 };

static const rig_weight weights[] = {
    {"a.table.weight", WEFT_WEIGHT_EMBEDDING, V, D},   {"a.gain.weight", WEFT_WEIGHT_GAIN, D, D},
    {"a.matrix.weight", WEFT_WEIGHT_LINEAR, 2 * D, D}, {"a.biased_gain.weight", WEFT_WEIGHT_GAIN, D, D},
    {"a.odd.weight", WEFT_WEIGHT_GAIN, 3, 3},          {"a.places.weight", WEFT_WEIGHT_EMBEDDING, 2, D},
    {"a.packed.weight", WEFT_WEIGHT_LINEAR, V, 64},    {0}};

#define ARGS(type, ...)                                                                                                \
    &(const type) {                                                                                                    \
        .struct_size = (uint32_t)sizeof(type), __VA_ARGS__                                                             \
    }

typedef weft_value use(const rig *r, uint32_t s, weft_graph *g, const weft_ops *ops, weft_value carry);

RETURNS(wide, ops->linear(g, ops->linear(g, carry, r->weights[MATRIX]), r->weights[MATRIX]))
RETURNS(wide_carry, ops->linear(g, carry, r->weights[MATRIX]))
RETURNS(odd_gain, ops->rms_norm(g, carry, r->weights[ODD_GAIN], 1e-5))
RETURNS(biased_rms, ops->rms_norm(g, carry, r->weights[BIASED_GAIN], 1e-5))
RETURNS(unbiased_layer, ops->layer_norm(g, carry, r->weights[GAIN], 1e-5))
RETURNS(few_places, ops->add(g, carry, ops->embedding(g, ops->positions(g), r->weights[FEW_PLACES])))
RETURNS(other_curve, ops->gated(g, carry, carry, 3))
RETURNS(endless_scale, ops->scale(g, carry, INFINITY))

FORWARD(wide_rotation) {
    const weft_rope_args args = {
        .struct_size = (uint32_t)sizeof args, .heads = D / HD, .head_dim = HD, .rotary_dim = HD + 2};
    return ops->rope(g, carry, ops->positions(g), r->table, &args);
}

/* Handles of another instance, which a plugin shares between its instances. */
FORWARD(borrowed_weight) {
    static weft_declared another;
    static weft_weight borrowed;
    borrowed = *r->weights[MATRIX];
    borrowed.owner = &another;
    return ops->linear(g, carry, &borrowed);
}

FORWARD(borrowed_table) {
    const weft_rope_args args = {.struct_size = (uint32_t)sizeof args, .heads = D / HD, .head_dim = HD};
    static weft_table borrowed;
    borrowed = *r->table;
    return ops->rope(g, carry, ops->positions(g), &borrowed, &args);
}

FORWARD(negative_window) {
    const weft_attention_args args = {
        .struct_size = (uint32_t)sizeof args, .heads = D / HD, .kv_heads = D / HD, .head_dim = HD, .window = -3};
    return ops->attention(g, carry, carry, carry, ops->starts(g), &args);
}

FORWARD(negative_cap) {
    const weft_head_args args = {.struct_size = (uint32_t)sizeof args, .cap = -1.0};
    const weft_value none = {0};
    ops->lm_head(g, carry, r->weights[TABLE], &args);
    return none;
}

RETURNS(odd_factors, ops->multiply(g, carry, r->weights[ODD_GAIN]))
RETURNS(biased_factors, ops->multiply(g, carry, r->weights[BIASED_GAIN]))
RETURNS(certain_dropout, ops->dropout(g, carry, 1.0))

RETURNS(narrow_magnitude,
        ops->weight_norm(g, ops->linear(g, carry, r->weights[MATRIX]),
                         ARGS(weft_weight_norm_args, .magnitude = r->weights[GAIN], .weight = r->weights[MATRIX])))

RETURNS(half_a_part, ops->weight_norm(g, carry,
                                      ARGS(weft_weight_norm_args, .magnitude = r->weights[GAIN],
                                           .weight = r->weights[MATRIX], .down = r->weights[MATRIX])))

RETURNS(rows_as_places, ops->add(g, carry, ops->matrix(g, r->weights[MATRIX])))
RETURNS(rows_as_carry, ops->matrix(g, r->weights[MATRIX]))

FORWARD(prefix_in_window) {
    const weft_attention_args args = {
        .struct_size = (uint32_t)sizeof args, .heads = D / HD, .kv_heads = D / HD, .head_dim = HD, .window = 3};
    const weft_value rows = ops->matrix(g, r->weights[MATRIX]);
    return ops->attention_with_prefix(g, carry, carry, carry, ops->starts(g), rows, rows, &args);
}

FORWARD(narrow_prefix) {
    const weft_attention_args args = {
        .struct_size = (uint32_t)sizeof args, .heads = 2 * D / HD, .kv_heads = 2 * D / HD, .head_dim = HD};
    const weft_value q = ops->linear(g, carry, r->weights[MATRIX]);
    const weft_value rows = ops->matrix(g, r->weights[MATRIX]);
    return ops->prefix_attention(g, q, rows, rows, &args);
}

RETURNS(gain_as_matrix, ops->linear(g, carry, r->weights[GAIN]))
RETURNS(matrix_as_gain, ops->rms_norm(g, carry, r->weights[MATRIX], 1e-5))
RETURNS(packed_table, ops->embedding(g, ops->ids(g), r->weights[PACKED]))

FORWARD(packed_head) {
    const weft_value none = {0};
    ops->lm_head(g, carry, r->weights[PACKED], NULL);
    return none;
}

RETURNS(no_weight, ops->linear(g, carry, NULL))
RETURNS(ids_as_numbers, ops->add(g, carry, ops->ids(g)))
RETURNS(numbers_as_ids, ops->embedding(g, carry, r->weights[TABLE]))
RETURNS(unequal_sum, ops->add(g, carry, ops->linear(g, carry, r->weights[MATRIX])))
RETURNS(unequal_gate, ops->swiglu(g, ops->linear(g, carry, r->weights[MATRIX]), carry))

FORWARD(stranger) {
    const weft_value other = {4000};
    return ops->add(g, carry, other);
}

RETURNS(odd_heads,
        ops->rope(g, carry, ops->positions(g), r->table, ARGS(weft_rope_args, .heads = D / 3, .head_dim = 3)))

RETURNS(narrow_table, ops->rope(g, carry, ops->positions(g), r->table, ARGS(weft_rope_args, .heads = 1, .head_dim = D)))

FORWARD(short_arguments) {
    const weft_rope_args args = {.struct_size = (uint32_t)sizeof args - 1, .heads = D / HD, .head_dim = HD};
    return ops->rope(g, carry, ops->positions(g), r->table, &args);
}

/* As in a newer SDK. */
FORWARD(later_arguments) {
    const struct {
        weft_rope_args known;
        int64_t more;
    } args = {{.struct_size = (uint32_t)sizeof args, .heads = D / HD, .head_dim = HD},
              1}; /* unknown non-zero fields are errors */
    return ops->rope(g, carry, ops->positions(g), r->table, &args.known);
}

RETURNS(no_arguments, ops->attention(g, carry, carry, carry, ops->starts(g), NULL))
RETURNS(uneven_groups, rig_attend(g, ops, carry, carry, carry, 3, 2))
RETURNS(narrow_keys, rig_attend(g, ops, carry, carry, carry, D / HD, 1))

FORWARD(nothing) {
    const weft_value none = {0};
    return none;
}

FORWARD(early_head) {
    ops->lm_head(g, carry, r->weights[TABLE], NULL);
    return carry;
}

FORWARD(after_head) {
    ops->lm_head(g, carry, r->weights[TABLE], NULL);
    return ops->add(g, carry, carry);
}

RETURNS(no_custom, ops->custom(g, NULL, &carry, 1, D, NULL, 0))

FORWARD(extra_loss) {
    ops->loss(g, carry, WEFT_LOSS_PER_TOKEN);
    return carry;
}

/* The first of two errors is reported. */
FORWARD(two_mistakes) {
    const weft_value bad = ops->linear(g, carry, r->weights[GAIN]);
    return ops->add(g, bad, ops->embedding(g, carry, r->weights[TABLE]));
}

static const struct {
    use *forward;
    int32_t segment;
    weft_status status;
    const char *says[3];
} mistakes[] = {
    {wide, 1, WEFT_E_PLUGIN, {"segment part.1: linear matrix: ", "`x` has width 16", "(16, 8) and requires 8"}},
    {wide_carry, 1, WEFT_E_PLUGIN, {"segment part.1: ", "returned a carry of 16 fp32", "declared 8 fp32"}},
    {odd_gain, 1, WEFT_E_PLUGIN, {"rms_norm odd: ", "`x` has width 8", "multiple of the gain's 3 elements"}},
    {biased_rms, 1, WEFT_E_PLUGIN, {"rms_norm biased_gain: ", "has a bias"}},
    {unbiased_layer, 1, WEFT_E_PLUGIN, {"layer_norm gain: ", "has no bias", "has_bias"}},
    {few_places, 1, WEFT_E_PLUGIN, {"embedding places: ", "2 rows", "the last position is 2"}},
    {other_curve, 1, WEFT_E_PLUGIN, {"geglu: ", "form 3", "0 to 2"}},
    {endless_scale, 1, WEFT_E_PLUGIN, {"scale: ", "the factor is inf"}},
    {wide_rotation, 1, WEFT_E_PLUGIN, {"rope: ", "2 heads of 4 elements, of which 6 are rotated"}},
    {borrowed_weight, 1, WEFT_E_PLUGIN, {"linear: ", "the weight was not declared by this instance of the model"}},
    {borrowed_table, 1, WEFT_E_PLUGIN, {"rope: ", "the table was not declared by this instance of the model"}},
    {negative_window, 1, WEFT_E_PLUGIN, {"attention: ", "a window of -3 positions"}},
    {negative_cap, 2, WEFT_E_PLUGIN, {"lm_head table: ", "capped at -1"}},
    {odd_factors, 1, WEFT_E_PLUGIN, {"multiply odd: ", "`x` has width 8", "multiple of the gain's 3 elements"}},
    {biased_factors, 1, WEFT_E_PLUGIN, {"multiply biased_gain: ", "factors are plain"}},
    {certain_dropout, 1, WEFT_E_PLUGIN, {"dropout: ", "p is 1; it must be in [0, 1)"}},
    {narrow_magnitude, 1, WEFT_E_PLUGIN, {"weight_norm gain: ", "`x` has width 16", "8 elements"}},
    {half_a_part, 1, WEFT_E_PLUGIN, {"weight_norm gain: ", "both low-rank factors or neither"}},
    {rows_as_places, 1, WEFT_E_PLUGIN, {"add: ", "`b` has 16 positions; "}},
    {rows_as_carry, 1, WEFT_E_PLUGIN, {"segment part.1: ", "a value of 16 positions as its carry"}},
    {prefix_in_window, 1, WEFT_E_UNSUPPORTED, {"attention_with_prefix: ", "has a window, which prefixes do not"}},
    {narrow_prefix, 1, WEFT_E_PLUGIN, {"prefix_attention: ", "`prefix_k` has width 8; 16 is required"}},
    {gain_as_matrix, 1, WEFT_E_PLUGIN, {"linear gain: ", "a matrix is needed"}},
    {matrix_as_gain, 1, WEFT_E_PLUGIN, {"rms_norm matrix: ", "gain is needed"}},
    {packed_table, 1, WEFT_E_PLUGIN, {"embedding packed: ", "int8x64, which only `linear` supports"}},
    {packed_head, 2, WEFT_E_PLUGIN, {"lm_head packed: ", "int8x64, which only `linear` supports"}},
    {no_weight, 1, WEFT_E_PLUGIN, {"linear: ", "the weight is NULL"}},
    {ids_as_numbers, 1, WEFT_E_PLUGIN, {"add: ", "`b` has dtype int32; fp32 is required"}},
    {numbers_as_ids, 1, WEFT_E_PLUGIN, {"embedding table: ", "`ids` has 8 fp32 per position", "ids()"}},
    {unequal_sum, 1, WEFT_E_PLUGIN, {"add: ", "`b` has width 16; 8 is required"}},
    {unequal_gate, 1, WEFT_E_PLUGIN, {"swiglu: ", "`up` has width 8; 16 is required"}},
    {stranger, 1, WEFT_E_PLUGIN, {"add: ", "`b` is not a value of this segment"}},
    {unequal_sum, 0, WEFT_E_PLUGIN, {"linear matrix: ", "`x` is not a value", "the first segment has no carry"}},
    {odd_heads, 1, WEFT_E_PLUGIN, {"rope: ", "2 heads of 3 elements", "even"}},
    {short_arguments, 1, WEFT_E_PLUGIN, {"rope: ", "struct_size is 31", "at least 32"}},
    {later_arguments, 1, WEFT_E_UNSUPPORTED, {"rope: ", "beyond the 32 bytes"}},
    {no_arguments, 1, WEFT_E_PLUGIN, {"attention: ", "0 query heads"}},
    {narrow_table, 1, WEFT_E_PLUGIN, {"rope: ", "table angles has 4 numbers", "8 elements are rotated"}},
    {uneven_groups, 1, WEFT_E_PLUGIN, {"attention: ", "3 query heads over 2 key heads", "multiple"}},
    {narrow_keys, 1, WEFT_E_PLUGIN, {"attention: ", "`k` has width 8; 4 is required"}},
    {nothing, 1, WEFT_E_PLUGIN, {"segment part.1: ", "returned no carry"}},
    {nothing, 2, WEFT_E_PLUGIN, {"segment part.2: ", "ends in lm_head"}},
    {early_head, 1, WEFT_E_PLUGIN, {"lm_head belongs into the last segment, which is part.2"}},
    {early_head, 2, WEFT_E_PLUGIN, {"segment part.2: ", "returns no value"}},
    {after_head, 2, WEFT_E_PLUGIN, {"add: ", "no operator may follow lm_head"}},
    {no_custom, 1, WEFT_E_PLUGIN, {"a name, a forward and a backward"}},
    {extra_loss, 1, WEFT_E_UNSUPPORTED, {"segment part.1: `loss` is not supported", "lm_head"}},
    {two_mistakes, 1, WEFT_E_PLUGIN, {"linear gain: ", "a matrix is needed"}},
};

static use *forward_now;

RETURNS(forward, forward_now(r, s, g, ops, carry))

static const rig_model model = {
    "mistakes",        .weights = weights, .carry_width = D,  .biased = 1u << BIASED_GAIN, .packed = 1u << PACKED,
    .table_width = HD, .n_segments = 3,    .forward = forward};

static weft_graph_spec spec_of(const rig *r, int32_t mode) {
    const weft_graph_spec spec = {.mode = mode,
                                  .dtype = r->dtype,
                                  .rows = r->rows,
                                  .length = r->length,
                                  .cache_rows = mode == WEFT_MODE_GENERATE ? r->length : 0,
                                  .carry_gradient = mode == WEFT_MODE_TRAIN,
                                  .kernels = r->kernels,
                                  .device = r->device};
    return spec;
}

TESTS(reports_the_first_mistake, LENGTH(mistakes)) {
    rig r;
    weft_error err = WEFT_ERROR_INIT;
    weft_graph *graph = NULL;
    rig_open(&r, RIG_REFERENCE, &model, 2, 3);
    forward_now = mistakes[_i].forward;
    for (int32_t mode = WEFT_MODE_TRAIN; mode <= WEFT_MODE_GENERATE; mode++) {
        const weft_graph_spec spec = spec_of(&r, mode);
        const weft_status status = weft_graph_record(&graph, &r.declared, mistakes[_i].segment, &spec, &err);
        ck_assert_msg(status == mistakes[_i].status, "mistake %d: status %d: %s", _i, (int)status, err.text);
        ck_assert_ptr_null(graph);
        for (int k = 0; k < 3 && mistakes[_i].says[k] != NULL; k++) ck_assert_says(err, mistakes[_i].says[k]);
    }
    rig_close(&r);
}

TEST(parameters_are_read_once_each_in_order_of_use) {
    static const int32_t expected[] = {6, 7, 8, 9};
    rig r;
    weft_error err = WEFT_ERROR_INIT;
    weft_graph *graph = NULL;
    weft_graph_spec spec;
    int32_t n = 0;
    const weft_graph_read *reads = NULL;
    rig_open(&r, RIG_REFERENCE, &rig_language_model, 2, 3);
    spec = spec_of(&r, WEFT_MODE_EVALUATE);
    rig_ok(weft_graph_record(&graph, &r.declared, 2, &spec, &err), &err);
    reads = weft_graph_reads(graph, &n);
    ck_assert_int_eq(n, 4);
    for (int32_t i = 0; i < n; i++) ck_assert_int_eq(reads[i].parameter, expected[i]);
    weft_graph_destroy(graph);
    rig_close(&r);
}

int main(void) {
    return run_tests(tcase_create("mistakes"));
}
