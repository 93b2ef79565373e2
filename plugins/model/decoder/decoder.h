/* decoder.h: what config.json says of a model, as numbers. config.c reads it with layers.c and rope.c, decoder.c
 * computes with it, angles.c fills its rotary tables; families.c holds what sets one family apart from another, keys.c
 * the keys that are known. */
#ifndef WEFT_MODEL_DECODER_H
#define WEFT_MODEL_DECODER_H

#include <weft/model.h>

/* clang-format off */
#define DECODER_KEYS(K)                                                                                                \
    K(LIST, ignore, "", "", "", WEFT_SAME,                                                                             \
      "Keys of config.json that the plugin does not know and that change nothing.")
/* clang-format on */

/* Bits, so that a key can say which families know it. Each is a plugin of its own, made of the same sources. */
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
    QKV_BIASES = 1 << 0,     /* q, k and v have a bias, whatever config.json says */
    HEAD_NORMS = 1 << 1,     /* q and k are normed, each head by itself */
    WHOLE_NORMS = 1 << 2,    /* q and k are normed, all heads as one */
    GAIN_FROM_ONE = 1 << 3,  /* norms store their factor less one */
    SCALED_EMBED = 1 << 4,   /* embeddings times the root of their width */
    LOCAL_ROPE = 1 << 5,     /* layers with a window turn by a base of their own */
    PARTIAL_ROPE = 1 << 6,   /* a part of each head may pass unturned */
    FUSED = 1 << 7,          /* q, k, v are one matrix, gate and up another */
    GELU_IS_TANH = 1 << 8,   /* "gelu" means the tanh form */
    LONGROPE_ALONE = 1 << 9, /* positions are plain or LongRoPE, which has older names there */
    OWN_CODE = 1 << 10       /* auto_map names code that transformers has as its own since */
} family_trait;

/* Which layers look back no further than sliding_window, where layer_types does not say it. */
typedef enum window_rule {
    WINDOW_NOWHERE,
    WINDOW_EVERYWHERE,   /* where there is one */
    WINDOW_LATE,         /* from max_window_layers on, with use_sliding_window */
    WINDOW_WITHOUT_ROPE, /* where positions are not turned, with use_sliding_window */
    WINDOW_ALTERNATES    /* in all but every n-th layer */
} window_rule;

/* The names of a block's norms; NULL: there is none at this place. */
typedef struct block_norms {
    const char *before_attention, *after_attention, *before_mlp, *after_mlp;
} block_norms;

typedef struct family {
    const char *name; /* model_type, and the plugin's id */
    family_id id;
    const char *classes; /* what the names of its classes begin with */
    uint32_t traits;     /* family_trait */
    block_norms norms;
    window_rule windows;
    int32_t every; /* WINDOW_ALTERNATES: n */
    /* What transformers takes where config.json has no such key. */
    struct {
        int64_t kv_heads; /* 0: as many as heads */
        int64_t head_dim; /* 0: hidden_size over heads */
        int64_t context;
        int64_t original_context; /* 0: none */
        int64_t window;           /* 0: none */
        double theta, eps;
        double query_scale;          /* query_pre_attn_scalar; 0: head_dim */
        double score_cap, logit_cap; /* 0: none */
        const char *activation;      /* value of hidden_act or hidden_activation */
        int32_t has_pad, pad;        /* pad_token_id */
        int32_t tied;                /* tie_word_embeddings */
    } absent;
} family;

/* NULL: there is none of that name. */
const family *family_find(const char *model_type);
/* "llama, mistral, ..." */
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

/* How positions become angles. What a kind has no use for is zero. */
typedef struct decoder_rope {
    rope_kind kind;
    int64_t dim; /* elements of each head that turn, the first ones */
    double theta, factor;
    int64_t context, original; /* places the model was made for; those it was first trained with */
    double low, high;          /* llama3: low_freq_factor, high_freq_factor */
    double beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn */
    int32_t truncate;                                    /* yarn */
    double attention_factor;                             /* yarn and longrope; 0: as their papers have it */
    double *short_factor, *long_factor;                  /* longrope: [dim / 2], owned */
} decoder_rope;

typedef struct decoder_layer {
    int64_t window;   /* places that a query sees at most; 0: all before it */
    int32_t has_rope; /* 0: positions are not turned */
    int32_t local;    /* turned by the local table */
} decoder_layer;

typedef struct decoder_config {
    const family *family;
    int64_t vocab, width, mlp, layers; /* rows of the embedding; hidden size; width inside the MLP; blocks */
    int64_t heads, kv_heads, head_dim;
    int64_t context;             /* max_position_embeddings */
    double eps;                  /* of the norms */
    double scale;                /* of scores */
    double score_cap, logit_cap; /* 0: none */
    double init_std;             /* of a fresh start */
    int32_t activation;          /* weft_activation_form */
    int32_t qkv_bias, o_bias, mlp_bias;
    int32_t bos, eos;     /* -1: not said */
    int32_t has_pad, pad; /* the row of the embedding that lookups do not train */
    int32_t tied;         /* the head is the embedding */
    int32_t has_local;    /* some layer is local */
    decoder_rope rope, local;
    decoder_layer *layer; /* [layers], owned */
} decoder_config;

typedef enum decoder_key {
    DECODER_KEY_UNKNOWN,
    DECODER_KEY_UNDERSTOOD, /* read by config.c and its parts */
    DECODER_KEY_HARMLESS,   /* changes neither logits nor gradients */
    DECODER_KEY_OFF         /* changes them; only the value that leaves them as they are is computed */
} decoder_key;

/* *allowed: of a DECODER_KEY_OFF, the value that is. */
decoder_key decoder_key_find(const char **allowed, const family *of, const char *key);

/* Every key of the file is understood, known to change nothing, or refused by name. `ignore`: as in DECODER_KEYS. */
weft_status decoder_config_read(decoder_config *out, const family *of, const weft_model_source *source,
                                const char *ignore, weft_error *err);
void decoder_config_clear(decoder_config *config);

/* out: (rows, dim): dim/2 cosines, then dim/2 sines of each place. */
weft_status decoder_rope_fill(const decoder_rope *rope, int64_t rows, float *out, weft_error *err);

#endif
