/* weft/policy.h: which parameters travel together (policy/1).
 *
 * A wrap policy sees the module tree and the parameters, and puts each parameter into a unit: the set that is gathered,
 * reduced and released in one go. It answers parameter by parameter and not module by module, so that a unit may be two
 * layers, half of one, or whatever shares a size. A parameter that nobody wants a unit for belongs to the root unit,
 * which is said, too: one that is left out, and one that is claimed twice, are errors with the parameter's name.
 *
 * Each block a unit, and the rest the root:
 *
 *     for (i = 0; i < job->n_modules; i++) {
 *         const weft_module_view *module = weft_policy_module(job, i);
 *         if (module->is_block) wrap->claim_rest(wrap->ctx, wrap->unit(wrap->ctx, module->path), (int32_t)i);
 *     }
 *     wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
 *     return WEFT_OK;
 *
 * Where units may lie in one another, walk the modules from the last to the first: children come after their parents,
 * so the deepest takes its parameters before the outer one takes the rest.
 *
 * A policy is pure: the same job gives the same units, on every rank and in every run. It never decides who holds a
 * unit, which is the strategy's, and it changes no bit of a result. Trained and frozen parameters and those of several
 * types may share a unit: the host keeps them in groups of their own. Units are ordered by their first parameter,
 * whatever order they were made in; one that nothing was claimed for does not exist.
 *
 * Parameters that the model did not declare may stand in the list (an adapter adds its own to the modules that it
 * adapts), so choose by modules and sizes, and end with claim_rest, rather than by a list of names.
 */
#ifndef WEFT_POLICY_H
#define WEFT_POLICY_H

#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_UNIT_ROOT   (-1) /* in place of a unit: what is left */
#define WEFT_ALL_MODULES (-1) /* in place of a module: the whole model */

typedef struct weft_module_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *path;       /* "model.layers.3.self_attn"; "": a root without a name */
    const char *name;       /* "self_attn" */
    const char *class_name; /* "LlamaAttention" */
    int32_t parent;         /* index; -1: a root */
    int32_t is_block;       /* 1: a child of the model's list of blocks */
    int64_t parameters;     /* elements in the subtree, tied storage once, where its first name stands */
    int64_t own_parameters; /* elements of the module itself */
    int64_t trainable;      /* elements of the subtree that are trained */
} weft_module_view;

/* One storage. A tied one stands once, under its first name, and so travels with its first user. */
typedef struct weft_parameter_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *name; /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t numel;
    int32_t module;    /* index of the module that it is an own parameter of */
    int32_t dtype;     /* weft_dtype, as held */
    int32_t trainable; /* 1: trained; 0: frozen */
    int32_t reserved;
} weft_parameter_view;

typedef struct weft_policy_job {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t n_modules, n_parameters;
    uint32_t module_stride, parameter_stride; /* sizeof of the views, as the host was compiled */
    const weft_module_view *modules;          /* parents before children */
    const weft_parameter_view *parameters;    /* in the order of their declaration */
} weft_policy_job;

static inline const weft_module_view *weft_policy_module(const weft_policy_job *job, uint32_t i) {
    const char *at = (const char *)job->modules + (size_t)i * job->module_stride;
    return (const weft_module_view *)(const void *)at;
}

static inline const weft_parameter_view *weft_policy_parameter(const weft_policy_job *job, uint32_t i) {
    const char *at = (const char *)job->parameters + (size_t)i * job->parameter_stride;
    return (const weft_parameter_view *)(const void *)at;
}

typedef struct weft_wrap_ctx weft_wrap_ctx; /* the host's */

/* The host's side of `units`. The first mistake is kept and ends the run with a sentence; calls after it do nothing, so
 * a policy need not look. All [main]. */
typedef struct weft_wrap {
    uint32_t struct_size;
    uint32_t flags;
    weft_wrap_ctx *ctx; /* first argument of every call */

    /* A new unit. name: copied; one of a kind and not "root". The path of its module, or "first..last" of several. */
    int32_t (*unit)(weft_wrap_ctx *ctx, const char *name);
    /* The parameter joins the unit, or WEFT_UNIT_ROOT. */
    void (*claim)(weft_wrap_ctx *ctx, int32_t unit, int32_t parameter);
    /* All parameters of the module's subtree (or WEFT_ALL_MODULES) that are not claimed yet join it. */
    void (*claim_rest)(weft_wrap_ctx *ctx, int32_t unit, int32_t module);
} weft_wrap;

typedef struct weft_policy_plugin {
    uint32_t struct_size;
    uint32_t flags;
    /* Claims each parameter of the job once. job and wrap: for this call alone. [main] [required] */
    weft_status (*units)(const weft_host *host, const void *config, const weft_policy_job *job, const weft_wrap *wrap,
                         weft_error *err);
} weft_policy_plugin;

#ifdef __cplusplus
}
#endif
#endif
