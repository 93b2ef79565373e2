/* weft/model.h: what is computed (model/1).
 *
 * A model plugin reads its config.json, declares modules with their weight objects and the segments that forward is cut
 * into, and writes each segment's forward with the operators of weft/ops.h. It never sees gradients, memory or ranks.
 *
 * Names are those of the Hugging Face checkpoint: a weight object `q_proj` under the module
 * `model.layers.3.self_attn` has the parameter `model.layers.3.self_attn.q_proj.weight`. A tied weight is an alias
 * of one storage.
 *
 * A weight object may be made of several parameters, all of which a segment that reads it finds gathered, while
 * gradients go to those that are trained. What a kernel needs at once is a further parameter of the same object, as the
 * bias is: one more field of the weight, one more ref of weft_matmul. Scales of packed values stand in their blocks
 * (weft/blocks.h). What can be written with other operators is weight objects of its own: adapters (weft/adapter.h) add
 * theirs with the builder below, and record what `linear` is at the sites that they claim.
 *
 * Later users this serves: pipeline stages (segments are the cut points; the carry is all that crosses).
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <weft/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_model weft_model;             /* the plugin's own */
typedef struct weft_module weft_module;           /* a node of the tree; the host's */
typedef struct weft_builder_ctx weft_builder_ctx; /* the host's */

typedef enum weft_weight_role {
    WEFT_WEIGHT_LINEAR =
        1, /* (out, in), or (in, out) if transposed: parameter "<name>.weight", and "<name>.bias" if has_bias */
    WEFT_WEIGHT_EMBEDDING = 2, /* (out = vocabulary, in = width) */
    WEFT_WEIGHT_GAIN = 3       /* (in): a norm's, and "<name>.bias" if has_bias */
} weft_weight_role;

/* How a matrix starts where no file has it. */
typedef enum weft_init_form {
    WEFT_INIT_NORMAL = 0,   /* mean 0, deviation init_std; 0: zeros */
    WEFT_INIT_UNIFORM = 1,  /* in (-init_std, init_std): kaiming_uniform_ of PyTorch with a = sqrt(5) is 1 / sqrt(in) */
    WEFT_INIT_CONSTANT = 2, /* every element is init_std; of a gain as well */
    WEFT_INIT_ROW_NORMS = 3 /* a gain: the 2-norms of the rows of `init_of` as they are at that moment */
} weft_init_form;

typedef struct weft_weight_spec {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;       /* below its module: "q_proj" */
    const char *class_name; /* "Linear", "Embedding", "LlamaRMSNorm": what wrap policies and reports call it */
    int32_t role;           /* weft_weight_role */
    int32_t has_bias;       /* of a linear, or of LayerNorm's gain */
    int64_t out, in;
    double init_std; /* of a fresh start: as init_form says; gains start as factors of one, biases at zero */
    /* An embedding: looking up the row `padding` gives it no gradient, as with padding_idx of torch.nn.Embedding.
     * Another use of the same storage (a tied head) still does. */
    int32_t has_padding, padding;
    int32_t gain_from_one; /* a gain: the factor is 1 + what is stored, which starts at zero (Gemma) */
    /* A linear: the weft_dtype in which its matrix is stored for good, a block type (weft/blocks.h) of which a row
     * takes a whole number of blocks; 0: the host decides. A packed matrix is held, cut between ranks, gathered, saved
     * and read packed, and has no copy in another type. It is never trained and has one name; `linear` alone reads it.
     * Files may have it as it is stored, a U8 tensor (out, blocks of a row, bytes of a block), or in numbers, which are
     * packed as they are read, as those of a fresh start are. */
    int32_t storage;
    int32_t init_form; /* weft_init_form */
    int32_t frozen;    /* of an adapter: 1: never trained, as projections that stay as they were drawn */
    /* A linear: its matrix is (in, out), as families have it whose checkpoints multiply from the other side (Conv1D of
     * GPT-2). Shape, gradients, optimizer state and what is saved are the file's then, element by element, and nothing
     * is turned round: products read it as it lies. Its slices are columns, and begin at a multiple of the largest
     * power of two up to 8 that divides `out`. `linear` alone reads it, and it is not packed. */
    int32_t transposed;
    int32_t reserved;
    weft_weight *init_of; /* WEFT_INIT_ROW_NORMS: a matrix of the model's, with as many rows as the gain has elements */
} weft_weight_spec;

/* The host's side of `declare`. Mistakes are sticky, as in weft_ops. All [main]. */
typedef struct weft_builder {
    uint32_t struct_size;
    uint32_t flags;
    weft_builder_ctx *ctx; /* first argument of every call */

    /* parent NULL: a root. name: its own part of the path ("layers", "3"); "" for a root without a name of its own. */
    weft_module *(*module)(weft_builder_ctx *ctx, weft_module *parent, const char *name, const char *class_name);
    weft_weight *(*weight)(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec);
    /* Another name for the same storage (a tied head); the same object under a second name. */
    weft_weight *(*tie)(weft_builder_ctx *ctx, weft_module *module, const char *name, const char *class_name,
                        weft_weight *storage);
    /* A fixed fp32 table with `width` numbers per position; fill is called once, on the host, for as many rows as
     * needed. */
    weft_table *(*table)(weft_builder_ctx *ctx, const char *name, int64_t width,
                         weft_status (*fill)(const weft_model *model, const char *name, int64_t rows, float *out,
                                             weft_error *err));
    /* Segments in the order in which they run; returns the number that `forward` receives. name: "layers.3.attn". */
    uint32_t (*segment)(weft_builder_ctx *ctx, weft_module *module, const char *name);
    void (*carry)(weft_builder_ctx *ctx, int64_t width); /* the hidden state between segments is (B,T,width) */
    /* Outputs first, ..., first + rows - 1 of a linear (rows of its matrix, or columns where that is transposed, and of
     * its bias), as a weight object that `linear` reads: for families that store several matrices as one (Phi-3's
     * qkv_proj, GPT-2's c_attn). It is a view: names, storage, gathers and saving are those of the whole, and gradients
     * go to its part. No slice has slices. */
    weft_weight *(*slice)(weft_builder_ctx *ctx, weft_weight *weight, int64_t first, int64_t rows);
} weft_builder;

typedef struct weft_model_info {
    uint32_t struct_size;
    uint32_t flags;
    int64_t vocab_size;
    int64_t max_context;    /* places that the model can number */
    int64_t n_layers;       /* blocks, for "first N layers" */
    int32_t bos, eos;       /* of config.json; -1: not said */
    const char *layer_path; /* path of the list of blocks: "model.layers"; blocks are its children "0", "1", ... */
    const char *head_path;  /* path of the weight that makes logits: "lm_head", tied or not; what "head only" trains */
} weft_model_info;

typedef struct weft_model_source {
    uint32_t struct_size;
    uint32_t flags;
    const char *config_path; /* for messages */
    const char *config_text; /* the whole config.json */
    uint64_t config_bytes;
} weft_model_source;

typedef struct weft_model_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Reads config.json: a key that changes the arithmetic is understood or refused by name. [main] [required] */
    weft_status (*create)(weft_model **out, const weft_host *host, const void *config, const weft_model_source *source,
                          weft_error *err);
    void (*destroy)(weft_model *model);                                                /* [main] [required] */
    void (*info)(const weft_model *model, weft_model_info *out);                       /* [any-thread] [required] */
    weft_status (*declare)(weft_model *model, const weft_builder *b, weft_error *err); /* once [main] [required] */

    /* Records one segment. carry: invalid for the first segment. Returns the next carry; the last segment ends in
     * lm_head and returns an invalid value. [main] [required] */
    weft_value (*forward)(const weft_model *model, uint32_t segment, weft_graph *g, const weft_ops *ops,
                          weft_value carry);

    const void *(*extension)(const weft_model *model, const char *id); /* [any-thread] [optional: none] */
} weft_model_plugin;

#ifdef __cplusplus
}
#endif
#endif
