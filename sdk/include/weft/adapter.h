/* weft/adapter.h: modules added to a model for fine-tuning (adapter/1).
 *
 * After the model's `declare`, an adapter receives the model's sites: each linear and embedding, the head, and each
 * attention call. The adapter claims the sites that it changes, and adds its own weight objects below them with the
 * builder that models use. While the host records a segment, `ops->linear` on a claimed weight calls the adapter. The
 * adapter records its computation with the same operators; inside it, `ops->linear` is the unmodified operator. An
 * adapter therefore adds ordinary parameters and operators. Storage, wrapping, gathers, gradients, checkpoints and
 * verification need no special case for adapters, nor for a frozen or packed base model.
 *
 * LoRA (Hu et al., arXiv 2106.09685), x W^T + s (x A^T) B^T, is written as:
 *
 *     weft_value lora_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
 *                            weft_weight *weight) {
 *         const weft_value y = ops->linear(g, x, weight);
 *         const weft_value a = ops->linear(g, x, self->at[site].a);
 *         return ops->add(g, y, ops->linear(g, ops->scale(g, a, self->scale), self->at[site].b));
 *     }
 *
 * The added parameters are trained, except weights that the adapter declares as frozen. [train] trainable may select
 * more.
 *
 * A run may have several adapters ([adapter] plugin = lora, mlp-head). Each adapter sees only the model's own sites,
 * not the additions of other adapters. A site has at most one adapter: a second claim is an error that names the user's
 * key. While one adapter records, every operator is the unmodified one, also on weights claimed by another adapter.
 * Each adapter's files are written separately, in the same form as if it were the only adapter.
 */
#ifndef WEFT_ADAPTER_H
#define WEFT_ADAPTER_H

#include <weft/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_adapter weft_adapter; /* defined by the plugin */

typedef enum weft_site_kind {
    WEFT_SITE_LINEAR = 1,    /* ops->linear reads the weight */
    WEFT_SITE_EMBEDDING = 2, /* ops->embedding reads the weight; a tied head does not change */
    WEFT_SITE_HEAD = 3,      /* only ops->lm_head reads the weight: its input may be changed, not its computation */
    WEFT_SITE_ATTENTION = 4  /* a call of ops->attention */
} weft_site_kind;

/* A site: a computation that an adapter may change. Its pointers stay valid for the lifetime of the adapter. */
typedef struct weft_site {
    uint32_t struct_size;
    uint32_t flags;
    const char *path;                  /* "model.layers.3.self_attn.q_proj"; attention: the module of its segment */
    const char *class_name;            /* "Linear" */
    weft_module *module;               /* parent module for weights that an adapter adds at this site */
    weft_weight *weight;               /* NULL for attention, and for a head tied to an embedding */
    int64_t out, in;                   /* shape of the weight; embedding: (vocabulary, width); attention: 0 */
    int64_t first;                     /* slice: its first row in the full weight */
    int64_t heads, kv_heads, head_dim; /* attention; else 0 */
    int32_t kind;                      /* weft_site_kind */
    int32_t layer;                     /* number of its transformer block, or -1 */
    int32_t whole;   /* slice (weft_builder.slice): site of the full weight, whose claim covers it; otherwise -1 */
    int32_t storage; /* packed weft_dtype; 0: not packed */
    int32_t has_bias;
    int32_t reserved;
} weft_site;

/* A saved adapter to continue from: a directory in PEFT's format. */
typedef struct weft_adapter_source {
    uint32_t struct_size;
    uint32_t flags;
    const char *config_path; /* of its adapter_config.json, for error messages */
    const char *config_text;
    uint64_t config_bytes;
} weft_adapter_source;

/* Input of `declare`, valid only during that call; the data that the sites point to stays valid. */
typedef struct weft_adapter_job {
    uint32_t struct_size;
    uint32_t flags;
    const weft_site *sites; /* in the model's declaration order; attention after all weights */
    uint32_t n_sites;
    uint32_t site_stride; /* sizeof(weft_site) in the host */
    int64_t n_layers;     /* number of transformer blocks */
    int64_t width;        /* of the hidden state passed between blocks (the carry) */
    /* The model's builder. An adapter may call module, weight and slice; calls that define the model's structure (tie,
     * table, segment, carry) fail. */
    const weft_builder *builder;
    /* Claims a site: the adapter then records the computation there. ctx is the builder's; errors are sticky. [main] */
    void (*claim)(weft_builder_ctx *ctx, uint32_t site);
} weft_adapter_job;

static inline const weft_site *weft_adapter_site(const weft_adapter_job *job, uint32_t i) {
    const char *at = (const char *)job->sites + (size_t)i * job->site_stride;
    return (const weft_site *)(const void *)at;
}

/* Name and shape in PEFT's file of a parameter that the adapter added, or of a base parameter trained with it. The host
 * initializes it with "base_model.model." + the parameter's name and with the parameter's shape. Several parameters (n,
 * m) may together form one table (n, M) in the file. Each of them returns the table's name and shape and its own first
 * column; together they must cover the table. */
typedef struct weft_adapter_tensor {
    uint32_t struct_size;
    uint32_t flags;
    int64_t dims[3];    /* same element count as the parameter or the table */
    int64_t column;     /* table: first column of this parameter; otherwise 0 */
    int32_t rank;       /* 1 to 3 */
    int32_t transposed; /* 1: the file's (n, m) is the transpose of the parameter's (m, n) */
    char name[512];
} weft_adapter_tensor;

/* Rows of a site's weight to merge: replaced in place by the weights of the adapted model. The host may pass any range
 * of rows. The result of a row must not depend on the other rows of the call. */
typedef struct weft_merge {
    uint32_t struct_size;
    uint32_t flags;
    float *w;            /* (rows, in): in: base weights; out: merged weights */
    int64_t first, rows; /* range in the site's weight */
    uint32_t site;
    uint32_t reserved;
    void *context; /* first argument of values */
    /* Returns all of a weight that the adapter added, in fp32. [any-thread] */
    const float *(*values)(void *context, const weft_weight *weight);
} weft_merge;

/* Flags of the table. */
#define WEFT_ADAPTER_PEFT 1u /* the files described by `tensor` and `config_json` are readable by PEFT */

typedef struct weft_adapter_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Creates the adapter. source NULL: a new adapter. Otherwise the source's settings apply, and a configuration that
     * contradicts them is an error. [main] [required] */
    weft_status (*create)(weft_adapter **out, const weft_host *host, const void *config,
                          const weft_adapter_source *source, weft_error *err);
    void (*destroy)(weft_adapter *adapter); /* [main] [required] */

    /* Adds weights and claims sites. Called once. Claiming no site is a user error. [main] [required] */
    weft_status (*declare)(weft_adapter *adapter, const weft_adapter_job *job, weft_error *err);

    /* Records the replacement of a model's call, with the operator's signature and an output of the same width. site is
     * the index in `declare`; for a slice, the slice's own. All: [main] [optional: sites of that kind are not
     * claimed] */
    weft_value (*linear)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                         weft_weight *weight);
    weft_value (*embedding)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops,
                            weft_value ids, weft_weight *table);
    weft_value (*attention)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops,
                            weft_value q, weft_value k, weft_value v, weft_value starts,
                            const weft_attention_args *args);
    /* Records a replacement of the head's input x, of the same width: layers between the final norm and the logits.
     * [main] [optional: the head is not claimed] */
    weft_value (*head)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x);

    /* Sets the PEFT name and shape of an adapter or base parameter, if they differ from the defaults in `out`.
     * parameter: the host's name of it. [main] [optional: the defaults are right] */
    weft_status (*tensor)(const weft_adapter *adapter, const char *parameter, weft_adapter_tensor *out,
                          weft_error *err);
    /* Returns adapter_config.json for PEFT, a JSON object without the fields that the host writes (base model, modules
     * saved in full, task). Valid for the lifetime of the adapter. [main] [optional: {"peft_type": the id}] */
    const char *(*config_json)(const weft_adapter *adapter);
    /* Computes in fp32 the merged weight of a linear or embedding site. For a slice, the host passes the site of the
     * full weight. [any-thread] [optional: merging is not supported] */
    weft_status (*merge)(const weft_adapter *adapter, const weft_merge *what, weft_error *err);

    const void *(*extension)(const weft_adapter *adapter, const char *id); /* [any-thread] [optional: none] */
} weft_adapter_plugin;

#ifdef __cplusplus
}
#endif
#endif
