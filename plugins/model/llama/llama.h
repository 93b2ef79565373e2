/* llama.h: what config.json says of a LLaMA, as numbers. config.c reads it, llama.c computes with it; keys.c lists the
 * keys that are known. */
#ifndef WEFT_MODEL_LLAMA_H
#define WEFT_MODEL_LLAMA_H

#include <weft/model.h>

/* clang-format off */
#define LLAMA_KEYS(K)                                                                                                  \
    K(LIST, ignore, "", "", "", WEFT_SAME,                                                                             \
      "Keys of config.json that the plugin does not know and that change nothing.")
/* clang-format on */

typedef struct llama_config {
    int64_t vocab, width, mlp, layers; /* rows of the embedding; hidden size; width inside the MLP; blocks */
    int64_t heads, kv_heads, head_dim;
    int64_t context;      /* max_position_embeddings */
    double eps;           /* of the norms */
    double theta;         /* base of the rotary angles */
    double init_std;      /* of a fresh start */
    int32_t bos, eos;     /* -1: not said */
    int32_t has_pad, pad; /* the row of the embedding that lookups do not train */
    int tied;             /* the head is the embedding */
} llama_config;

typedef enum llama_key {
    LLAMA_KEY_UNKNOWN,
    LLAMA_KEY_UNDERSTOOD, /* read by llama_config_read */
    LLAMA_KEY_HARMLESS,   /* changes neither logits nor gradients */
    LLAMA_KEY_OFF         /* changes them; only the value that leaves them as they are is computed */
} llama_key;

/* *allowed: of a LLAMA_KEY_OFF, the value that is. */
llama_key llama_key_find(const char **allowed, const char *key);

/* Every key of the file is understood, known to change nothing, or refused by name. `ignore`: as in LLAMA_KEYS. */
weft_status llama_config_read(llama_config *out, const weft_model_source *source, const char *ignore, weft_error *err);

#endif
