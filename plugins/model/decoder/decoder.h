/* decoder.h: configuration of a model as numbers. config.c, layers.c and rope.c read it, decoder.c computes with it,
 * and angles.c fills its rotary tables. families.c contains the differences between families, keys.c the known keys. */
#ifndef WEFT_MODEL_DECODER_H
#define WEFT_MODEL_DECODER_H

#include <weft/model.h>

/* clang-format off */
#define DECODER_KEYS(K)                                                                                                \
    K(LIST, ignore, "", "", "", WEFT_SAME,                                                                             \
      "Keys of config.json that the plugin may ignore because they have no effect.")
/* clang-format on */

/* Bits, so that a key can list its families. Each family is a separate plugin from the same sources. */
typedef enum family_id {
    LLAMA = 1 << 0,
    MISTRAL = 1 << 1,
    QWEN2 = 1 << 2,
    QWEN3 = 1 << 3,
    SMOLLM3 = 1 << 4,
    OLMO2 = 1 << 5,
    GEMMA = 1 << 6,
    GEMMA2 = 1 << 7,
    GEMMA3 = 1 << 8,
    PHI3 = 1 << 9,
    EVERY_FAMILY = (1 << 10) - 1
} family_id;

typedef enum family_trait {
    QKV_BIASES = 1 << 0,     /* q, k and v have a bias, regardless of config.json */
    HEAD_NORMS = 1 << 1,     /* q and k are normalized, each head separately */
    WHOLE_NORMS = 1 << 2,    /* q and k are normalized over all heads together */
    GAIN_FROM_ONE = 1 << 3,  /* stored norm factors are reduced by one */
    SCALED_EMBED = 1 << 4,   /* embeddings are multiplied by the root of their width */
    LOCAL_ROPE = 1 << 5,     /* layers with a window have their own rotary base */
    PARTIAL_ROPE = 1 << 6,   /* a part of each head may stay unrotated */
    FUSED = 1 << 7,          /* q, k, v are one matrix, gate and up another */
    GELU_IS_TANH = 1 << 8,   /* "gelu" is the tanh form */
    LONGROPE_ALONE = 1 << 9, /* positions are plain or LongRoPE, under older names */
    OWN_CODE = 1 << 10       /* auto_map names remote code that transformers has since included */
} family_trait;

/* Layers with a sliding window if the file has no layer_types. */
typedef enum window_rule {
    WINDOW_NOWHERE,
    WINDOW_EVERYWHERE,   /* all layers, if sliding_window is set */
    WINDOW_LATE,         /* from max_window_layers on, with use_sliding_window */
    WINDOW_WITHOUT_ROPE, /* layers without rotation, with use_sliding_window */
    WINDOW_ALTERNATES    /* all but every n-th layer */
} window_rule;

/* The names of a block's norms; NULL: absent. */
typedef struct block_norms {
    const char *before_attention, *after_attention, *before_mlp, *after_mlp;
} block_norms;

typedef struct family {
    const char *name; /* model_type and plugin id */
    family_id id;
    const char *classes; /* prefix of its class names */
    uint32_t traits;     /* family_trait */
    block_norms norms;
    window_rule windows;
    int32_t every; /* WINDOW_ALTERNATES: n */
    /* Defaults of transformers for missing keys. */
    struct {
        int64_t kv_heads; /* 0: equal to heads */
        int64_t head_dim; /* 0: hidden_size / heads */
        int64_t context;
        int64_t original_context; /* 0: absent */
        int64_t window;           /* 0: absent */
        double theta, eps;
        double query_scale;          /* query_pre_attn_scalar; 0: head_dim */
        double score_cap, logit_cap; /* 0: disabled */
        const char *activation;      /* value of hidden_act or hidden_activation */
        int32_t has_pad, pad;        /* pad_token_id */
        int32_t tied;                /* tie_word_embeddings */
    } absent;
} family;

/* Returns NULL for an unknown name. */
const family *family_find(const char *model_type);
/* Writes "llama, mistral, ...". */
const char *family_list(char *out, size_t size);

typedef enum rope_kind {
    ROPE_PLAIN = 1 << 0,
    ROPE_LINEAR = 1 << 1,
    ROPE_DYNAMIC = 1 << 2,
    ROPE_YARN = 1 << 3,
    ROPE_LLAMA3 = 1 << 4,
    ROPE_LONG = 1 << 5,
    ROPE_ANY = (1 << 6) - 1
} rope_kind;

/* Parameters of the rotation angles. Fields that a kind does not use are zero. */
typedef struct decoder_rope {
    rope_kind kind;
    int64_t dim; /* rotated elements of each head, from the first one */
    double theta, factor;
    int64_t context, original;                           /* positions of the model; positions of its first training */
    double low, high;                                    /* llama3: low_freq_factor, high_freq_factor */
    double beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn */
    int32_t truncate;                                    /* yarn */
    double attention_factor;                             /* yarn and longrope; 0: the formula of their papers */
    double *short_factor, *long_factor;                  /* longrope: [dim / 2], owned */
} decoder_rope;

typedef struct decoder_layer {
    int64_t window;   /* maximum positions visible to a query; 0: all previous ones */
    int32_t has_rope; /* 0: no rotation */
    int32_t local;    /* rotated by the local table */
} decoder_layer;

typedef struct decoder_config {
    const family *family;
    int64_t vocab, width, mlp, layers; /* embedding rows; hidden size; MLP width; blocks */
    int64_t heads, kv_heads, head_dim;
    int64_t context;             /* max_position_embeddings */
    double eps;                  /* epsilon of the norms */
    double scale;                /* scale of attention scores */
    double score_cap, logit_cap; /* 0: disabled */
    double init_std;             /* of the initialization */
    int32_t activation;          /* weft_activation_form */
    int32_t qkv_bias, o_bias, mlp_bias;
    int32_t bos, eos;     /* -1: not set */
    int32_t has_pad, pad; /* embedding row that lookups do not train */
    int32_t tied;         /* the head shares the embedding's weight */
    int32_t has_local;    /* at least one layer is local */
    decoder_rope rope, local;
    decoder_layer *layer; /* [layers], owned */
} decoder_config;

typedef enum decoder_key {
    DECODER_KEY_UNKNOWN,
    DECODER_KEY_UNDERSTOOD, /* read by config.c and its parts */
    DECODER_KEY_HARMLESS,   /* changes neither logits nor gradients */
    DECODER_KEY_OFF         /* changes them; only the value that disables it is supported */
} decoder_key;

/* *allowed: for DECODER_KEY_OFF, the supported value. */
decoder_key decoder_key_find(const char **allowed, const family *of, const char *key);

/* Reads the file. Each key is read, known to be harmless, or rejected by name. `ignore`: as in DECODER_KEYS. */
weft_status decoder_config_read(decoder_config *out, const family *of, const weft_model_source *source,
                                const char *ignore, weft_error *err);
void decoder_config_clear(decoder_config *config);

/* out: (rows, dim): dim/2 cosines, then dim/2 sines per position. */
weft_status decoder_rope_fill(const decoder_rope *rope, int64_t rows, float *out, weft_error *err);

#endif
