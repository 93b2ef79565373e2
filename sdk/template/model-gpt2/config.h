/* config.h: the values of a GPT-2 config.json. config.c reads them, gpt2.c uses them. */
#ifndef GPT2_CONFIG_H
#define GPT2_CONFIG_H

#include <weft/model.h>

typedef struct gpt2_config {
    int64_t vocab, width, inner, layers, heads; /* rows of the embedding; n_embd; width inside the MLP; blocks */
    int64_t context;                            /* number of learned positions: n_positions */
    double eps, init_std;
    int32_t activation; /* weft_activation_form */
    int32_t scaled;     /* scores are divided by the square root of the head width, */
    int32_t by_layer;   /* and by 1, 2, ... in the first block, the second, ... */
    int32_t tied;       /* the head is the embedding */
    int32_t bos, eos;   /* -1: not set */
} gpt2_config;

/* dropout: handling of dropout in config.json: 0: error; otherwise train without dropout. */
weft_status gpt2_config_read(gpt2_config *out, const weft_model_source *source, int64_t dropout, weft_error *err);

#endif
