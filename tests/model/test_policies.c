/* Wrap policies of the build tree: their units of a model, and their errors. Each is called two times and must return
 * the same. */
#include "llama.h"
#include "suite.h"
#include "model/layout.h"

static weft_declared *declared;

static void setup(void) {
    declared = llama_declared(llama_golden("llama-tied/config.json"));
}

static void teardown(void) {
    weft_declared_destroy(declared);
}

static weft_status ask(weft_layout **out, const char *name, const void *config, weft_error *err) {
    return weft_layout_create(out, declared, &fixture_host, built_plugin(name)->table, config, err);
}

/* Returns the unit names, each followed by a blank. */
static const char *units_of(const char *policy, const void *config) {
    static char names[2][2000];
    weft_error err = WEFT_ERROR_INIT;
    for (int time = 0; time < 2; time++) {
        weft_layout *layout = NULL;
        size_t used = 0;
        ck_assert_ok(ask(&layout, policy, config, &err), err);
        names[time][0] = '\0';
        for (int32_t u = 0; u < layout->n_units; u++) {
            used += (size_t)snprintf(names[time] + used, sizeof names[time] - used, "%s ", layout->units[u].name);
            ck_assert_int_eq(layout->units[u].is_root, strcmp(layout->units[u].name, "root") == 0);
        }
        weft_layout_destroy(layout);
    }
    ck_assert_str_eq(names[0], names[1]);
    return names[0];
}

static const weft_parameter *parameter(const char *name) {
    const int32_t p = weft_declared_find(declared, name);
    ck_assert_int_ge(p, 0);
    return &declared->parameters[p];
}

/* ---- block, whole ---- */

TEST(block_makes_a_unit_of_each_block_and_whole_makes_none) {
    ck_assert_str_eq(units_of("policy-block", NULL), "root model.layers.0 model.layers.1 model.layers.2 ");
    ck_assert_str_eq(units_of("policy-whole", NULL), "root ");
}

/* ---- class ---- */

static const char *units_of_classes(const char *classes) {
    return units_of("policy-class", &classes);
}

TEST(class_takes_names_and_parts_of_names) {
    static const char *const blocks[] = {"LlamaDecoderLayer", "layer", "LAYER", "DecoderL", "LlamaDecoderLayer,layer"};
    for (int i = 0; i < 5; i++)
        ck_assert_str_eq(units_of_classes(blocks[i]), "root model.layers.0 model.layers.1 model.layers.2 ");
    ck_assert_str_eq(units_of_classes("Embedding"), "model.embed_tokens root ");
    ck_assert_ptr_nonnull(strstr(units_of_classes("linear"), "model.layers.2.mlp.down_proj "));
    ck_assert_str_eq(units_of_classes("LlamaForCausalLM"), "root ");
}

TEST(the_inner_module_takes_its_parameters_first) {
    ck_assert_str_eq(units_of_classes("LlamaDecoderLayer,LlamaMLP"),
                     "root model.layers.0 model.layers.0.mlp model.layers.1 model.layers.1.mlp model.layers.2 "
                     "model.layers.2.mlp ");
    ck_assert_str_eq(units_of_classes("LlamaMLP,LlamaDecoderLayer"), units_of_classes("layer,mlp"));
    ck_assert_int_eq(parameter("model.layers.1.mlp.up_proj.weight")->unit, 4);
    ck_assert_int_eq(parameter("model.layers.1.post_attention_layernorm.weight")->unit, 3);
}

TEST(a_tied_parameter_goes_with_its_first_user) {
    ck_assert_str_eq(units_of_classes("Embedding,Linear"), units_of_classes("Linear,Embedding"));
    ck_assert_ptr_null(strstr(units_of_classes("Embedding,Linear"), "lm_head"));
    ck_assert_int_eq(parameter("lm_head.weight")->unit, parameter("model.embed_tokens.weight")->unit);
}

TEST(a_class_that_is_not_there_is_refused_with_those_that_are) {
    const char *const asked[] = {"LlamaDecodeLayer", "layer,LlamaMPL", ""};
    const char *const says[] = {"classes has 'LlamaDecodeLayer', which matches no class of this model. The "
                                "nearest is LlamaDecoderLayer; the classes are: LlamaForCausalLM, LlamaModel, ",
                                "'LlamaMPL', which matches no class of this model. The nearest is LlamaMLP",
                                "classes is empty"};
    for (int i = 0; i < 3; i++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_layout *layout = NULL;
        ck_assert_int_eq(ask(&layout, "policy-class", &asked[i], &err), WEFT_E_USER);
        ck_assert_says(err, says[i]);
        ck_assert_ptr_null(layout);
    }
}

/* ---- size ---- */

static const char *units_of_size(int64_t most) {
    return units_of("policy-size", &most);
}

/* llama-tied: an embedding of 97 x 24 = 2328, three blocks of 5304 (attention 2304, MLP 2952, norms 24), a norm. */
TEST(size_packs_what_follows_one_another) {
    const int64_t all = weft_declared_numel(declared, false), block = 4 * 24 * 24 + 3 * 24 * 41 + 2 * 24;
    ck_assert_int_eq(all, 97 * 24 + 3 * block + 24);
    ck_assert_str_eq(units_of_size(all), "root ");
    ck_assert_str_eq(units_of_size(all - 1), "model.embed_tokens..model.layers model.norm ");
    ck_assert_str_eq(units_of_size(2 * block),
                     "model.embed_tokens..model.layers.0 model.layers.1..model.layers.2 model.norm ");
    ck_assert_str_eq(units_of_size(block),
                     "model.embed_tokens model.layers.0 model.layers.1 model.layers.2 model.norm ");
}

TEST(size_cuts_a_block_that_is_too_large_but_no_module_that_fits) {
    const char *units = units_of_size(2976); /* an MLP and a norm */
    ck_assert_str_eq(units,
                     "model.embed_tokens model.layers.0.self_attn model.layers.0.mlp..model.layers.0.input_layernorm "
                     "model.layers.0.post_attention_layernorm..model.layers.1.self_attn "
                     "model.layers.1.mlp..model.layers.1.input_layernorm "
                     "model.layers.1.post_attention_layernorm..model.layers.2.self_attn "
                     "model.layers.2.mlp..model.layers.2.input_layernorm "
                     "model.layers.2.post_attention_layernorm..model.norm ");
    ck_assert_int_eq(parameter("model.layers.2.mlp.up_proj.weight")->unit,
                     parameter("model.layers.2.mlp.down_proj.weight")->unit);
}

TEST(size_gives_a_large_module_a_unit_of_its_own) {
    for (int64_t most = 1; most < 20000; most += most < 3000 ? 97 : 1009) {
        weft_error err = WEFT_ERROR_INIT;
        weft_layout *layout = NULL;
        ck_assert_ok(ask(&layout, "policy-size", &most, &err), err);
        for (int32_t u = 0; u < layout->n_units; u++) {
            const weft_group *group = &layout->groups[layout->units[u].groups[0]];
            if (group->used > most) ck_assert_int_eq(group->n_members, 1);
            if (u + 1 < layout->n_units) { /* no part of the next unit would have fitted into this one */
                const weft_group *next = &layout->groups[layout->units[u + 1].groups[0]];
                ck_assert_int_gt(group->used + next->used, most);
            }
        }
        weft_layout_destroy(layout);
    }
}

/* ---- names ---- */

static char told[2000];

static void keep_line(const weft_host *host, int32_t level, const char *text) {
    if (level == WEFT_LOG_WARN) (void)snprintf(told, sizeof told, "%s", text);
}

/* The name of the only unit. */
static weft_status name_one(const weft_host *host, const void *config, const weft_policy_job *job,
                            const weft_wrap *wrap, weft_error *err) {
    wrap->claim(wrap->ctx, wrap->unit(wrap->ctx, config), 0);
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

/* In a child process, which has not reported the warning yet. */
TESTS(warns_of_units_without_a_module, 5) {
    static const struct {
        const char *name, *says;
    } rows[] = {
        {"model.layers.1", NULL},
        {"model.layers.0..model.layers.2", NULL},
        {"model.lyaers.1",
         "calls a unit model.lyaers.1, which is no module of this model; did you mean model.layers.1? A "
         "unit is called by its module's path, or \"first..last\" of several. The modules are: model, "
         "model.embed_tokens, model.layers, model.layers.0, "},
        {"model.layers.0..model.lyaers.1", "calls a unit model.layers.0..model.lyaers.1, which is no module"},
        {"everything", "calls a unit everything, which is no module of this model. A unit is called"},
    };
    static const weft_policy_plugin policy = {(uint32_t)sizeof policy, 0, name_one};
    weft_host host = fixture_host;
    weft_error err = WEFT_ERROR_INIT;
    weft_layout *layout = NULL;
    host.log = keep_line;
    for (int time = 0; time < 2; time++) {
        told[0] = '\0';
        ck_assert_ok(weft_layout_create(&layout, declared, &host, &policy, rows[_i].name, &err), err);
        weft_layout_destroy(layout);
        if (rows[_i].says == NULL || time == 1) ck_assert_str_eq(told, "");
        else ck_assert_msg(strstr(told, rows[_i].says) != NULL, "%s", told);
    }
}

int main(void) {
    return run_tests(test_case("policies", 0, setup, teardown));
}
