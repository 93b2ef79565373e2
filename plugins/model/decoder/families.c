/* families.c: the differences between families, one row each. */
#include "decoder.h"

#include <stdio.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Norms before each part (LLaMA), after it (OLMo 2), or both (Gemma 2). */
#define NORMS_BEFORE                                                                                                   \
    { "input_layernorm", NULL, "post_attention_layernorm", NULL }
#define NORMS_AFTER                                                                                                    \
    { NULL, "post_attention_layernorm", NULL, "post_feedforward_layernorm" }
#define NORMS_AROUND                                                                                                   \
    { "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm" }

/* clang-format off */
static const family families[] = {
    {"llama", LLAMA, "Llama", 0, NORMS_BEFORE, WINDOW_NOWHERE, 0,
     {.context = 2048, .theta = 1e4, .eps = 1e-6, .activation = "silu"}},

    {"mistral", MISTRAL, "Mistral", 0, NORMS_BEFORE, WINDOW_EVERYWHERE, 0,
     {.kv_heads = 8, .context = 131072, .window = 4096, .theta = 1e4, .eps = 1e-6, .activation = "silu"}},

    {"qwen2", QWEN2, "Qwen2", QKV_BIASES, NORMS_BEFORE, WINDOW_LATE, 0,
     {.kv_heads = 32, .context = 32768, .window = 4096, .theta = 1e4, .eps = 1e-6, .activation = "silu"}},

    {"qwen3", QWEN3, "Qwen3", HEAD_NORMS, NORMS_BEFORE, WINDOW_LATE, 0,
     {.kv_heads = 32, .head_dim = 128, .context = 32768, .window = 4096, .theta = 1e4, .eps = 1e-6,
      .activation = "silu"}},

    {"smollm3", SMOLLM3, "SmolLM3", 0, NORMS_BEFORE, WINDOW_WITHOUT_ROPE, 0,
     {.kv_heads = 4, .context = 32768, .theta = 2e6, .eps = 1e-6, .activation = "silu", .has_pad = 1, .pad = 128004,
      .tied = 1}},

    {"olmo2", OLMO2, "Olmo2", WHOLE_NORMS, NORMS_AFTER, WINDOW_NOWHERE, 0,
     {.context = 2048, .theta = 1e4, .eps = 1e-5, .activation = "silu", .has_pad = 1, .pad = 1}},

    {"gemma", GEMMA, "Gemma", GAIN_FROM_ONE | SCALED_EMBED | GELU_IS_TANH, NORMS_BEFORE, WINDOW_NOWHERE, 0,
     {.kv_heads = 16, .head_dim = 256, .context = 8192, .theta = 1e4, .eps = 1e-6, .activation = "gelu_pytorch_tanh",
      .has_pad = 1, .pad = 0, .tied = 1}},

    {"gemma2", GEMMA2, "Gemma2", GAIN_FROM_ONE | SCALED_EMBED, NORMS_AROUND, WINDOW_ALTERNATES, 2,
     {.kv_heads = 4, .head_dim = 256, .context = 8192, .window = 4096, .theta = 1e4, .eps = 1e-6, .query_scale = 256,
      .score_cap = 50, .logit_cap = 30, .activation = "gelu_pytorch_tanh", .has_pad = 1, .pad = 0, .tied = 1}},

    {"gemma3_text", GEMMA3, "Gemma3", GAIN_FROM_ONE | SCALED_EMBED | HEAD_NORMS | LOCAL_ROPE, NORMS_AROUND,
     WINDOW_ALTERNATES, 6,
     {.kv_heads = 4, .head_dim = 256, .context = 131072, .window = 4096, .theta = 1e6, .eps = 1e-6, .query_scale = 256,
      .activation = "gelu_pytorch_tanh", .has_pad = 1, .pad = 0, .tied = 1}},

    {"phi3", PHI3, "Phi3", FUSED | PARTIAL_ROPE | LONGROPE_ALONE | OWN_CODE, NORMS_BEFORE, WINDOW_EVERYWHERE, 0,
     {.context = 4096, .original_context = 4096, .theta = 1e4, .eps = 1e-5, .activation = "silu", .has_pad = 1,
      .pad = 32000}},
};

/* clang-format on */

const family *family_find(const char *model_type) {
    for (size_t i = 0; i < LENGTH(families); i++)
        if (strcmp(families[i].name, model_type) == 0) return &families[i];
    return NULL;
}

const char *family_list(char *out, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < LENGTH(families) && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i == 0 ? "" : ", ", families[i].name);
    return out;
}
