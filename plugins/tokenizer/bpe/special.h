/* special.h: ids of BOS, EOS, unknown and padding token, and the ids that the files add around a text. */
#ifndef BPE_SPECIAL_H
#define BPE_SPECIAL_H

#include "added.h"
#include "model.h"

typedef struct bpe_special {
    int32_t bos; /* each -1: absent */
    int32_t eos;
    int32_t unknown;
    int32_t pad;
    bool auto_bos;
    bool auto_eos;
} bpe_special;

/* Ids added around a text; -1: absent. */
typedef struct bpe_template {
    int32_t before;
    int32_t after;
} bpe_template;

/* Reads the "post_processor" section of tokenizer.json. */
weft_status bpe_template_read(bpe_template *self, const bpe_place *at, const json_t *json, weft_error *err);

/* root: tokenizer.json; config: tokenizer_config.json; map: special_tokens_map.json. config and map are NULL if
 * missing. */
typedef struct bpe_special_sources {
    const bpe_model *model;
    const bpe_added *added;
    const json_t *root;
    const json_t *config;
    const json_t *map;
    bpe_place root_at;
    bpe_place config_at;
    bpe_place map_at;
} bpe_special_sources;

weft_status bpe_special_read(bpe_special *self, const bpe_special_sources *from, weft_error *err);

#endif
