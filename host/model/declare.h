/* host/model/declare.h: the model as its plugin declared it: modules, parameters, segments, tables.
 *
 * Nothing here knows of configuration files, memory or devices. The structs are plain data that later stages read. */
#ifndef WEFT_HOST_MODEL_DECLARE_H
#define WEFT_HOST_MODEL_DECLARE_H

#include "base/lookup.h"

#include <stdbool.h>
#include <weft/adapter.h>

enum { WEFT_MOST_ADAPTERS = 4 }; /* of one model */

/* One storage. Tied names are aliases of it. */
typedef struct weft_parameter {
    char *name;     /* first name, as in the checkpoint: "model.embed_tokens.weight" */
    char **aliases; /* further names of the same storage */
    int32_t n_aliases;
    int32_t module; /* index of the weight object's own module, under its first name */
    int32_t rank;   /* 1 or 2 */
    int32_t role;   /* weft_weight_role of its weight object */
    bool is_bias;
    int32_t added;   /* 1 + the adapter that added it: no file of the model has it; 0: it is the model's own */
    bool frozen;     /* never trained, as its adapter says */
    bool trainable;  /* true until weft_declared_select says otherwise; true if any name is selected; never if packed */
    int64_t dims[2]; /* (out, in), (in, out) if its weight object is transposed, or (n) */
    int64_t numel;
    int32_t dtype; /* weft_dtype that it is stored in: a packed one where the model says so; else fp32, unless somebody
                      says otherwise before the layout is made */
    bool scaled_by_rows; /* packed, with one scale for all blocks of a row */
    int32_t init_form;   /* weft_init_form */
    double init_std;
    int32_t init_of; /* WEFT_INIT_ROW_NORMS: the parameter whose rows are normed */
    /* Set by the layout (host/model/layout.h). */
    int32_t unit, group;
    int64_t offset; /* elements from the start of its group's region */
} weft_parameter;

/* A matrix or a table of rows: what products read, in the type that the model computes in. Gains and biases are not. */
static inline bool weft_parameter_is_matrix(const weft_parameter *parameter) {
    return parameter->role != WEFT_WEIGHT_GAIN && !parameter->is_bias;
}

/* Stored for good as the model or [model] base says, and never trained. */
static inline bool weft_parameter_is_packed(const weft_parameter *parameter) {
    return weft_dtype_is_packed(parameter->dtype);
}

struct weft_weight {
    const struct weft_declared *owner; /* whose it is: plugins keep handles, and may hand over another instance's */
    int32_t parameter;                 /* index */
    int32_t bias;                      /* index, or -1 */
    int32_t role;
    int64_t out, in;
    int32_t has_padding, padding; /* as in weft_weight_spec */
    int32_t gain_from_one;
    int32_t claim;   /* 1 + the site at which an adapter computes in its place; 0: none */
    bool transposed; /* the parameter is (in, out), and a slice columns of it */
    bool is_slice;   /* outputs first, ..., first + out - 1 of a parameter that has more */
    int64_t first;
};

enum { WEFT_WEIGHT_PARAMETERS = 2 };

/* What a node that reads the weight reads: its matrix or gain, and what else its kernels take beside that. Returns how
 * many. */
static inline int32_t weft_weight_parameters(const weft_weight *weight, int32_t out[WEFT_WEIGHT_PARAMETERS]) {
    int32_t n = 0;
    out[n++] = weight->parameter;
    if (weight->bias >= 0) out[n++] = weight->bias;
    return n;
}

/* A weight object is a leaf of the tree, too ("model.layers.3.self_attn.q_proj", class "Linear"), and so is a tie. */
struct weft_module {
    char *path, *name, *class_name;
    int32_t index, parent; /* parent -1: a root */
};

struct weft_table {
    char *name;
    int64_t width;
    int32_t index;
    weft_status (*fill)(const weft_model *model, const char *name, int64_t rows, float *out, weft_error *err);
};

typedef struct weft_segment {
    char *name;
    int32_t module;
} weft_segment;

/* A place that an adapter may claim; what the view points to is the declared model's. */
typedef struct weft_declared_site {
    weft_site view;
    int32_t claimed;          /* 1 + the adapter that has claimed it; 0: none has */
    int32_t segment, ordinal; /* attention: the how manieth of which segment */
} weft_declared_site;

/* An adapter that has joined the model; those before it have joined first. */
typedef struct weft_joined_adapter {
    const weft_adapter_plugin *plugin;
    weft_adapter *adapter;
} weft_joined_adapter;

/* A vocabulary that is not the file's: what config.json says of it in place of what it said. */
typedef struct weft_vocabulary {
    int64_t before, rows; /* vocab_size of the file, and of the model: as many, or more */
    int32_t pad;          /* pad_token_id; -1: as the file says */
} weft_vocabulary;

typedef struct weft_declared {
    const weft_model_plugin *plugin;
    weft_model *model;
    weft_model_info info;
    char *config_path; /* where config.json was read: what a save gives back */
    char *config_text; /* with the vocabulary, without what bitsandbytes says of its packing */
    size_t config_bytes;
    bool says_packed;           /* config.json said that bitsandbytes packed the weights (quantization.h) */
    weft_vocabulary vocabulary; /* rows 0: as the file says */
    weft_module **modules;      /* pointers, so that handles stay valid while arrays grow */
    int32_t n_modules;
    weft_parameter *parameters; /* declaration order */
    int32_t n_parameters;
    weft_weight **weights;
    int32_t n_weights;
    weft_table **tables;
    int32_t n_tables;
    weft_segment *segments;
    int32_t n_segments;
    int64_t carry_width;
    weft_lookup modules_by_path, parameters_by_name, segments_by_name; /* parameters: aliases too */
    weft_joined_adapter adapters[WEFT_MOST_ADAPTERS];
    int32_t n_adapters;
    weft_declared_site *sites; /* [n_sites] that adapters may claim: of the model alone; NULL: there is no adapter */
    int32_t n_sites;
    int64_t state_block;   /* elements of an optimizer state's longest block, set before a layout; 0: as 1 */
    int32_t packed_wanted; /* a packed parameter that the last selection named, though none is trained; -1: none */
} weft_declared;

/* Runs the plugin's create and declare on config.json's text. The result owns the model. */
weft_status weft_declared_create(weft_declared **out, const weft_host *host, const weft_model_plugin *plugin,
                                 const void *plugin_config, const char *config_path, weft_error *err);
/* The same with a vocabulary in place of the file's; NULL: the file's. */
weft_status weft_declared_create_with(weft_declared **out, const weft_host *host, const weft_model_plugin *plugin,
                                      const void *plugin_config, const char *config_path,
                                      const weft_vocabulary *vocabulary, weft_error *err);
void weft_declared_destroy(weft_declared *declared); /* NULL is fine */

/* Sets `trainable`: "all", or a comma-separated list of adapter, head, vocabulary (tables of tokens, and the head),
 * first:N, last:N (blocks) and parameter names, in which '*' stands for any text. What an adapter declares as frozen
 * stays so, without a word. An item that matches nothing is an error that shows names. Nothing changes on failure. What
 * is packed stays frozen; whether it may be named, `packed_wanted`, is for who trains to say. */
weft_status weft_declared_select(weft_declared *declared, const char *trainable, weft_error *err);

/* Index of a parameter by any of its names; -1: none. */
int32_t weft_declared_find(const weft_declared *declared, const char *name);

/* True if module is `ancestor` or lies below it. */
bool weft_declared_below(const weft_declared *declared, int32_t module, int32_t ancestor);
/* Index of a module by its path; -1: none. */
int32_t weft_declared_module(const weft_declared *declared, const char *path);

int64_t weft_declared_numel(const weft_declared *declared, bool trainable_only);

#endif
