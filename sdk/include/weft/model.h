/* weft/model.h: model plugins: modules, weights, segments and their forward (model/1).
 *
 * A model plugin reads its config.json, declares its modules with their weight objects, and divides the forward into
 * segments. It writes each segment's forward with the operators of weft/ops.h. It never handles gradients, memory or
 * ranks.
 *
 * Names are those of the Hugging Face checkpoint: a weight object `q_proj` under the module `model.layers.3.self_attn`
 * has the parameter `model.layers.3.self_attn.q_proj.weight`. A tied weight is an alias of the same storage.
 *
 * A weight object may have several parameters. A segment that reads it finds all of them gathered; only trained ones
 * receive gradients. A tensor that a kernel needs together with the matrix becomes a further parameter of the same
 * object, like the bias: one more field of the weight, one more ref of weft_matmul. Scales of packed values are stored
 * in their blocks (weft/blocks.h). A computation that other operators can express uses separate weight objects:
 * adapters (weft/adapter.h) add theirs with the builder below, and record the replacement of `linear` at claimed sites.
 *
 * Intended users: pipeline stages (segments are the split points; only the carry crosses them).
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <weft/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_model weft_model;             /* defined by the plugin */
typedef struct weft_module weft_module;           /* a node of the module tree; defined by the host */
typedef struct weft_builder_ctx weft_builder_ctx; /* defined by the host */

typedef enum weft_weight_role {
    WEFT_WEIGHT_LINEAR =
        1, /* (out, in), or (in, out) if transposed: parameter "<name>.weight", and "<name>.bias" if has_bias */
    WEFT_WEIGHT_EMBEDDING = 2, /* (out = vocabulary, in = width) */
    WEFT_WEIGHT_GAIN = 3       /* (in): gain of a norm, and "<name>.bias" if has_bias */
} weft_weight_role;

/* Initialization of a matrix without a checkpoint. */
typedef enum weft_init_form {
    WEFT_INIT_NORMAL = 0,   /* mean 0, standard deviation init_std; 0: zeros */
    WEFT_INIT_UNIFORM = 1,  /* in (-init_std, init_std); 1 / sqrt(in) is PyTorch's kaiming_uniform_ with a = sqrt(5) */
    WEFT_INIT_CONSTANT = 2, /* every element is init_std; also for gains */
    WEFT_INIT_ROW_NORMS = 3 /* a gain: the current 2-norms of the rows of `init_of` */
} weft_init_form;

typedef struct weft_weight_spec {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;       /* relative to its module: "q_proj" */
    const char *class_name; /* "Linear", "Embedding", "LlamaRMSNorm": class name for wrap policies and reports */
    int32_t role;           /* weft_weight_role */
    int32_t has_bias;       /* a linear, or LayerNorm's gain */
    int64_t out, in;
    double init_std; /* see init_form; by default gains start as factors of one, biases at zero */
    /* Embedding: lookups of row `padding` give it no gradient, as padding_idx of torch.nn.Embedding. Another use of the
     * same storage (a tied head) still does. */
    int32_t has_padding, padding;
    int32_t gain_from_one; /* gain: the factor is 1 + the stored value, which starts at zero (Gemma) */
    /* Linear: the packed weft_dtype (weft/blocks.h) in which the matrix is always stored; 0: the host decides. A row
     * must be a whole number of blocks. A packed matrix is stored, sharded, gathered, saved and loaded in packed form,
     * without a copy in another type. It is never trained, has one name, and is read only by `linear`. Files may
     * contain it packed, as a U8 tensor (out, blocks per row, bytes per block), or as numbers, which are packed while
     * loading. Newly initialized values are packed in the same way. */
    int32_t storage;
    int32_t init_form; /* weft_init_form */
    int32_t frozen;    /* adapter weight: 1: never trained, for random projections */
    /* Linear: the matrix is stored as (in, out), as in families whose checkpoints use it from the other side (Conv1D of
     * GPT-2). Shape, gradients, optimizer state and saved files then use the file's layout without transposition;
     * matmuls read it as stored. Its slices are columns and begin at a multiple of the largest power of two up to 8
     * that divides `out`. Only `linear` reads it, and it cannot be packed. */
    int32_t transposed;
    int32_t reserved;
    weft_weight *init_of; /* WEFT_INIT_ROW_NORMS: a matrix of the model with as many rows as the gain has elements */
} weft_weight_spec;

/* The host's builder for `declare`. Errors are sticky, as in weft_ops. All [main]. */
typedef struct weft_builder {
    uint32_t struct_size;
    uint32_t flags;
    weft_builder_ctx *ctx; /* first argument of every call */

    /* Adds a module. parent NULL: a root. name: its component of the path ("layers", "3"); "" for an unnamed root. */
    weft_module *(*module)(weft_builder_ctx *ctx, weft_module *parent, const char *name, const char *class_name);
    weft_weight *(*weight)(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec);
    /* Adds a second name for the storage of a weight (a tied head) and returns the same object. */
    weft_weight *(*tie)(weft_builder_ctx *ctx, weft_module *module, const char *name, const char *class_name,
                        weft_weight *storage);
    /* Adds a fixed fp32 table with `width` numbers per position; fill is called once, on the host, for the required
     * number of rows. */
    weft_table *(*table)(weft_builder_ctx *ctx, const char *name, int64_t width,
                         weft_status (*fill)(const weft_model *model, const char *name, int64_t rows, float *out,
                                             weft_error *err));
    /* Adds the next segment in execution order and returns its number, which `forward` receives. name:
     * "layers.3.attn". */
    uint32_t (*segment)(weft_builder_ctx *ctx, weft_module *module, const char *name);
    void (*carry)(weft_builder_ctx *ctx, int64_t width); /* width of the hidden state between segments, (B,T,width) */
    /* Returns a weight object for outputs first, ..., first + rows - 1 of a linear: rows of its matrix (or columns if
     * transposed) and of its bias. Used by families that store several matrices as one (Phi-3's qkv_proj, GPT-2's
     * c_attn). It is a view for `linear`: names, storage, gathers and files are those of the full weight, and gradients
     * go to its range. A slice cannot be sliced. */
    weft_weight *(*slice)(weft_builder_ctx *ctx, weft_weight *weight, int64_t first, int64_t rows);
} weft_builder;

typedef struct weft_model_info {
    uint32_t struct_size;
    uint32_t flags;
    int64_t vocab_size;
    int64_t max_context;    /* maximum number of positions */
    int64_t n_layers;       /* transformer blocks, for "first N layers" */
    int32_t bos, eos;       /* of config.json; -1: not set */
    const char *layer_path; /* path of the list of blocks: "model.layers"; blocks are its children "0", "1", ... */
    const char *head_path;  /* path of the weight for logits: "lm_head", tied or not; trained by "head only" */
} weft_model_info;

typedef struct weft_model_source {
    uint32_t struct_size;
    uint32_t flags;
    const char *config_path; /* for error messages */
    const char *config_text; /* content of config.json */
    uint64_t config_bytes;
} weft_model_source;

typedef struct weft_model_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Reads config.json. A key that changes the arithmetic must be supported or be rejected by name. [main]
     * [required] */
    weft_status (*create)(weft_model **out, const weft_host *host, const void *config, const weft_model_source *source,
                          weft_error *err);
    void (*destroy)(weft_model *model);                                                /* [main] [required] */
    void (*info)(const weft_model *model, weft_model_info *out);                       /* [any-thread] [required] */
    weft_status (*declare)(weft_model *model, const weft_builder *b, weft_error *err); /* once [main] [required] */

    /* Records one segment. carry: invalid for the first segment. Returns the next carry; the last segment ends with
     * lm_head and returns an invalid value. [main] [required] */
    weft_value (*forward)(const weft_model *model, uint32_t segment, weft_graph *g, const weft_ops *ops,
                          weft_value carry);

    const void *(*extension)(const weft_model *model, const char *id); /* [any-thread] [optional: none] */
} weft_model_plugin;

#ifdef __cplusplus
}
#endif
#endif
