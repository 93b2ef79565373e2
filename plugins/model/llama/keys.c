/* keys.c: the keys that a config.json may hold, and what the plugin makes of each. What is not listed may change the
 * arithmetic, for all that is known, and is refused by config.c. */
#include "llama.h"

/* clang-format off */

/* Understood by config.c. */
static const char *const understood[] = {
    "model_type", "architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "max_position_embeddings",
    "initializer_range", "rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor", "layer_types",
    "pretraining_tp", "tie_word_embeddings", "torch_dtype", "dtype", "bos_token_id", "eos_token_id", "pad_token_id",
};

/* They leave logits and gradients as they are: bookkeeping of transformers, what its outputs hold, labels of
 * classifiers, defaults of text generation (which files of older releases carry), marks that tools leave. */
static const char *const harmless[] = {
    "_name_or_path", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
    "_attn_implementation_internal", "_flash_attn_2_enabled", "attn_implementation", "transformers_version",
    "transformers.js_config", "use_cache", "return_dict", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "use_return_dict", "torchscript", "use_bfloat16", "tf_legacy_loss",
    "gradient_checkpointing", "chunk_size_feed_forward", "tie_encoder_decoder", "tie_last_hidden_states",
    "cross_attention_hidden_size", "is_decoder", "id2label", "label2id", "num_labels", "problem_type",
    "finetuning_task", "task_specific_params", "tokenizer_class", "prefix", "sep_token_id", "unk_token_id",
    "decoder_start_token_id", "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "max_sequence_length", "max_window_layers", "is_llama_config",
    "unsloth_fixed", "unsloth_version", "model_name", "license",
};

/* They change the arithmetic, and this value (or null) is what the plugin computes. */
static const struct {
    const char *name, *allowed;
} off[] = {
    {"attention_bias",       "false"}, {"attention_dropout",            "0"}, {"sliding_window",          "null"},
    {"mlp_bias",             "false"}, {"hidden_dropout",               "0"}, {"attention_chunk_size",    "null"},
    {"qkv_bias",             "false"}, {"hidden_dropout_prob",          "0"}, {"logit_softcap",           "null"},
    {"use_bias",             "false"}, {"attention_probs_dropout_prob", "0"}, {"logits_soft_cap",         "null"},
    {"bias",                 "false"}, {"embd_pdrop",                   "0"}, {"logit_cap",               "null"},
    {"use_sliding_window",   "false"}, {"resid_pdrop",                  "0"}, {"final_logit_softcapping", "null"},
    {"rope_interleaved",     "false"}, {"attn_pdrop",                   "0"}, {"attn_logit_softcapping",  "null"},
    {"use_qk_norm",          "false"}, {"num_experts",                  "0"}, {"quantization_config",     "null"},
    {"qk_norm",              "false"}, {"num_local_experts",            "0"}, {"compression_config",      "null"},
    {"is_encoder_decoder",   "false"}, {"pruned_heads",                "{}"}, {"auto_map",                "null"},
    {"add_cross_attention",  "false"}, {"no_rope_layers",            "null"}, {"per_layer_config",        "null"},
};

/* clang-format on */

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static int listed(const char *const *names, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], key) == 0) return 1;
    return 0;
}

llama_key llama_key_find(const char **allowed, const char *key) {
    if (listed(understood, LENGTH(understood), key)) return LLAMA_KEY_UNDERSTOOD;
    if (listed(harmless, LENGTH(harmless), key)) return LLAMA_KEY_HARMLESS;
    for (size_t i = 0; i < LENGTH(off); i++) {
        if (strcmp(off[i].name, key) != 0) continue;
        *allowed = off[i].allowed;
        return LLAMA_KEY_OFF;
    }
    return LLAMA_KEY_UNKNOWN;
}
