/* keys.c: the known keys of config.json and their treatment. An unlisted key may change the arithmetic, so config.c
 * rejects it. */
#include "decoder.h"

/* Families that read keys which other families do not. */
enum {
    BIASED = LLAMA | QWEN3 | SMOLLM3 | OLMO2 | GEMMA | GEMMA2 | GEMMA3,
    WINDOWED = MISTRAL | QWEN2 | QWEN3 | SMOLLM3 | GEMMA2 | GEMMA3 | PHI3,
    GEMMAS = GEMMA | GEMMA2 | GEMMA3
};

/* clang-format off */

/* Read by config.c and its parts for every family. */
static const char *const understood[] = {
    "model_type", "architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "max_position_embeddings",
    "original_max_position_embeddings", "initializer_range", "rope_theta", "rope_parameters", "rope_scaling",
    "partial_rotary_factor", "layer_types", "pretraining_tp", "tie_word_embeddings", "torch_dtype", "dtype",
    "bos_token_id", "eos_token_id", "pad_token_id",
};

/* Do not change logits or gradients: bookkeeping of transformers, contents of its outputs, labels of classifiers,
 * defaults of text generation (in files of older releases), marks of tools. */
static const char *const harmless[] = {
    "_name_or_path", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
    "_attn_implementation_internal", "_flash_attn_2_enabled", "attn_implementation", "transformers_version",
    "transformers.js_config", "use_cache", "cache_implementation", "return_dict", "return_dict_in_generate",
    "output_attentions", "output_hidden_states", "output_scores", "use_return_dict", "torchscript", "use_bfloat16",
    "tf_legacy_loss", "gradient_checkpointing", "chunk_size_feed_forward", "tie_encoder_decoder",
    "tie_last_hidden_states", "cross_attention_hidden_size", "is_decoder", "id2label", "label2id", "num_labels",
    "problem_type", "finetuning_task", "task_specific_params", "tokenizer_class", "prefix", "sep_token_id",
    "unk_token_id", "decoder_start_token_id", "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "max_sequence_length", "is_llama_config", "unsloth_fixed",
    "unsloth_version", "model_name", "license",
};

/* Read for some families. For others this value (or null) is the supported one; NULL: any value, without effect. */
static const struct {
    const char *name;
    uint32_t families;
    const char *allowed;
} some[] = {
    {"attention_bias",          BIASED,                    "false"},
    {"mlp_bias",                LLAMA | SMOLLM3,           "false"},
    {"sliding_window",          WINDOWED,                  "null"},
    {"use_sliding_window",      QWEN2 | QWEN3 | SMOLLM3,   "false"},
    {"max_window_layers",       QWEN2 | QWEN3,             NULL},
    {"sliding_window_size",     GEMMA2,                    "null"}, /* in its first files, in addition to
                                                                       sliding_window */
    {"sliding_window_pattern",  GEMMA3,                    "null"},
    {"_sliding_window_pattern", 0,                         NULL}, /* redundant with layer_types */
    {"no_rope_layers",          SMOLLM3,                   "null"},
    {"no_rope_layer_interval",  SMOLLM3,                   "null"},
    {"rope_local_base_freq",    GEMMA3,                    "null"},
    {"hidden_activation",       GEMMAS,                    "null"},
    {"query_pre_attn_scalar",   GEMMA2 | GEMMA3,           "null"},
    {"attn_logit_softcapping",  GEMMA2,                    "null"},
    {"final_logit_softcapping", GEMMA2 | GEMMA3,           "null"},
};

/* Change the arithmetic; the plugin supports only this value (or null). */
static const struct {
    const char *name, *allowed;
} off[] = {
    {"attention_dropout",            "0"},     {"hidden_dropout",       "0"},     {"attention_chunk_size",  "null"},
    {"attention_probs_dropout_prob", "0"},     {"hidden_dropout_prob",  "0"},     {"logit_softcap",         "null"},
    {"embd_pdrop",                   "0"},     {"resid_pdrop",          "0"},     {"logits_soft_cap",       "null"},
    {"attn_pdrop",                   "0"},     {"num_experts",          "0"},     {"logit_cap",             "null"},
    {"qkv_bias",                     "false"}, {"num_local_experts",    "0"},     {"quantization_config",   "null"},
    {"use_bias",                     "false"}, {"use_qk_norm",          "false"}, {"compression_config",    "null"},
    {"bias",                         "false"}, {"qk_norm",              "false"}, {"per_layer_config",      "null"},
    {"rope_interleaved",             "false"}, {"use_mrope",            "false"}, {"clip_qkv",              "null"},
    {"is_encoder_decoder",           "false"}, {"add_cross_attention",  "false"}, {"vision_config",         "null"},
    {"use_bidirectional_attention",  "false"}, {"pruned_heads",         "{}"},
    {"dual_chunk_attention_config",  "null"},  {"lm_head_bias",         "false"}, {"full_attn_mod",         "1"},
    {"interpolate_factor",           "1"},
};

/* clang-format on */

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static int listed(const char *const *names, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], key) == 0) return 1;
    return 0;
}

static decoder_key off_or_harmless(const char **allowed, const char *value) {
    *allowed = value;
    return value == NULL ? DECODER_KEY_HARMLESS : DECODER_KEY_OFF;
}

decoder_key decoder_key_find(const char **allowed, const family *of, const char *key) {
    if (listed(understood, LENGTH(understood), key)) return DECODER_KEY_UNDERSTOOD;
    if (listed(harmless, LENGTH(harmless), key)) return DECODER_KEY_HARMLESS;
    if (strcmp(key, "auto_map") == 0) return off_or_harmless(allowed, of->traits & OWN_CODE ? NULL : "null");
    for (size_t i = 0; i < LENGTH(some); i++) {
        if (strcmp(some[i].name, key) != 0) continue;
        return some[i].families & of->id ? DECODER_KEY_UNDERSTOOD : off_or_harmless(allowed, some[i].allowed);
    }
    for (size_t i = 0; i < LENGTH(off); i++)
        if (strcmp(off[i].name, key) == 0) return off_or_harmless(allowed, off[i].allowed);
    return DECODER_KEY_UNKNOWN;
}
