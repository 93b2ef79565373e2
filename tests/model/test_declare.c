/* The host keeps the declaration of a model plugin, reports its first error, and selects trained parameters by
 * pattern. */
#include "fixture.h"
#include "suite.h"

/* ---- a scripted model plugin ---- */

struct weft_model {
    int destroyed;
};

typedef void script(const weft_builder *b);

static struct weft_model the_model;
static script *the_script;
static weft_status create_status, declare_status;
static const char *failure_text;
static weft_model_info the_info;
static const char *seen_text;

static weft_status toy_create(weft_model **out, const weft_host *host, const void *config,
                              const weft_model_source *source, weft_error *err) {
    if (create_status != WEFT_OK) {
        if (failure_text != NULL) weft_error_set(err, create_status, "%s", failure_text);
        return create_status;
    }
    seen_text = source->config_text;
    the_model.destroyed = 0;
    *out = &the_model;
    return WEFT_OK;
}

static void toy_destroy(weft_model *model) {
    model->destroyed++;
}

static void toy_info(const weft_model *model, weft_model_info *out) {
    *out = the_info;
}

static weft_status toy_declare(weft_model *model, const weft_builder *b, weft_error *err) {
    the_script(b);
    if (declare_status != WEFT_OK && failure_text != NULL) weft_error_set(err, declare_status, "%s", failure_text);
    return declare_status;
}

static weft_value toy_forward(const weft_model *model, uint32_t segment, weft_graph *g, const weft_ops *ops,
                              weft_value carry) {
    return carry;
}

static const weft_model_plugin toy = {
    sizeof(weft_model_plugin), 0, toy_create, toy_destroy, toy_info, toy_declare, toy_forward, NULL};

static weft_weight_spec spec(const char *name, int32_t role, int64_t out, int64_t in) {
    const weft_weight_spec s = {.struct_size = sizeof s,
                                .name = name,
                                .class_name = role == WEFT_WEIGHT_EMBEDDING ? "Embedding" : "Linear",
                                .role = role,
                                .out = out,
                                .in = in,
                                .init_std = 0.5};
    return s;
}

static weft_status toy_fill(const weft_model *model, const char *name, int64_t rows, float *out, weft_error *err) {
    return WEFT_OK;
}

/* embed (tied to head), three blocks with a linear with bias and a norm, a final norm. */
static weft_weight *toy_embed, *toy_head;
static void whole(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "ToyForCausalLM");
    weft_module *model = b->module(b->ctx, root, "model", "Toy");
    weft_weight_spec s = spec("embed", WEFT_WEIGHT_EMBEDDING, 7, 4);
    weft_module *layers = NULL;
    toy_embed = b->weight(b->ctx, model, &s);
    b->segment(b->ctx, model, "embed");
    layers = b->module(b->ctx, model, "layers", "ModuleList");
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"0", "1", "2"};
        weft_module *block = b->module(b->ctx, layers, names[i], "ToyBlock");
        s = spec("proj", WEFT_WEIGHT_LINEAR, 4, 4);
        s.has_bias = 1;
        b->weight(b->ctx, block, &s);
        s = spec("norm", WEFT_WEIGHT_GAIN, 0, 4);
        b->weight(b->ctx, block, &s);
        b->segment(b->ctx, block, names[i]);
    }
    s = spec("norm", WEFT_WEIGHT_GAIN, 0, 4);
    b->weight(b->ctx, model, &s);
    toy_head = b->tie(b->ctx, root, "head", "Linear", toy_embed);
    b->table(b->ctx, "rope", 4, toy_fill);
    b->segment(b->ctx, root, "head");
    b->carry(b->ctx, 4);
}

static void setup(void) {
    const weft_model_info info = {sizeof info, 0, 7, 16, 3, 1, 2, "model.layers", "head"};
    scratch_make();
    write_bytes(scratch_path("config.json"), "{\"a\": 1}\n", 9);
    the_info = info;
    the_script = whole;
    create_status = declare_status = WEFT_OK;
    failure_text = NULL;
}

static weft_status declare(weft_declared **out, weft_error *err) {
    return weft_declared_create(out, &fixture_host, &toy, NULL, scratch_path("config.json"), NULL, err);
}

static weft_declared *declared_whole(void) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    ck_assert_ok(declare(&d, &err), err);
    return d;
}

TEST(names_shapes_and_order_are_kept) {
    weft_declared *d = declared_whole();
    const char *const names[] = {"model.embed.weight",         "model.layers.0.proj.weight", "model.layers.0.proj.bias",
                                 "model.layers.0.norm.weight", "model.layers.1.proj.weight", "model.layers.1.proj.bias",
                                 "model.layers.1.norm.weight", "model.layers.2.proj.weight", "model.layers.2.proj.bias",
                                 "model.layers.2.norm.weight", "model.norm.weight"};
    ck_assert_int_eq(d->n_parameters, 11);
    for (int32_t i = 0; i < 11; i++) {
        ck_assert_str_eq(d->parameters[i].name, names[i]);
        ck_assert(d->parameters[i].trainable);
        ck_assert_int_eq(weft_declared_find(d, names[i]), i);
    }
    ck_assert_int_eq(d->parameters[0].rank, 2);
    ck_assert_int_eq(d->parameters[0].dims[0], 7);
    ck_assert_int_eq(d->parameters[0].dims[1], 4);
    ck_assert_int_eq(d->parameters[2].rank, 1);
    ck_assert(d->parameters[2].is_bias && d->parameters[2].init_std == 0 && d->parameters[2].numel == 4);
    ck_assert(d->parameters[3].init_form == WEFT_INIT_CONSTANT && d->parameters[3].init_std == 1);
    ck_assert(d->parameters[3].role == WEFT_WEIGHT_GAIN);
    ck_assert(d->parameters[1].init_std == 0.5);
    ck_assert_int_eq(weft_declared_numel(d, false), 7 * 4 + 3 * (16 + 4 + 4) + 4);
    ck_assert_int_eq(d->n_segments, 5);
    ck_assert_str_eq(d->segments[4].name, "head");
    ck_assert_int_eq(d->n_tables, 1);
    ck_assert_int_eq(d->carry_width, 4);
    ck_assert_str_eq(d->config_text, "{\"a\": 1}\n");
    ck_assert_ptr_eq(seen_text, d->config_text);
    weft_declared_destroy(d);
    ck_assert_int_eq(the_model.destroyed, 1);
}

TEST(a_weight_object_is_a_leaf_of_the_tree) {
    weft_declared *d = declared_whole();
    const int32_t proj = weft_declared_module(d, "model.layers.1.proj");
    const int32_t block = weft_declared_module(d, "model.layers.1");
    ck_assert_int_ge(proj, 0);
    ck_assert_str_eq(d->modules[proj]->class_name, "Linear");
    ck_assert_int_eq(d->modules[proj]->parent, block);
    ck_assert_int_eq(d->parameters[weft_declared_find(d, "model.layers.1.proj.bias")].module, proj);
    ck_assert(weft_declared_below(d, proj, 0) && weft_declared_below(d, proj, block));
    ck_assert(weft_declared_below(d, block, block));
    ck_assert(!weft_declared_below(d, block, proj));
    ck_assert_int_eq(weft_declared_module(d, "model.layers.9"), -1);
    weft_declared_destroy(d);
}

TEST(a_tie_is_a_second_name_of_one_storage) {
    weft_declared *d = declared_whole();
    ck_assert_ptr_eq(toy_head, toy_embed);
    ck_assert_int_eq(d->parameters[0].n_aliases, 1);
    ck_assert_str_eq(d->parameters[0].aliases[0], "head.weight");
    ck_assert_int_eq(weft_declared_find(d, "head.weight"), 0);
    ck_assert_int_eq(weft_declared_find(d, "head"), -1);
    ck_assert_int_ge(weft_declared_module(d, "head"), 0);
    weft_declared_destroy(d);
}

/* ---- slices of a weight ---- */

static weft_weight *sliced[2];

static void with_slices(const weft_builder *b) {
    weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, 5, 3);
    weft_weight *weight = NULL;
    s.has_bias = 1;
    weight = b->weight(b->ctx, b->module(b->ctx, NULL, "", "Toy"), &s);
    sliced[0] = b->slice(b->ctx, weight, 0, 2);
    sliced[1] = b->slice(b->ctx, weight, 2, 3);
    b->segment(b->ctx, b->module(b->ctx, NULL, "m", "Toy"), "all");
    b->carry(b->ctx, 3);
}

/* Slices are views: they add no parameters. */
static weft_weight *transposed(const weft_builder *b, int64_t out) {
    weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, out, 3);
    s.has_bias = 1;
    s.transposed = 1;
    return b->weight(b->ctx, b->module(b->ctx, NULL, "m", "Toy"), &s);
}

static weft_weight *turned;

static void with_transposed(const weft_builder *b) {
    turned = transposed(b, 6);
    sliced[0] = b->slice(b->ctx, turned, 4, 2);
    b->segment(b->ctx, b->module(b->ctx, NULL, "n", "Toy"), "all");
    b->carry(b->ctx, 3);
}

TEST(a_transposed_linear_has_its_files_shape) {
    weft_declared *d = NULL;
    the_script = with_transposed;
    the_info.layer_path = the_info.head_path = NULL;
    the_info.n_layers = 0;
    d = declared_whole();
    ck_assert_int_eq(d->parameters[0].dims[0], 3);
    ck_assert_int_eq(d->parameters[0].dims[1], 6);
    ck_assert_int_eq(d->parameters[1].dims[0], 6); /* its bias */
    ck_assert(turned->transposed && turned->out == 6 && turned->in == 3);
    ck_assert(sliced[0]->transposed && sliced[0]->first == 4 && sliced[0]->out == 2);
    weft_declared_destroy(d);
}

TEST(a_weight_may_be_read_in_slices) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    the_script = with_slices;
    the_info.layer_path = the_info.head_path = NULL;
    the_info.n_layers = 0;
    ck_assert_ok(declare(&d, &err), err);
    ck_assert_int_eq(d->n_parameters, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sliced[i]->parameter, 0);
        ck_assert_int_eq(sliced[i]->bias, 1);
        ck_assert_int_eq(sliced[i]->first, 2 * i);
        ck_assert_int_eq(sliced[i]->out, 2 + i);
        ck_assert_int_eq(sliced[i]->in, 3);
    }
    weft_declared_destroy(d);
}

static void packed_with_a_bias(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, 5, 128);
    s.has_bias = 1;
    s.storage = WEFT_I8X64;
    b->weight(b->ctx, root, &s);
    b->segment(b->ctx, root, "all");
    b->carry(b->ctx, 128);
}

/* A selection that includes a packed matrix is recorded, and the matrix stays frozen; its bias is a normal
 * parameter. */
TEST(a_weight_may_be_packed) {
    static const struct {
        const char *name, *module;
        int64_t rows, columns;
        double std;
        int32_t dtype;
    } want[] = {{"w.weight", "w", 5, 128, 0.5, WEFT_I8X64}, {"w.bias", "w", 5, 1, 0, WEFT_F32}};
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    the_script = packed_with_a_bias;
    the_info.layer_path = the_info.head_path = NULL;
    the_info.n_layers = 0;
    ck_assert_ok(declare(&d, &err), err);
    ck_assert_int_eq(d->n_parameters, 2);
    ck_assert_int_eq(d->packed_wanted, -1);
    for (int32_t i = 0; i < 2; i++) {
        const weft_parameter *p = &d->parameters[i];
        ck_assert_str_eq(p->name, want[i].name);
        ck_assert_str_eq(d->modules[p->module]->path, want[i].module);
        ck_assert_int_eq(p->dims[0], want[i].rows);
        ck_assert_int_eq(p->dims[1], want[i].columns);
        ck_assert_double_eq(p->init_std, want[i].std);
        ck_assert_int_eq(p->dtype, want[i].dtype);
        ck_assert_int_eq(p->trainable, want[i].dtype == WEFT_F32);
    }
    ck_assert_ok(weft_declared_select(d, "*", &err), err);
    ck_assert_int_eq(d->packed_wanted, 0);
    ck_assert(!d->parameters[0].trainable && d->parameters[1].trainable);
    ck_assert_ok(weft_declared_select(d, "*bias", &err), err);
    ck_assert_int_eq(d->packed_wanted, -1);
    ck_assert(!d->parameters[0].trainable && d->parameters[1].trainable);
    weft_declared_destroy(d);
}

/* ---- errors ---- */

#define SCRIPT(name, ...)                                                                                              \
    static void name(const weft_builder *b) {                                                                          \
        __VA_ARGS__;                                                                                                   \
    }
/* Declares only weight m.w of this role, height and width, after the changes of its spec. */
#define SPEC(name, role, out, in, ...)                                                                                 \
    static void name(const weft_builder *b) {                                                                          \
        weft_weight_spec s = spec("w", role, out, in);                                                                 \
        __VA_ARGS__;                                                                                                   \
        b->weight(b->ctx, b->module(b->ctx, NULL, "m", "Toy"), &s);                                                    \
    }

static void no_parameters(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    b->segment(b->ctx, root, "all");
    b->carry(b->ctx, 1);
}
static void no_segment(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    const weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, 1, 1);
    b->weight(b->ctx, root, &s);
    b->carry(b->ctx, 1);
}
static void same_path(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    b->module(b->ctx, root, "a", "A");
    b->module(b->ctx, root, "a", "A");
}
static void same_weight(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    const weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, 1, 1);
    b->weight(b->ctx, root, &s);
    b->tie(b->ctx, root, "w", "Linear", b->weight(b->ctx, root, &s));
}
SCRIPT(dotted, b->module(b->ctx, b->module(b->ctx, NULL, "", "Toy"), "a.b", "A"))
SCRIPT(nameless, b->module(b->ctx, b->module(b->ctx, NULL, "", "Toy"), "", "A"))
SCRIPT(classless, b->module(b->ctx, NULL, "a", ""))
SPEC(bad_role, 9, 1, 1, )
SPEC(bad_shape, WEFT_WEIGHT_LINEAR, 0, 3, )
SPEC(huge_shape, WEFT_WEIGHT_LINEAR, INT64_MAX / 2, 3, )
static void huge_sum(const weft_builder *b) {
    weft_module *m = b->module(b->ctx, NULL, "m", "Toy");
    const weft_weight_spec first = spec("w", WEFT_WEIGHT_LINEAR, INT64_MAX / 128, 1);
    const weft_weight_spec second = spec("v", WEFT_WEIGHT_LINEAR, INT64_MAX / 128, 2);
    b->weight(b->ctx, m, &first);
    b->weight(b->ctx, m, &second);
}
SPEC(biased_embedding, WEFT_WEIGHT_EMBEDDING, 2, 3, s.has_bias = 1)
SPEC(bad_deviation, WEFT_WEIGHT_LINEAR, 2, 3, s.init_std = -1)
SPEC(padded_linear, WEFT_WEIGHT_LINEAR, 2, 3, s.has_padding = 1)
SPEC(padding_outside, WEFT_WEIGHT_EMBEDDING, 2, 3, s.has_padding = 1; s.padding = 2)
SPEC(matrix_from_one, WEFT_WEIGHT_LINEAR, 2, 3, s.gain_from_one = 1)
SPEC(packed_embedding, WEFT_WEIGHT_EMBEDDING, 2, 64, s.storage = WEFT_I8X64)
SPEC(packed_in_fp32, WEFT_WEIGHT_LINEAR, 2, 64, s.storage = WEFT_F32)
SPEC(packed_in_the_unknown, WEFT_WEIGHT_LINEAR, 2, 64, s.storage = WEFT_DTYPE_LAST + 1)
SPEC(packed_in_part_of_a_block, WEFT_WEIGHT_LINEAR, 64, 96, s.storage = WEFT_I8X64)
static void packed_and_tied(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, 2, 64);
    s.storage = WEFT_I8X64;
    b->tie(b->ctx, root, "head", "Linear", b->weight(b->ctx, root, &s));
}
static weft_weight *four_rows(const weft_builder *b, int32_t role) {
    const weft_weight_spec w = spec("w", role, 4, 4);
    return b->weight(b->ctx, b->module(b->ctx, NULL, "m", "Toy"), &w);
}
SCRIPT(slice_of_nothing, b->slice(b->ctx, NULL, 0, 1))
SCRIPT(slice_of_a_table, b->slice(b->ctx, four_rows(b, WEFT_WEIGHT_EMBEDDING), 0, 1))
SCRIPT(slice_of_a_slice, b->slice(b->ctx, b->slice(b->ctx, four_rows(b, WEFT_WEIGHT_LINEAR), 0, 2), 0, 1))
SPEC(transposed_table, WEFT_WEIGHT_EMBEDDING, 4, 3, s.transposed = 1)
SPEC(transposed_and_packed, WEFT_WEIGHT_LINEAR, 4, 64, s.transposed = 1; s.storage = WEFT_I8X64)
SCRIPT(columns_between, b->slice(b->ctx, transposed(b, 48), 12, 12))
SCRIPT(slice_beyond, b->slice(b->ctx, four_rows(b, WEFT_WEIGHT_LINEAR), 2, 3))
SPEC(unknown_start, WEFT_WEIGHT_LINEAR, 2, 3, s.init_form = 7)
SPEC(frozen_by_a_model, WEFT_WEIGHT_LINEAR, 2, 3, s.frozen = 1)
static void weight_nowhere(const weft_builder *b) {
    const weft_weight_spec s = spec("w", WEFT_WEIGHT_LINEAR, 2, 3);
    b->weight(b->ctx, NULL, &s);
}
SPEC(short_spec, WEFT_WEIGHT_LINEAR, 2, 3, s.struct_size--)
/* As in a newer SDK. */
static void later_spec(const weft_builder *b) {
    struct {
        weft_weight_spec known;
        int64_t more;
    } s = {spec("w", WEFT_WEIGHT_LINEAR, 2, 3), 1};
    s.known.struct_size = (uint32_t)sizeof s;
    b->weight(b->ctx, b->module(b->ctx, NULL, "m", "Toy"), &s.known);
}
SCRIPT(tie_to_nothing, b->tie(b->ctx, b->module(b->ctx, NULL, "", "Toy"), "head", "Linear", NULL))
static void same_segment(const weft_builder *b) {
    weft_module *root = b->module(b->ctx, NULL, "", "Toy");
    b->segment(b->ctx, root, "s");
    b->segment(b->ctx, root, "s");
}
static void same_table(const weft_builder *b) {
    b->table(b->ctx, "t", 4, toy_fill);
    b->table(b->ctx, "t", 4, toy_fill);
}
SCRIPT(empty_table, b->table(b->ctx, "t", 0, toy_fill))
static void two_widths(const weft_builder *b) {
    b->carry(b->ctx, 4);
    b->carry(b->ctx, 5);
}
static void mistake_first_then_more(const weft_builder *b) {
    weft_module *none = b->module(b->ctx, NULL, "a.b", "First");
    const weft_weight_spec s = spec("w", 77, 1, 1);
    ck_assert_ptr_null(none);
    ck_assert_ptr_null(b->weight(b->ctx, none, &s));
    ck_assert_ptr_null(b->tie(b->ctx, none, "x", "X", NULL));
    ck_assert_ptr_null(b->table(b->ctx, NULL, -1, NULL));
    ck_assert_uint_eq(b->segment(b->ctx, none, "s"), UINT32_MAX);
    b->carry(b->ctx, -5);
}

static const struct {
    script *script;
    const char *text;
} mistakes[] = {
    {no_parameters, "declares 0 parameters, 1 segments"},
    {no_segment, "1 parameters, 0 segments"},
    {same_path, "two modules with the path 'a'"},
    {same_weight, "two modules with the path 'w'"},
    {dotted, "named 'a.b'"},
    {nameless, "named ''"},
    {classless, "without a name or a class"},
    {short_spec, "without a module, a name or a complete spec"},
    {later_spec, "fields of 'm.w' beyond the"},
    {bad_role, "'m.w' with the unknown role 9"},
    {bad_shape, "'m.w' with the shape (0, 3)"},
    {huge_shape, "'m.w' with the shape"},
    {huge_sum, "elements in all, with 'm.v'"},
    {biased_embedding, "embedding 'm.w' with a bias"},
    {bad_deviation, "'m.w' with the deviation -1"},
    {padded_linear, "'m.w' with the padding 0"},
    {padding_outside, "'m.w' with the padding 2"},
    {matrix_from_one, "'m.w' with gain_from_one, and it is no norm's gain"},
    {packed_embedding, "'m.w' with the storage int8x64, and it is no linear"},
    {packed_in_fp32, "'m.w' with the storage 1 (fp32). Allowed: a packed type"},
    {packed_in_the_unknown, "'m.w' with the storage 18 (?). Allowed: a packed type"},
    {packed_in_part_of_a_block, "rows of 96 elements. Allowed: a multiple of its blocks of 64"},
    {packed_and_tied, "ties 'head' to 'w.weight', which is packed"},
    {slice_of_nothing, "requests a slice of no weight"},
    {slice_of_a_table, "requests a slice of 'm.w.weight', which is no linear"},
    {slice_of_a_slice, "requests a slice of 'm.w.weight', which is a slice itself"},
    {transposed_table, "declares 'm.w' as transposed. Allowed: only the matrix of a linear"},
    {transposed_and_packed, "declares 'm.w' as transposed and with the storage int8x64"},
    {columns_between,
     "requests columns from 12 on of 'm.w.weight', which is transposed and has 48. Allowed: slices that begin at "
     "multiples of 8"},
    {slice_beyond, "requests 3 rows from row 2 on of 'm.w.weight', which has 4"},
    {unknown_start, "'m.w' with the unknown init_form 7"},
    {frozen_by_a_model, "'m.w' as frozen"},
    {weight_nowhere, "a weight without a module"},
    {tie_to_nothing, "ties 'head' to no weight"},
    {same_segment, "two segments named 's'"},
    {same_table, "two tables named 't'"},
    {empty_table, "a table 't' without"},
    {two_widths, "a carry of width 5"},
    {mistake_first_then_more, "named 'a.b'"},
};

TESTS(the_first_mistake_is_reported_and_nothing_is_left, LENGTH(mistakes)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    the_script = mistakes[_i].script;
    declare_status = WEFT_E_PLUGIN; /* the plugin noticed it, too; the host's message is more precise */
    failure_text = "something is wrong";
    if (strstr(mistakes[_i].text, "parameters") != NULL) declare_status = WEFT_OK;
    ck_assert_int_eq(declare(&d, &err), the_script == later_spec ? WEFT_E_UNSUPPORTED : WEFT_E_PLUGIN);
    ck_assert_says(err, mistakes[_i].text);
    ck_assert_ptr_null(d);
    ck_assert_int_eq(the_model.destroyed, 1);
}

TEST(reports_the_error_of_a_failing_plugin) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    create_status = WEFT_E_USER;
    failure_text = "config.json: hidden_size is odd";
    ck_assert_int_eq(declare(&d, &err), WEFT_E_USER);
    ck_assert_says(err, "hidden_size is odd");
    failure_text = NULL;
    ck_assert_int_eq(declare(&d, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "failed in its create without an error message");
    create_status = WEFT_OK;
    declare_status = WEFT_E_USER;
    ck_assert_int_eq(declare(&d, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "failed in its declare without an error message");
}

TEST(paths_of_info_must_exist) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    the_info.layer_path = "model.blocks";
    ck_assert_int_eq(declare(&d, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "'model.blocks'");
    the_info.layer_path = "model.layers";
    the_info.head_path = "lost";
    ck_assert_int_eq(declare(&d, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "'lost'");
    the_info.head_path = NULL;
    the_info.vocab_size = 0;
    ck_assert_int_eq(declare(&d, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "vocabulary 0");
}

TEST(names_an_unreadable_configuration) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    ck_assert_int_eq(weft_declared_create(&d, &fixture_host, &toy, NULL, "/nowhere/config.json", NULL, &err),
                     WEFT_E_USER);
    ck_assert_says(err, "/nowhere/config.json: cannot be opened: No such file");
    ck_assert_int_eq(weft_declared_create(&d, &fixture_host, &toy, NULL, scratch, NULL, &err), WEFT_E_USER);
    ck_assert_says(err, "is not a file");
}

/* ---- trained parameters ---- */

static const struct {
    const char *list;
    const char *trained; /* a digit per parameter, in order */
} choices[] = {
    {"all", "11111111111"},
    {"head", "10000000000"}, /* tied: one storage */
    {"first:1", "01110000000"},
    {"last:2", "00001111110"},
    {"last:3", "01111111110"},
    {"model.norm.weight", "00000000001"},
    {"*norm.weight", "00010010011"},
    {"*.layers.*.proj.*", "01101101100"},
    {"head.weight", "10000000000"},
    {"*bias, head", "10100100100"},
    {"first:1,last:1", "01110001110"},
    {"*", "11111111111"},
    {"model.*.1.*t", "00001010000"},
};

TESTS(a_choice_marks_what_it_names, LENGTH(choices)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = declared_whole();
    int64_t numel = 0;
    ck_assert_ok(weft_declared_select(d, choices[_i].list, &err), err);
    for (int32_t p = 0; p < d->n_parameters; p++) {
        ck_assert_msg(d->parameters[p].trainable == (choices[_i].trained[p] == '1'), "'%s': %s", choices[_i].list,
                      d->parameters[p].name);
        if (d->parameters[p].trainable) numel += d->parameters[p].numel;
    }
    ck_assert_int_eq(weft_declared_numel(d, true), numel);
    weft_declared_destroy(d);
}

static const struct {
    const char *list, *text;
} wrong_choices[] = {
    {"", "list of trained parameters is empty"},
    {" , ", "list of trained parameters is empty"},
    {"model.norm", "'model.norm' is no parameter of this model"},
    {"model.norm", "; did you mean *model.norm*, which is 1 of them?"},
    {"proj", "; did you mean *proj*, which is 6 of them?"},
    {"all,lm_head", "begin with model.embed.weight, model.layers.0.proj.weight"},
    {"first:0", "from 1 to 3"},
    {"last:4", "'last:4': not valid. Allowed: a number of layers from 1 to 3"},
    {"first:two", "number of layers from 1 to 3"},
    {"first:-1", "number of layers from 1 to 3"},
    {"first:", "number of layers from 1 to 3"},
    {"*.bia", "is no parameter"},
    {"*proj", "is no parameter"},
};

TESTS(a_choice_that_names_nothing_changes_nothing, LENGTH(wrong_choices)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = declared_whole();
    ck_assert_ok(weft_declared_select(d, "head", &err), err);
    ck_assert_int_eq(weft_declared_select(d, wrong_choices[_i].list, &err), WEFT_E_USER);
    ck_assert_says(err, wrong_choices[_i].text);
    ck_assert_int_eq(weft_declared_numel(d, true), 28);
    weft_declared_destroy(d);
}

TEST(a_model_without_a_head_says_so) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    the_info.head_path = NULL;
    d = declared_whole();
    ck_assert_int_eq(weft_declared_select(d, "head", &err), WEFT_E_USER);
    ck_assert_says(err, "has no head");
    weft_declared_destroy(d);
}

int main(void) {
    return run_tests(test_case("declare", 0, setup, scratch_remove));
}
