/* weft/policy.h: which parameters travel together (policy/0: may still change until several ranks have used it).
 *
 * A wrap policy sees the module tree and says, for each module, whether it starts a unit. A unit holds the
 * parameters of its module's subtree that no deeper unit claimed; what is left at the end forms the root unit. A
 * policy is pure: the same tree gives the same units, on every rank. It never decides who holds a unit: that is the
 * strategy's.
 */
#ifndef WEFT_POLICY_H
#define WEFT_POLICY_H

#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_module_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *path;       /* "model.layers.3.self_attn" */
    const char *name;       /* "self_attn" */
    const char *class_name; /* "LlamaAttention" */
    int32_t parent;         /* index; -1: a root */
    int32_t is_block;       /* 1: a child of the model's list of blocks */
    int64_t parameters;     /* elements in the subtree, tied storage once */
    int64_t own_parameters; /* elements of the module itself */
    int64_t trainable;      /* elements of the subtree that are trained */
} weft_module_view;

typedef struct weft_policy_job {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t n_modules;
    uint32_t stride;                 /* sizeof(weft_module_view) of the host */
    const weft_module_view *modules; /* parents before children */
} weft_policy_job;

typedef struct weft_policy_plugin {
    uint32_t struct_size;
    uint32_t flags;
    /* starts[i] = 1 where module i starts a unit; the host zeroes the array. [main] [required] */
    weft_status (*units)(const weft_host *host, const void *config, const weft_policy_job *job, uint8_t *starts,
                         weft_error *err);
} weft_policy_plugin;

#ifdef __cplusplus
}
#endif
#endif
