/* weft/adapter.h: what is added to a model for fine-tuning (adapter/1).
 *
 * After the model has declared itself, an adapter sees its sites: each linear and embedding, the head, and each place
 * where the model attends. It claims the sites that it changes and adds weight objects of its own below them, with the
 * builder that models have. While a segment is recorded, `ops->linear` on a claimed weight calls the adapter, which
 * records what it likes with the same operators; inside, `ops->linear` is the plain one. So what an adapter adds are
 * ordinary parameters and ordinary operators: storage, wrapping, gathers, gradients, checkpoints and proofs meet
 * nothing new, and a base that is frozen or packed is no case of its own.
 *
 * LoRA (Hu et al., arXiv 2106.09685), x W^T + s (x A^T) B^T, is this:
 *
 *     weft_value lora_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
 *                            weft_weight *weight) {
 *         const weft_value y = ops->linear(g, x, weight);
 *         const weft_value a = ops->linear(g, x, self->at[site].a);
 *         return ops->add(g, y, ops->linear(g, ops->scale(g, a, self->scale), self->at[site].b));
 *     }
 *
 * Trained is what the adapter adds, but for weights that it declares as frozen; [train] trainable may name more.
 *
 * A run may have several adapters ([adapter] plugin = lora, mlp-head). Each sees the sites of the model alone, none of
 * what another has added, and a site has one adapter: the second that claims it is refused, at the user's key. While
 * one records, every operator is the plain one, also on weights that another has claimed. Their files stand side by
 * side, each adapter's as if it were alone.
 */
#ifndef WEFT_ADAPTER_H
#define WEFT_ADAPTER_H

#include <weft/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_adapter weft_adapter; /* the plugin's own */

typedef enum weft_site_kind {
    WEFT_SITE_LINEAR = 1,    /* ops->linear reads the weight */
    WEFT_SITE_EMBEDDING = 2, /* ops->embedding does; a head that is tied to it stays as it is */
    WEFT_SITE_HEAD = 3,      /* ops->lm_head alone does: what it reads may be changed, and not what it computes */
    WEFT_SITE_ATTENTION = 4  /* a call of ops->attention */
} weft_site_kind;

/* A place whose computation may be changed. What it points to lives as long as the adapter. */
typedef struct weft_site {
    uint32_t struct_size;
    uint32_t flags;
    const char *path;                  /* "model.layers.3.self_attn.q_proj"; of attention: its segment's module */
    const char *class_name;            /* "Linear" */
    weft_module *module;               /* below which an adapter adds what belongs to the site */
    weft_weight *weight;               /* NULL: attention, and a head that is tied to an embedding */
    int64_t out, in;                   /* of the weight; an embedding's are (vocabulary, width); 0: attention */
    int64_t first;                     /* a slice: its first row in the whole */
    int64_t heads, kv_heads, head_dim; /* attention; else 0 */
    int32_t kind;                      /* weft_site_kind */
    int32_t layer;                     /* number of the block that it lies in; -1: none */
    int32_t whole;   /* a slice (weft_builder.slice): the site of its whole, whose claim holds for it too; -1: none */
    int32_t storage; /* packed weft_dtype; 0: numbers */
    int32_t has_bias;
    int32_t reserved;
} weft_site;

/* What an adapter is asked to continue: a directory as PEFT writes it. */
typedef struct weft_adapter_source {
    uint32_t struct_size;
    uint32_t flags;
    const char *config_path; /* of its adapter_config.json, for messages */
    const char *config_text;
    uint64_t config_bytes;
} weft_adapter_source;

/* What `declare` works on; for that call alone, but for what the sites point to. */
typedef struct weft_adapter_job {
    uint32_t struct_size;
    uint32_t flags;
    const weft_site *sites; /* in the order of the model's declaration, attention behind all weights */
    uint32_t n_sites;
    uint32_t site_stride; /* sizeof(weft_site), as the host was compiled */
    int64_t n_layers;     /* blocks of the model */
    int64_t width;        /* of the carry between them */
    /* The model's builder: module, weight and slice; what makes a model's own shape (tie, table, segment, carry) is
     * refused. */
    const weft_builder *builder;
    /* From now on what is computed at the site is the adapter's. ctx: of the builder; mistakes are as sticky. [main] */
    void (*claim)(weft_builder_ctx *ctx, uint32_t site);
} weft_adapter_job;

static inline const weft_site *weft_adapter_site(const weft_adapter_job *job, uint32_t i) {
    const char *at = (const char *)job->sites + (size_t)i * job->site_stride;
    return (const weft_site *)(const void *)at;
}

/* How PEFT's file has a weight that the adapter added, or one of the base that is trained beside it. The host fills it
 * with "base_model.model." and the parameter's own name, and with its shape. Parameters (n, m) that make up one table
 * (n, M) there give its name and shape each, and where their own columns begin in it; together they are the whole of
 * it. */
typedef struct weft_adapter_tensor {
    uint32_t struct_size;
    uint32_t flags;
    int64_t dims[3];    /* as many elements as the parameter has, or the table's */
    int64_t column;     /* of a table: the parameter's first; else 0 */
    int32_t rank;       /* 1 to 3 */
    int32_t transposed; /* 1: the file's (n, m) is the parameter's (m, n) */
    char name[512];
} weft_adapter_tensor;

/* Rows of the weight at a site, which become what the adapted model computes with. A weight comes in any cuts: rows do
 * not depend on those that come with them. */
typedef struct weft_merge {
    uint32_t struct_size;
    uint32_t flags;
    float *w;            /* (rows, in): the base's, and then the merged ones */
    int64_t first, rows; /* of the site's weight */
    uint32_t site;
    uint32_t reserved;
    void *context; /* first argument of values */
    /* All of a weight that the adapter added, in fp32. [any-thread] */
    const float *(*values)(void *context, const weft_weight *weight);
} weft_merge;

/* flags of the table */
#define WEFT_ADAPTER_PEFT 1u /* its files, as `tensor` and `config_json` have them, are those that PEFT reads */

typedef struct weft_adapter_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* source NULL: a new adapter. Else its keys hold, and what the configuration says otherwise is refused. [main]
     * [required] */
    weft_status (*create)(weft_adapter **out, const weft_host *host, const void *config,
                          const weft_adapter_source *source, weft_error *err);
    void (*destroy)(weft_adapter *adapter); /* [main] [required] */

    /* Adds weights and claims sites; claiming none is an error of the user's. Called once. [main] [required] */
    weft_status (*declare)(weft_adapter *adapter, const weft_adapter_job *job, weft_error *err);

    /* What is recorded in place of a call of the model's: as the operator of that name, and as wide. All: site is the
     * number in `declare`, a slice's own; [main] [optional: sites of that kind are not claimed] */
    weft_value (*linear)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                         weft_weight *weight);
    weft_value (*embedding)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops,
                            weft_value ids, weft_weight *table);
    weft_value (*attention)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops,
                            weft_value q, weft_value k, weft_value v, weft_value starts,
                            const weft_attention_args *args);
    /* What the head reads in place of x, and as wide: layers that are added between the last norm and the logits.
     * [main] [optional: the head is not claimed] */
    weft_value (*head)(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x);

    /* Names and shapes of one of its parameters, or of the base's, as PEFT has them, where they are not what `out`
     * already says. parameter: the host's name of it. [main] [optional: they are] */
    weft_status (*tensor)(const weft_adapter *adapter, const char *parameter, weft_adapter_tensor *out,
                          weft_error *err);
    /* adapter_config.json as PEFT reads it, an object in JSON, without what is the host's to say (the base, modules
     * that are saved whole, the task). Lives as long as the adapter. [main] [optional: {"peft_type": the id}] */
    const char *(*config_json)(const weft_adapter *adapter);
    /* Computes in fp32 what a linear or an embedding at a site would be without the adapter; a whole's site, never a
     * slice's. [any-thread] [optional: it cannot be merged] */
    weft_status (*merge)(const weft_adapter *adapter, const weft_merge *what, weft_error *err);

    const void *(*extension)(const weft_adapter *adapter, const char *id); /* [any-thread] [optional: none] */
} weft_adapter_plugin;

#ifdef __cplusplus
}
#endif
#endif
