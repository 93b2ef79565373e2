/* config.json of a LLaMA: accepted keys, in both spellings, and errors with the key's name. */
#include <jansson.h>
#include <math.h>

#include "llama.h"
#include "suite.h"

/* Small, untied and valid; tests change single keys. */
static const char base[] = "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 16,"
                           " \"intermediate_size\": 20, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
                           " \"vocab_size\": 11, \"max_position_embeddings\": 32}";

/* Reads base with `keys` (an object) set; a value "-" removes the key. */
static weft_status read_with(weft_declared **out, const char *keys, const char *ignore, weft_error *err) {
    json_t *config = json_loads(base, 0, NULL), *changes = json_loads(keys, 0, NULL), *value = NULL;
    const char *key = NULL;
    char *text = NULL;
    weft_status status = WEFT_OK;
    ck_assert_msg(changes != NULL, "not JSON: %s", keys);
    json_object_foreach(changes, key, value) {
        const char *word = json_string_value(value);
        if (word != NULL && strcmp(word, "-") == 0) json_object_del(config, key);
        else json_object_set(config, key, value);
    }
    text = json_dumps(config, 0);
    write_text(scratch_path("config.json"), text);
    status = llama_declare(out, scratch_path("config.json"), ignore, err);
    free(text);
    json_decref(changes);
    json_decref(config);
    return status;
}

static weft_declared *declared_with(const char *keys) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    const weft_status status = read_with(&d, keys, "", &err);
    ck_assert_msg(status == WEFT_OK, "%s: %s", keys, err.text);
    return d;
}

static const weft_parameter *parameter(const weft_declared *d, const char *name) {
    const int32_t index = weft_declared_find(d, name);
    ck_assert_msg(index >= 0, "no parameter %s", name);
    return &d->parameters[index];
}

/* (rows, d): cosines, then sines. */
static float *rope(const weft_declared *d, int64_t rows) {
    weft_error err = WEFT_ERROR_INIT;
    float *table = calloc((size_t)(rows * d->tables[0]->width), sizeof *table);
    ck_assert_ok(d->tables[0]->fill(d->model, "rope", rows, table, &err), err);
    return table;
}

/* ---- accepted ---- */

TEST(tree_parameters_and_segments_are_those_of_the_checkpoint) {
    weft_declared *d = declared_with("{\"num_key_value_heads\": 2}");
    const char *const names[] = {"model.embed_tokens.weight",
                                 "model.layers.0.self_attn.q_proj.weight",
                                 "model.layers.0.self_attn.k_proj.weight",
                                 "model.layers.0.self_attn.v_proj.weight",
                                 "model.layers.0.self_attn.o_proj.weight",
                                 "model.layers.0.mlp.gate_proj.weight",
                                 "model.layers.0.mlp.up_proj.weight",
                                 "model.layers.0.mlp.down_proj.weight",
                                 "model.layers.0.input_layernorm.weight",
                                 "model.layers.0.post_attention_layernorm.weight"};
    const char *const segments[] = {"embed", "layers.0.attn", "layers.0.mlp", "layers.1.attn", "layers.1.mlp", "head"};
    ck_assert_int_eq(d->n_parameters, 1 + 2 * 9 + 2);
    for (int32_t i = 0; i < 10; i++) ck_assert_str_eq(d->parameters[i].name, names[i]);
    ck_assert_str_eq(d->parameters[19].name, "model.norm.weight");
    ck_assert_str_eq(d->parameters[20].name, "lm_head.weight");
    ck_assert_int_eq(d->n_segments, 6);
    for (int32_t i = 0; i < 6; i++) ck_assert_str_eq(d->segments[i].name, segments[i]);
    ck_assert_int_eq(parameter(d, "model.layers.1.self_attn.k_proj.weight")->dims[0], 8);
    ck_assert_int_eq(parameter(d, "model.layers.1.self_attn.k_proj.weight")->dims[1], 16);
    ck_assert_int_eq(parameter(d, "model.layers.1.mlp.down_proj.weight")->dims[0], 16);
    ck_assert_int_eq(parameter(d, "model.layers.1.mlp.down_proj.weight")->dims[1], 20);
    ck_assert_int_eq(parameter(d, "model.norm.weight")->rank, 1);
    ck_assert_str_eq(d->modules[weft_declared_module(d, "model.layers.1")]->class_name, "LlamaDecoderLayer");
    ck_assert_str_eq(d->modules[weft_declared_module(d, "model.layers.1.input_layernorm")]->class_name, "LlamaRMSNorm");
    ck_assert_str_eq(d->modules[weft_declared_module(d, "lm_head")]->class_name, "Linear");
    ck_assert_int_eq(d->carry_width, 16);
    ck_assert_int_eq(d->info.vocab_size, 11);
    ck_assert_int_eq(d->info.max_context, 32);
    ck_assert_int_eq(d->info.n_layers, 2);
    ck_assert(d->info.bos == -1 && d->info.eos == -1);
    weft_declared_destroy(d);
}

TEST(missing_keys_have_the_defaults_of_transformers) {
    weft_declared *d = declared_with("{\"max_position_embeddings\": \"-\", \"architectures\": \"-\"}");
    float *table = rope(d, 2);
    ck_assert_int_eq(d->info.max_context, 2048);
    ck_assert_int_eq(parameter(d, "model.layers.0.self_attn.k_proj.weight")->dims[0], 16); /* as many as query heads */
    ck_assert_double_eq(parameter(d, "model.embed_tokens.weight")->init_std, 0.02);
    ck_assert_ptr_ne(parameter(d, "lm_head.weight"), parameter(d, "model.embed_tokens.weight"));
    ck_assert_float_eq(table[4], cosf(1)); /* head_dim 4: two cosines, two sines */
    ck_assert_double_eq_tol((double)table[5], cos(0.01), 1e-7);
    free(table);
    weft_declared_destroy(d);
}

/* Keys, and the resulting base of the rotation. */
static const struct {
    const char *keys;
    double theta;
} thetas[] = {
    {"{\"rope_theta\": 500000}", 500000},
    {"{\"rope_theta\": 500000.0, \"rope_scaling\": null}", 500000},
    {"{\"rope_parameters\": {\"rope_theta\": 20000.0, \"rope_type\": \"default\"}}", 20000},
    {"{\"rope_parameters\": {\"rope_type\": \"default\"}, \"rope_theta\": 3000.0}", 3000},
    {"{\"rope_parameters\": {\"rope_theta\": 7e3}, \"rope_theta\": 7000}", 7000},
    {"{\"rope_scaling\": {\"type\": \"default\"}, \"rope_theta\": 99.5}", 99.5},
    {"{\"rope_parameters\": {\"partial_rotary_factor\": 1.0, \"factor\": null}}", 10000},
    {"{\"rope_parameters\": null, \"rope_theta\": null}", 10000},
};

TESTS(the_base_of_the_rotation_is_found_in_either_spelling, LENGTH(thetas)) {
    weft_declared *d = declared_with(thetas[_i].keys);
    float *table = rope(d, 32);
    const float frequency = 1.0f / (float)sqrt(thetas[_i].theta); /* i = 1 of head_dim 4: exponent 1/2 */
    for (int row = 0; row < 32; row++) {
        ck_assert_double_eq_tol((double)table[row * 4 + 1], cos((double)((float)row * frequency)), 1e-6);
        ck_assert_double_eq_tol((double)table[row * 4 + 3], sin((double)((float)row * frequency)), 1e-6);
        ck_assert_double_eq_tol((double)table[row * 4], cos(row), 1e-6);
        ck_assert_double_eq_tol((double)table[row * 4 + 2], sin(row), 1e-6);
    }
    free(table);
    weft_declared_destroy(d);
}

/* Published configurations contain these keys; they do not change the numbers. */
static const char *const accepted[] = {
    "{\"use_cache\": true, \"transformers_version\": \"4.31.0.dev0\", \"_name_or_path\": \"x/y\", \"torch_dtype\": "
    "\"float16\"}",
    "{\"full_attn_mod\": 1, \"interpolate_factor\": 1, \"lm_head_bias\": false}",
    "{\"attention_bias\": false, \"mlp_bias\": false, \"attention_dropout\": 0.0, \"pretraining_tp\": 1}",
    "{\"rope_scaling\": null, \"sliding_window\": null, \"quantization_config\": null, \"dtype\": \"bfloat16\"}",
    "{\"bos_token_id\": 1, \"eos_token_id\": [2, 3]}",
    "{\"pad_token_id\": null, \"bos_token_id\": null, \"eos_token_id\": null}",
    "{\"is_llama_config\": true, \"rope_interleaved\": false, \"transformers.js_config\": {\"dtype\": \"q4\"}}",
    "{\"max_sequence_length\": 2048, \"architectures\": [\"LLaMAForCausalLM\"]}",
    "{\"architectures\": [\"LlamaModel\"]}",
    "{\"hidden_act\": \"swish\", \"layer_types\": [\"full_attention\", \"full_attention\"], \"head_dim\": null}",
    "{\"some_future_key\": null, \"partial_rotary_factor\": 1.0, \"pretraining_tp\": 2}",
    "{\"head_dim\": 6, \"num_attention_heads\": 5}", /* an explicit head_dim need not divide the width */
    "{\"tie_word_embeddings\": null, \"initializer_range\": 0, \"torch_dtype\": null}",
    "{\"num_key_value_heads\": null, \"dtype\": \"torch.float32\"}",
};

TESTS(keys_that_change_nothing_are_passed_over, LENGTH(accepted)) {
    weft_declared_destroy(declared_with(accepted[_i]));
}

TEST(the_first_of_several_ends_of_text_is_given) {
    weft_declared *d = declared_with("{\"bos_token_id\": [5], \"eos_token_id\": [7, 8]}");
    ck_assert(d->info.bos == 5 && d->info.eos == 7);
    weft_declared_destroy(d);
}

TEST(the_padding_is_a_row_that_may_be_counted_from_the_end) {
    static const struct {
        const char *keys;
        int32_t has, row;
    } said[] = {{"{\"pad_token_id\": null}", 0, 0}, {"{\"pad_token_id\": 0}", 1, 0}, {"{\"pad_token_id\": -1}", 1, 10}};
    for (size_t i = 0; i < LENGTH(said); i++) {
        weft_declared *d = declared_with(said[i].keys);
        ck_assert_int_eq(d->weights[0]->has_padding, said[i].has);
        ck_assert_int_eq(d->weights[0]->padding, said[i].row);
        for (int32_t w = 1; w < d->n_weights; w++) ck_assert_int_eq(d->weights[w]->has_padding, 0);
        weft_declared_destroy(d);
    }
}

TEST(accepts_unknown_keys_only_if_ignored) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    const char *keys = "{\"training_note\": \"x\", \"attention_sinks\": 4}";
    ck_assert_int_eq(read_with(&d, keys, "training_note", &err), WEFT_E_USER);
    ck_assert_says(err, "the key attention_sinks (4) is unknown");
    ck_assert_says(err, "[model] ignore = attention_sinks");
    ck_assert_int_eq(read_with(&d, keys, "attention_sink,training_notes", &err), WEFT_E_USER);
    ck_assert_ok(read_with(&d, keys, "training_note,attention_sinks", &err), err);
    weft_declared_destroy(d);
    ck_assert_int_eq(read_with(&d, "{\"sliding_window\": 4}", "sliding_window", &err), WEFT_E_USER);
}

/* ---- errors ---- */

static const struct {
    const char *keys;
    const char *texts[3];
} refused[] = {
    {"{\"model_type\": \"-\"}", {"config.json: model_type is missing"}},
    {"{\"model_type\": \"gemma2\"}", {"model_type is \"gemma2\"", "[model] plugin = gemma2"}},
    {"{\"model_type\": \"mixtral\"}", {"model_type is \"mixtral\"; allowed is \"llama\"", "llama, mistral, qwen2"}},
    {"{\"model_type\": \"mistrel\"}", {"model_type is \"mistrel\"; allowed is \"llama\"", "a plugin of their own"}},
    {"{\"architectures\": [\"LlamaForSequenceClassification\"]}", {"architectures is", "LlamaForCausalLM"}},
    {"{\"hidden_size\": \"-\"}", {"hidden_size is missing"}},
    {"{\"intermediate_size\": null}", {"intermediate_size is missing"}},
    {"{\"vocab_size\": \"-\"}", {"vocab_size is missing"}},
    {"{\"num_hidden_layers\": 0}", {"num_hidden_layers is 0; allowed is an integer from 1 to"}},
    {"{\"num_hidden_layers\": 2.5}", {"num_hidden_layers is 2.5"}},
    {"{\"hidden_size\": \"16\"}", {"hidden_size is \"16\"; allowed is an integer"}},
    {"{\"hidden_size\": 99999999999}", {"hidden_size is 99999999999"}},
    {"{\"hidden_size\": 18}", {"config.json: hidden_size 18 is no multiple of num_attention_heads 4"}},
    {"{\"num_key_value_heads\": 3}", {"num_attention_heads 4 is no multiple of num_key_value_heads 3"}},
    {"{\"num_key_value_heads\": 8}", {"num_key_value_heads 8"}},
    {"{\"num_key_value_heads\": 0}", {"num_key_value_heads is 0"}},
    {"{\"hidden_size\": 12}", {"head_dim 3 (hidden_size over num_attention_heads) is odd"}},
    {"{\"head_dim\": 7}", {"head_dim 7 is odd"}},
    {"{\"head_dim\": -2}", {"head_dim is -2"}},
    {"{\"max_position_embeddings\": -1}", {"max_position_embeddings is -1"}},
    {"{\"rms_norm_eps\": 0}", {"rms_norm_eps is 0; allowed is a number above 0"}},
    {"{\"rms_norm_eps\": \"1e-5\"}", {"rms_norm_eps is \"1e-5\""}},
    {"{\"initializer_range\": -0.1}", {"initializer_range is -0.1"}},
    {"{\"tie_word_embeddings\": \"yes\"}", {"tie_word_embeddings is \"yes\"; allowed is true or false"}},
    {"{\"hidden_act\": \"relu\"}", {"hidden_act is \"relu\"; allowed is \"silu\""}},
    {"{\"attention_bias\": 1}", {"attention_bias is 1; allowed is true or false"}},
    {"{\"mlp_bias\": \"no\"}", {"mlp_bias is \"no\"; allowed is true or false"}},
    {"{\"no_rope_layers\": [1, 0]}", {"no_rope_layers is [1,0]; allowed is null"}},
    {"{\"query_pre_attn_scalar\": 256}", {"query_pre_attn_scalar is 256"}},
    {"{\"rope_local_base_freq\": 1e4}", {"rope_local_base_freq is 10000.0"}},
    {"{\"qkv_bias\": true}", {"qkv_bias"}},
    {"{\"full_attn_mod\": 0}", {"full_attn_mod is 0; allowed is 1"}},
    {"{\"interpolate_factor\": 2}", {"interpolate_factor is 2; allowed is 1"}},
    {"{\"lm_head_bias\": true}", {"lm_head_bias is true; allowed is false"}},
    {"{\"attention_dropout\": 0.1}", {"attention_dropout is 0.1; allowed is 0"}},
    {"{\"embd_pdrop\": 0.1}", {"embd_pdrop"}},
    {"{\"resid_pdrop\": 0.1}", {"resid_pdrop"}},
    {"{\"sliding_window\": 4096}", {"sliding_window is 4096; allowed is null"}},
    {"{\"use_sliding_window\": true}", {"use_sliding_window"}},
    {"{\"attention_chunk_size\": 8192}", {"attention_chunk_size"}},
    {"{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}", {"layer_types is", "full_attention"}},
    {"{\"final_logit_softcapping\": 30.0}", {"final_logit_softcapping is 30"}},
    {"{\"attn_logit_softcapping\": 50.0}", {"attn_logit_softcapping is 50"}},
    {"{\"logits_soft_cap\": 5}", {"logits_soft_cap"}},
    {"{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}", {"quantization_config is {", "gptq"}},
    {"{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4}}",
     {"quantization_config is {", "awq", "[model] base = nf4, int8 or fp8 packs it while it is read"}},
    {"{\"auto_map\": {\"AutoModel\": \"modeling_x.X\"}}", {"auto_map is {"}},
    {"{\"rope_interleaved\": true}", {"rope_interleaved is true"}},
    {"{\"partial_rotary_factor\": 0.5}", {"partial_rotary_factor is 0.5; allowed is 1"}},
    {"{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", {"rope_parameters.partial_rotary_factor is 0.5"}},
    {"{\"rope_theta\": 0}", {"rope_theta is 0; allowed is a number above 0"}},
    {"{\"rope_theta\": \"1e4\"}", {"rope_theta is \"1e4\""}},
    {"{\"rope_parameters\": {\"rope_theta\": -1}}", {"rope_parameters.rope_theta is -1"}},
    {"{\"rope_parameters\": {\"rope_theta\": 5e5}, \"rope_theta\": 1e4}",
     {"rope_theta is set two times", "500000", "10000"}},
    {"{\"rope_parameters\": []}", {"rope_parameters is []"}},
    {"{\"rope_scaling\": {\"type\": \"linear\"}}", {"rope_scaling.factor is missing"}},
    {"{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 0}}",
     {"rope_scaling.factor is 0; allowed is a number above 0"}},
    {"{\"rope_scaling\": {\"type\": \"axial\", \"factor\": 2.0}}", {"rope_scaling.type is \"axial\"", "\"llama3\""}},
    {"{\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\"}}", {"rope_scaling.low_freq_factor is missing"}},
    {"{\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\", \"low_freq_factor\": 4, \"high_freq_factor\": "
     "4}}",
     {"rope_scaling.high_freq_factor is 4 and low_freq_factor 4"}},
    {"{\"rope_parameters\": {\"factor\": 8.0, \"rope_type\": \"yarn\", \"high_freq_factor\": 2}}",
     {"rope_parameters.high_freq_factor is 2", "the type \"yarn\""}},
    {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"long_factor\": [1]}}",
     {"rope_parameters.short_factor is missing"}},
    {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"long_factor\": [1], \"short_factor\": [1, 1]}}",
     {"rope_parameters.long_factor is [1]; allowed is a list of 2 numbers above 0"}},
    {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"long_factor\": [1, -1], \"short_factor\": [1, 1]}}",
     {"rope_parameters.long_factor is [1,-1]"}},
    {"{\"rope_parameters\": {\"rope_theta\": 1e4}, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
     {"rope_parameters and rope_scaling are both set and differ"}},
    {"{\"rope_scaling\": {\"rope_type\": \"default\", \"factor\": 2.0}}", {"rope_scaling.factor is 2.0"}},
    {"{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}}", {"rope_parameters.full_attention is {"}},
    {"{\"bos_token_id\": 11}", {"bos_token_id is 11; allowed is an id below vocab_size 11"}},
    {"{\"eos_token_id\": \"</s>\"}", {"eos_token_id is \"</s>\""}},
    {"{\"pad_token_id\": 11}", {"pad_token_id is 11; allowed is null, or a row of the embedding, from -11 to 10"}},
    {"{\"pad_token_id\": -12}", {"pad_token_id is -12"}},
    {"{\"pad_token_id\": [3]}", {"pad_token_id is [3]"}},
    {"{\"torch_dtype\": \"int8\"}", {"torch_dtype is \"int8\"", "bfloat16"}},
    {"{\"dtype\": \"float64\"}", {"dtype is \"float64\""}},
    {"{\"pretraining_tp\": 0}", {"pretraining_tp is 0"}},
    {"{\"is_encoder_decoder\": true}", {"is_encoder_decoder"}},
    {"{\"num_local_experts\": 8}", {"num_local_experts is 8"}},
    {"{\"per_layer_config\": {\"0\": {}}}", {"per_layer_config"}},
    {"{\"embedding_multiplier\": 12.0}", {"the key embedding_multiplier (12.0) is unknown"}},
    {"{\"logit_scale\": 0.5}", {"the key logit_scale"}},
    {"{\"attention_output_gate\": false}", {"the key attention_output_gate (false) is unknown"}},
};

TESTS(rejects_keys_that_change_the_arithmetic, LENGTH(refused)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    const weft_status status = read_with(&d, refused[_i].keys, "", &err);
    ck_assert_msg(status == WEFT_E_USER, "%s is accepted", refused[_i].keys);
    ck_assert_says(err, scratch_path("config.json"));
    for (int i = 0; i < 3 && refused[_i].texts[i] != NULL; i++) ck_assert_says(err, refused[_i].texts[i]);
}

int main(void) {
    return run_tests(test_case("config.json", 0, scratch_make, scratch_remove));
}
