/* Units, groups and the grid: which parameters are communicated together, and their offsets. */
#include "llama.h"
#include "suite.h"
#include "model/layout.h"
#include "layout_offset.h"

/* ---- policies ---- */

static const char *unit_class; /* modules of this class are units; NULL: no units; "": every module */
static weft_status policy_status;
static int32_t mistake; /* index into `mistakes`; 0: no mistake */
static weft_module_view seen[256];
static uint32_t n_seen;

static void make_units(const weft_policy_job *job, const weft_wrap *wrap) {
    for (uint32_t i = job->n_modules; i-- > 0;) { /* the deepest modules first */
        const weft_module_view *module = weft_policy_module(job, i);
        if (unit_class == NULL || (unit_class[0] != '\0' && strcmp(unit_class, module->class_name) != 0)) continue;
        if (module->path[0] != '\0') wrap->claim_rest(wrap->ctx, wrap->unit(wrap->ctx, module->path), (int32_t)i);
    }
}

static void make_mistake(const weft_policy_job *job, const weft_wrap *wrap) {
    weft_wrap_ctx *ctx = wrap->ctx;
    const int32_t one = wrap->unit(ctx, "one"), last = (int32_t)job->n_parameters - 1;
    switch (mistake) {
    case 1: wrap->claim(ctx, wrap->unit(ctx, "two"), 0), wrap->claim(ctx, one, 0); break;
    case 2: wrap->claim(ctx, WEFT_UNIT_ROOT, last), wrap->claim(ctx, WEFT_UNIT_ROOT, last); break;
    case 3: wrap->claim(ctx, one + 1, 0); break;
    case 4: wrap->claim_rest(ctx, -2, WEFT_ALL_MODULES); break;
    case 5: wrap->claim(ctx, one, last + 1); break;
    case 6: wrap->claim(ctx, one, -1); break;
    case 7: wrap->claim_rest(ctx, one, (int32_t)job->n_modules); break;
    case 8: wrap->claim_rest(ctx, wrap->unit(ctx, "root"), WEFT_ALL_MODULES); break;
    case 9: wrap->claim_rest(ctx, wrap->unit(ctx, ""), WEFT_ALL_MODULES); break;
    case 10: wrap->claim_rest(ctx, wrap->unit(ctx, NULL), WEFT_ALL_MODULES); break;
    case 11: wrap->claim_rest(ctx, wrap->unit(ctx, "one"), WEFT_ALL_MODULES); break;
    case 12:
        for (int32_t p = 0; p < last; p++) wrap->claim(ctx, one, p);
        break;
    case 13: break;
    default: ck_abort();
    }
}

static weft_status test_units(const weft_host *host, const void *config, const weft_policy_job *job,
                              const weft_wrap *wrap, weft_error *err) {
    ck_assert_uint_le(job->n_modules, 256);
    n_seen = job->n_modules;
    for (uint32_t i = 0; i < job->n_modules; i++) seen[i] = *weft_policy_module(job, i);
    for (uint32_t i = 0; i < job->n_parameters; i++)
        ck_assert_int_gt(weft_policy_module(job, (uint32_t)weft_policy_parameter(job, i)->module)->own_parameters, 0);
    if (mistake != 0) {
        make_mistake(job, wrap);
    } else {
        make_units(job, wrap);
        wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    }
    return policy_status;
}

static const weft_policy_plugin policy = {sizeof(weft_policy_plugin), 0, test_units};

static void setup(void) {
    unit_class = "LlamaDecoderLayer";
    policy_status = WEFT_OK;
    mistake = 0;
}

static weft_declared *golden(const char *name) {
    char path[64];
    (void)snprintf(path, sizeof path, "%s/config.json", name);
    return llama_declared(llama_golden(path));
}

static weft_layout *layout_of(weft_declared *d) {
    weft_error err = WEFT_ERROR_INIT;
    weft_layout *layout = NULL;
    ck_assert_ok(weft_layout_create(&layout, d, &fixture_host, &policy, NULL, &err), err);
    return layout;
}

/* Checks invariants of every layout. */
static void check_layout(const weft_layout *l, const weft_declared *d) {
    int64_t end = 0, members = 0;
    for (int32_t g = 0; g < l->n_groups; g++) {
        const weft_group *group = &l->groups[g];
        int64_t used = 0, at = 0;
        ck_assert_int_eq(group->base, 4 * end);
        ck_assert_int_eq(group->trainable, g < l->n_trainable_groups);
        ck_assert_int_eq(group->dtype, WEFT_F32);
        ck_assert_int_eq(l->units[group->unit].groups[group->trainable ? 0 : l->units[group->unit].n_groups - 1], g);
        ck_assert(group->trainable == (l->units[group->unit].trained == g));
        for (int32_t i = 0; i < group->n_members; i++) {
            const weft_parameter *p = &d->parameters[group->members[i]];
            ck_assert(i == 0 || group->members[i] > group->members[i - 1]);
            ck_assert_int_eq(p->group, g);
            ck_assert_int_eq(p->unit, group->unit);
            ck_assert_int_eq(p->trainable, group->trainable);
            ck_assert_int_ge(p->offset, at);
            ck_assert_int_lt(p->offset, at + l->grid);
            ck_assert_int_eq(layout_offset(l, p) % (4 * l->grid), 0);
            at = p->offset + p->numel;
            used += p->numel;
        }
        ck_assert_int_eq(group->used, used);
        ck_assert_int_ge(group->numel, at);
        ck_assert_int_lt(group->numel, at + l->grid);
        members += group->n_members;
        end += group->numel;
        if (g == l->n_trainable_groups - 1) ck_assert_int_eq(l->trainable_numel, end);
    }
    ck_assert_int_eq(members, d->n_parameters);
    ck_assert_int_eq(l->numel, end);
}

TEST(blocks_are_units_and_the_rest_is_the_root) {
    weft_declared *d = golden("llama-tied");
    weft_layout *l = layout_of(d);
    const char *const names[] = {"root", "model.layers.0", "model.layers.1", "model.layers.2"};
    check_layout(l, d);
    ck_assert_int_eq(l->n_units, 4);
    ck_assert_int_eq(l->n_groups, 4);
    ck_assert_int_eq(l->n_trainable_groups, 4);
    for (int i = 0; i < 4; i++) ck_assert_str_eq(l->units[i].name, names[i]);
    ck_assert_int_eq(l->groups[0].n_members, 2); /* the embedding, which is also the head; the final norm */
    ck_assert_int_eq(l->groups[1].n_members, 9);
    weft_layout_destroy(l);
    weft_declared_destroy(d);
}

TEST(the_policy_sees_the_tree_with_tied_storage_once) {
    weft_declared *d = golden("llama-tied");
    weft_layout *l = layout_of(d);
    const int32_t head = weft_declared_module(d, "lm_head"), block = weft_declared_module(d, "model.layers.1");
    ck_assert_int_eq((int32_t)n_seen, d->n_modules);
    ck_assert_int_eq(seen[0].parameters, weft_declared_numel(d, false));
    ck_assert_int_eq(seen[0].own_parameters, 0);
    ck_assert_int_eq(seen[head].parameters, 0);
    ck_assert_str_eq(seen[head].class_name, "Linear");
    ck_assert_int_eq(seen[block].is_block, 1);
    ck_assert_int_eq(seen[block].parameters, 4 * 24 * 24 + 3 * 24 * 41 + 2 * 24);
    ck_assert_int_eq(seen[weft_declared_module(d, "model.layers")].is_block, 0);
    ck_assert_int_eq(seen[weft_declared_module(d, "model.layers.1.mlp")].is_block, 0);
    ck_assert_int_eq(seen[weft_declared_module(d, "model.embed_tokens")].own_parameters, 97 * 24);
    for (uint32_t m = 0; m < n_seen; m++) ck_assert_int_lt(seen[m].parent, (int32_t)m); /* parents first */
    weft_layout_destroy(l);
    weft_declared_destroy(d);
}

TEST(the_deepest_unit_takes_a_parameter) {
    weft_declared *d = golden("llama-gqa");
    weft_layout *l = NULL;
    unit_class = "LlamaMLP";
    l = layout_of(d);
    check_layout(l, d);
    ck_assert_int_eq(l->n_units, 3);
    ck_assert_str_eq(l->units[1].name, "model.layers.0.mlp");
    ck_assert_int_eq(l->groups[1].n_members, 3);
    weft_layout_destroy(l);
    unit_class = ""; /* every module: inner units take precedence, and a unit without parameters is dropped */
    l = layout_of(d);
    check_layout(l, d);
    ck_assert_int_eq(l->n_units, d->n_parameters);
    ck_assert_str_eq(l->units[0].name, "model.embed_tokens");
    weft_layout_destroy(l);
    weft_declared_destroy(d);
}

TEST(a_single_unit_is_the_root) {
    weft_declared *d = golden("llama-gqa");
    const char *const classes[] = {NULL, "LlamaForCausalLM"};
    for (int i = 0; i < 2; i++) {
        weft_layout *l = NULL;
        unit_class = classes[i];
        l = layout_of(d);
        check_layout(l, d);
        ck_assert_int_eq(l->n_units, 1);
        ck_assert_str_eq(l->units[0].name, "root");
        weft_layout_destroy(l);
    }
    weft_declared_destroy(d);
}

TEST(frozen_groups_stand_behind_all_trained_ones) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = golden("llama-tied");
    weft_layout *l = NULL;
    ck_assert_ok(weft_declared_select(d, "*norm.weight,last:1", &err), err);
    l = layout_of(d);
    check_layout(l, d);
    ck_assert_int_eq(l->n_units, 4);
    ck_assert_int_eq(l->n_trainable_groups, 4);
    ck_assert_int_eq(l->n_groups, 7); /* the last block has no frozen part */
    ck_assert_int_eq(l->units[3].n_groups, 1);
    ck_assert_int_eq(seen[weft_declared_module(d, "model.layers.0")].trainable, 2 * 24);
    weft_layout_destroy(l);
    ck_assert_ok(weft_declared_select(d, "head", &err), err);
    l = layout_of(d);
    check_layout(l, d);
    ck_assert_int_eq(l->n_trainable_groups, 1);
    ck_assert_int_eq(l->units[1].trained, -1);
    ck_assert_int_eq(weft_declared_numel(d, true), 97 * 24);
    weft_layout_destroy(l);
    weft_declared_destroy(d);
}

/* A LLaMA of this width: matrix sizes are multiples of width^2, norms have `width` elements. */
static weft_declared *model_of(int width, int layers) {
    char text[512];
    scratch_make();
    (void)snprintf(
        text, sizeof text,
        "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d,"
        " \"num_attention_heads\": 4, \"vocab_size\": %d}",
        width, 4 * width, layers, 2 * width);
    write_text(scratch_path("config.json"), text);
    weft_declared *d = llama_declared(scratch_path("config.json"));
    scratch_remove();
    return d;
}

static double padding(const weft_declared *d, int64_t grid) {
    double more = 0;
    for (int32_t p = 0; p < d->n_parameters; p++) more += (double)((grid - d->parameters[p].numel % grid) % grid);
    return more / (double)weft_declared_numel(d, false);
}

TEST(the_grid_is_the_largest_that_pads_by_less_than_two_percent) {
    static const struct {
        int width, layers;
        int64_t grid;
    } models[] = {{2048, 2, 16384}, {512, 2, 16384}, {288, 6, 4096}, {128, 2, 2048}, {24, 1, 64}};
    for (int i = 0; i < 5; i++) {
        weft_declared *d = model_of(models[i].width, models[i].layers);
        weft_layout *l = layout_of(d);
        check_layout(l, d);
        if (l->grid > 64) ck_assert_double_lt(padding(d, l->grid), 0.02);
        if (l->grid < 16384) ck_assert_double_ge(padding(d, 2 * l->grid), 0.02);
        ck_assert_int_eq(l->grid, models[i].grid);
        weft_layout_destroy(l);
        weft_declared_destroy(d);
    }
}

TEST(the_grid_does_not_depend_on_policy_or_trained_parts) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = model_of(288, 2);
    const char *const classes[] = {NULL, "", "LlamaDecoderLayer"}, *const trained[] = {"all", "head", "first:1"};
    int64_t grid = 0, numel = 0;
    for (int i = 0; i < 3; i++) {
        weft_layout *l = NULL;
        unit_class = classes[i];
        ck_assert_ok(weft_declared_select(d, trained[i], &err), err);
        l = layout_of(d);
        ck_assert(i == 0 || (l->grid == grid && l->numel == numel));
        grid = l->grid;
        numel = l->numel;
        weft_layout_destroy(l);
    }
    weft_declared_destroy(d);
}

TEST(a_policy_that_fails_is_named) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = golden("llama-gqa");
    weft_layout *l = NULL;
    policy_status = WEFT_E_USER;
    ck_assert_int_eq(weft_layout_create(&l, d, &fixture_host, &policy, NULL, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "failed in its units without an error message");
    ck_assert_ptr_null(l);
    weft_declared_destroy(d);
}

static const char *const mistakes[] = {
    "",
    "claims model.embed_tokens.weight more than once: for unit two, and then for unit one",
    "claims lm_head.weight more than once: for unit root, and then for unit root",
    "for unit 1, and it has created 1",
    "for unit -2, and it has created 1",
    "claims parameter 21; the model has 0 to 20",
    "claims parameter -1",
    "the rest of module 30; the model has 0 to 29",
    "names a unit 'root'",
    "names a unit ''",
    "names a unit ''",
    "two units with the name 'one'",
    "leaves out lm_head.weight of 21 parameters. Fix: ",
    "leaves out model.embed_tokens.weight and 20 more of 21 parameters",
};
#define N_MISTAKES (int)(LENGTH(mistakes))

TEST_RANGE(rejects_invalid_claims_by_name, 1, N_MISTAKES) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = golden("llama-gqa");
    weft_layout *l = NULL;
    mistake = _i;
    ck_assert_int_eq(weft_layout_create(&l, d, &fixture_host, &policy, NULL, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, mistakes[_i]);
    ck_assert_ptr_null(l);
    weft_declared_destroy(d);
}

int main(void) {
    return run_tests(test_case("layout", 0, setup, NULL));
}
