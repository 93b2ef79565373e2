/* host/model/declare.h: a model as declared by its plugin: modules, parameters, segments, tables. Plain data for later
 * stages, independent of configuration files, memory and devices. */
#ifndef WEFT_HOST_MODEL_DECLARE_H
#define WEFT_HOST_MODEL_DECLARE_H

#include "base/lookup.h"

#include <stdbool.h>
#include <weft/adapter.h>

enum { WEFT_MOST_ADAPTERS = 4 }; /* maximum per model */

/* One stored tensor. Tied names are its aliases. */
typedef struct weft_parameter {
    char *name;     /* first name, as in the checkpoint: "model.embed_tokens.weight" */
    char **aliases; /* further names of the same tensor */
    int32_t n_aliases;
    int32_t module; /* index of the weight object's own module, under its first name */
    int32_t rank;   /* 1 or 2 */
    int32_t role;   /* weft_weight_role of its weight object */
    bool is_bias;
    int32_t added;   /* 1 + the adapter that added it, so that the model's files lack it; 0: the model's own */
    bool frozen;     /* never trained, as declared by its adapter */
    bool trainable;  /* true until weft_declared_select; then true if any of its names is selected; never true if
                        packed */
    int64_t dims[2]; /* (out, in), (in, out) if its weight object is transposed, or (n) */
    int64_t numel;
    int32_t dtype;       /* weft_dtype of its storage: a packed type if the model declares it; else fp32, unless changed
                            before the layout is created */
    bool scaled_by_rows; /* packed, with one scale per row */
    int32_t init_form;   /* weft_init_form */
    double init_std;
    int32_t init_of; /* WEFT_INIT_ROW_NORMS: the parameter whose row norms are used */
    /* Set by the layout (host/model/layout.h). */
    int32_t unit, group;
    int64_t offset; /* elements from the start of its group's region */
} weft_parameter;

/* True for a matrix or a table of rows, which matmuls read in the compute dtype; false for gains and biases. */
static inline bool weft_parameter_is_matrix(const weft_parameter *parameter) {
    return parameter->role != WEFT_WEIGHT_GAIN && !parameter->is_bias;
}

/* True if the parameter is stored packed, as the model or [model] base specifies; it is never trained. */
static inline bool weft_parameter_is_packed(const weft_parameter *parameter) {
    return weft_dtype_is_packed(parameter->dtype);
}

struct weft_weight {
    const struct weft_declared *owner; /* to detect handles of another instance */
    int32_t parameter;                 /* index */
    int32_t bias;                      /* index; -1: no bias */
    int32_t role;
    int64_t out, in;
    int32_t has_padding, padding; /* as in weft_weight_spec */
    int32_t gain_from_one;
    int32_t claim;   /* 1 + the site of the adapter that replaces its computation; 0: not claimed */
    bool transposed; /* the parameter is (in, out), and a slice consists of its columns */
    bool is_slice;   /* outputs first, ..., first + out - 1 of a larger parameter */
    int64_t first;
};

/* A weight object is a module of the tree ("model.layers.3.self_attn.q_proj", class "Linear"), and so is a tied
 * name. */
struct weft_module {
    char *path, *name, *class_name;
    int32_t index, parent; /* parent -1: root */
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

/* A site that an adapter may claim. The view's pointers belong to the declared model. */
typedef struct weft_declared_site {
    weft_site view;
    int32_t claimed;          /* 1 + the claiming adapter; 0: not claimed */
    int32_t segment, ordinal; /* attention: ordinal of the call within the segment */
} weft_declared_site;

/* An adapter that has joined the model; in the order of joining. */
typedef struct weft_joined_adapter {
    const weft_adapter_plugin *plugin;
    weft_adapter *adapter;
} weft_joined_adapter;

/* A vocabulary that differs from the file's. It overrides the values of config.json. */
typedef struct weft_vocabulary {
    int64_t before, rows; /* vocab_size of the file, and of the model (equal or larger) */
    int32_t pad;          /* pad_token_id; -1: as in the file */
} weft_vocabulary;

typedef struct weft_declared {
    const weft_model_plugin *plugin;
    weft_model *model;
    weft_model_info info;
    char *config_path; /* path of config.json: used by a save */
    char *config_text; /* with the vocabulary, without quantization_config of bitsandbytes */
    size_t config_bytes;
    bool is_saved_packed;       /* config.json states that bitsandbytes packed the weights */
    weft_vocabulary vocabulary; /* rows 0: as in the file */
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
    weft_lookup modules_by_path, parameters_by_name, segments_by_name; /* parameters: with aliases */
    weft_joined_adapter adapters[WEFT_MOST_ADAPTERS];
    int32_t n_adapters;
    weft_declared_site *sites; /* [n_sites] sites of the model that adapters may claim; NULL without an adapter */
    int32_t n_sites;
    int64_t state_block;   /* block length of the optimizer state in elements, set before the layout is created; 0 is
                              1 */
    int32_t packed_wanted; /* a packed parameter named by the last selection, although it cannot be trained; -1:
                              absent */
} weft_declared;

/* Removes quantization_config from *text, config.json, if it is that of bitsandbytes, whose tensors Weft reads itself
 * (base/bitsandbytes.c), and sets *taken. Model plugins reject the key of other programs. Fails if the text is not
 * strict JSON; `path` names the file in the error. */
weft_status weft_quantization_take(bool *taken, char **text, size_t *bytes, const char *path, weft_error *err);

/* Runs the plugin's create and declare with the text of config.json. vocabulary: changed; NULL: the file's. The result
 * owns the model. */
weft_status weft_declared_create(weft_declared **out, const weft_host *host, const weft_model_plugin *plugin,
                                 const void *plugin_config, const char *config_path, const weft_vocabulary *vocabulary,
                                 weft_error *err);
void weft_declared_destroy(weft_declared *declared); /* NULL is allowed */

/* Sets `trainable`: "all", or a comma-separated list of adapter, head, vocabulary (token tables and the head), first:N,
 * last:N (blocks) and parameter names, in which '*' matches any text. Parameters that an adapter declares as frozen
 * stay frozen without a warning. An item without a match is an error that lists names. A failure changes no flags.
 * Packed parameters stay frozen. The caller decides whether `packed_wanted` is an error. */
weft_status weft_declared_select(weft_declared *declared, const char *trainable, weft_error *err);

/* Returns the index of a parameter by any of its names, or -1. */
int32_t weft_declared_find(const weft_declared *declared, const char *name);

/* True if module is `ancestor` or one of its descendants. */
bool weft_declared_below(const weft_declared *declared, int32_t module, int32_t ancestor);
/* Returns the index of a module by its path, or -1. */
int32_t weft_declared_module(const weft_declared *declared, const char *path);

int64_t weft_declared_numel(const weft_declared *declared, bool trainable_only);

/* ---- the functions that a model plugin calls to declare itself, and an adapter to extend the model. They record the
 * first error, which is reported at the end, so that a `declare` needs no error checks. ---- */

/* Runs the plugin's declare, which fills the arrays of `declared`. The caller frees them with weft_declared_destroy,
 * also after a failure. */
weft_status weft_builder_run(weft_declared *declared, weft_error *err);

/* Runs the declare of the adapter that joined last on the sites of `declared`. The caller sets all of `job` except its
 * builder and its claim. */
weft_status weft_builder_adapt(weft_declared *declared, weft_adapter_job *job, weft_error *err);

#endif
