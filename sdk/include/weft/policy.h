/* weft/policy.h: wrap policies: assignment of parameters to units (policy/1).
 *
 * A wrap policy receives the module tree and the parameters, and assigns each parameter to a unit: the set that is
 * gathered, reduced and released together, like an FSDP wrapping unit. It assigns parameters, not modules, so that a
 * unit may be two layers, half a layer, or any set of suitable size. Remaining parameters must be assigned to the root
 * unit explicitly. A parameter that is never claimed, or claimed more than once, is an error with the parameter's name.
 *
 * One unit per block, and a root unit for the rest:
 *
 *     for (i = 0; i < job->n_modules; i++) {
 *         const weft_module_view *module = weft_policy_module(job, i);
 *         if (module->is_block) wrap->claim_rest(wrap->ctx, wrap->unit(wrap->ctx, module->path), (int32_t)i);
 *     }
 *     wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
 *     return WEFT_OK;
 *
 * For nested units, process the modules from last to first: children follow their parents, so the innermost module
 * claims its parameters before the outer one claims the rest.
 *
 * A policy is pure: the same job produces the same units, on every rank and in every run. It does not assign units to
 * ranks, which the strategy does, and it does not change any bit of a result. Trained and frozen parameters, and
 * several types, may share a unit: the host stores them in separate groups. Units are ordered by their first parameter,
 * not by creation. A unit without parameters is dropped.
 *
 * The list may contain parameters that the model did not declare (an adapter adds its own to the modules that it
 * adapts). Select by modules and sizes rather than by names, and end with claim_rest.
 */
#ifndef WEFT_POLICY_H
#define WEFT_POLICY_H

#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_UNIT_ROOT   (-1) /* instead of a unit: the root unit */
#define WEFT_ALL_MODULES (-1) /* instead of a module: all modules */

typedef struct weft_module_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *path;       /* "model.layers.3.self_attn"; "": an unnamed root */
    const char *name;       /* "self_attn" */
    const char *class_name; /* "LlamaAttention" */
    int32_t parent;         /* index; -1: a root */
    int32_t is_block;       /* 1: a child of the model's list of blocks */
    int64_t parameters;     /* elements in the subtree; tied storage counts once, at its first name */
    int64_t own_parameters; /* elements of the module without its children */
    int64_t trainable;      /* trained elements in the subtree */
} weft_module_view;

/* One storage. Tied storage has one entry, under its first name, and belongs to the unit of its first user. */
typedef struct weft_parameter_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *name; /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t numel;
    int32_t module;    /* index of the module that declares it */
    int32_t dtype;     /* weft_dtype in memory */
    int32_t trainable; /* 1: trained; 0: frozen */
    int32_t reserved;
} weft_parameter_view;

typedef struct weft_policy_job {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t n_modules, n_parameters;
    uint32_t module_stride, parameter_stride; /* sizeof of the views in the host */
    const weft_module_view *modules;          /* parents before children */
    const weft_parameter_view *parameters;    /* in declaration order */
} weft_policy_job;

static inline const weft_module_view *weft_policy_module(const weft_policy_job *job, uint32_t i) {
    const char *at = (const char *)job->modules + (size_t)i * job->module_stride;
    return (const weft_module_view *)(const void *)at;
}

static inline const weft_parameter_view *weft_policy_parameter(const weft_policy_job *job, uint32_t i) {
    const char *at = (const char *)job->parameters + (size_t)i * job->parameter_stride;
    return (const weft_parameter_view *)(const void *)at;
}

typedef struct weft_wrap_ctx weft_wrap_ctx; /* defined by the host */

/* The host's callbacks for `units`. The first error is stored and ends the run with a message; later calls do nothing,
 * so a policy needs no checks. All [main]. */
typedef struct weft_wrap {
    uint32_t struct_size;
    uint32_t flags;
    weft_wrap_ctx *ctx; /* first argument of every call */

    /* Creates a unit. name: copied; unique and not "root". Use the path of its module, or "first..last" for several. */
    int32_t (*unit)(weft_wrap_ctx *ctx, const char *name);
    /* Assigns the parameter to the unit, or to WEFT_UNIT_ROOT. */
    void (*claim)(weft_wrap_ctx *ctx, int32_t unit, int32_t parameter);
    /* Assigns all unclaimed parameters of the module's subtree (or of WEFT_ALL_MODULES) to the unit. */
    void (*claim_rest)(weft_wrap_ctx *ctx, int32_t unit, int32_t module);
} weft_wrap;

typedef struct weft_policy_plugin {
    uint32_t struct_size;
    uint32_t flags;
    /* Claims each parameter of the job once. job and wrap are valid only during this call. [main] [required] */
    weft_status (*units)(const weft_host *host, const void *config, const weft_policy_job *job, const weft_wrap *wrap,
                         weft_error *err);
} weft_policy_plugin;

#ifdef __cplusplus
}
#endif
#endif
