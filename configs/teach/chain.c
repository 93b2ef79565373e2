/* chain.c: a model that can be computed by hand: three layers of one weight each, in a row.
 *
 *     x = embed[id],  h1 = w1 x,  h2 = w2 h1,  h3 = w3 h2,  logits = (head[0] h3, head[1] h3)
 *
 * Two ids, one number for each place. `embed` and `head` are kept as they are; w1, w2 and w3 are trained. This is all
 * that a model plugin has to say: what there is (declare), and what is computed (forward). docs/guide/by-hand.md reads
 * a run of it number by number; configs/teach.sh builds and runs it. */
#include <weft/model.h>

#include <stdlib.h>

WEFT_NO_KEYS(chain_settings)

enum { LAYERS = 3, IDS = 2, WIDTH = 1, PLACES = 16 };

struct weft_model {
    weft_weight *embed, *w[LAYERS], *head;
};

static weft_status chain_create(weft_model **out, const weft_host *host, const void *config,
                                const weft_model_source *source, weft_error *err) {
    weft_model *self = calloc(1, sizeof *self);
    (void)host;
    (void)config;
    (void)source;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model chain");
    *out = self;
    return WEFT_OK;
}

static void chain_destroy(weft_model *self) {
    free(self);
}

static void chain_info(const weft_model *self, weft_model_info *out) {
    (void)self;
    out->vocab_size = IDS;
    out->max_context = PLACES;
    out->bos = out->eos = -1;
    out->layer_path = "";
    out->head_path = "head";
}

static weft_weight *weight(const weft_builder *b, weft_module *module, const char *name, int32_t role, int64_t rows) {
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = role == WEFT_WEIGHT_EMBEDDING ? "Embedding" : "Linear",
                                   .role = role,
                                   .out = rows,
                                   .in = WIDTH,
                                   .init_std = 1.0};
    return b->weight(b->ctx, module, &spec);
}

/* Weights in the order of the checkpoint, and the segments that forward is cut into. */
static weft_status chain_declare(weft_model *self, const weft_builder *b, weft_error *err) {
    static const char *const names[LAYERS] = {"w1", "w2", "w3"};
    weft_module *root = b->module(b->ctx, NULL, "", "Chain");
    (void)err;
    self->embed = weight(b, root, "embed", WEFT_WEIGHT_EMBEDDING, IDS);
    b->segment(b->ctx, root, "embed");
    for (int i = 0; i < LAYERS; i++) {
        self->w[i] = weight(b, root, names[i], WEFT_WEIGHT_LINEAR, WIDTH);
        b->segment(b->ctx, root, names[i]);
    }
    self->head = weight(b, root, "head", WEFT_WEIGHT_LINEAR, IDS);
    b->segment(b->ctx, root, "head");
    b->carry(b->ctx, WIDTH);
    return WEFT_OK;
}

/* Segments: 0 embed, 1 to 3 the layers, 4 head. The backward is the host's affair. */
static weft_value chain_forward(const weft_model *self, uint32_t segment, weft_graph *g, const weft_ops *ops,
                                weft_value carry) {
    const weft_value none = {0};
    if (segment == 0) return ops->embedding(g, ops->ids(g), self->embed);
    if (segment <= LAYERS) return ops->linear(g, carry, self->w[segment - 1]);
    ops->lm_head(g, carry, self->head, NULL);
    return none;
}

static const weft_model_plugin chain_table = {(uint32_t)sizeof(weft_model_plugin),
                                              0,
                                              chain_create,
                                              chain_destroy,
                                              chain_info,
                                              chain_declare,
                                              chain_forward,
                                              NULL};

WEFT_PLUGIN(model, 1, "chain", "0.1.0", "Three layers of one weight each, to be computed by hand.", chain_settings,
            NULL, chain_table)
