/* plugins/adapter/common/targets.h: which sites a configuration means, as adapters say it: names, patterns, all
 * linears, a regular expression; in all layers, or in some. */
#ifndef WEFT_ADAPTER_TARGETS_H
#define WEFT_ADAPTER_TARGETS_H

#include <weft/adapter.h>

/* Modules, as keys or an adapter_config.json name them. */
typedef struct module_names {
    const char *names;  /* "q_proj,v_proj", "*.mlp.*", "all-linear"; "": a regular expression says it */
    const char *regex;  /* that a whole path has to match, as PEFT's target_modules where it is one text; "": none */
    const char *source; /* the adapter_config.json that says it, where not every name has to be met, as in PEFT; NULL:
                         * keys do */
} module_names;

typedef struct targets {
    module_names wanted;
    module_names left_out; /* of those; "" and "": none. What a file names so is no pattern, as in PEFT */
    const char *layers;    /* "all", "first:N", "last:N", or "0,2,5" */
    uint32_t kinds;        /* 1u << weft_site_kind that the adapter serves */
} targets;

/* chosen: [n_sites], set to 1 where it is; no slice is, for what holds for its whole holds for it. An item that matches
 * nothing is refused by a sentence that begins with the key: "targets has 'qproj', ...", or with the file. */
weft_status targets_choose(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err);

/* Whether a name or pattern, as `targets` and `exclude` have them, means the site. */
int targets_mean(const char *item, const weft_site *site);

/* The names of sites, each once, and of those the nearest to an item: what a refusal says that there is. chosen: of
 * those that it marks; NULL: of all that the kinds have. */
typedef struct targets_known {
    const char *nearest; /* "": there are none */
    char all[512];
} targets_known;
void targets_know(targets_known *out, const weft_adapter_job *job, uint32_t kinds, const uint8_t *chosen,
                  const char *item);
/* What stands behind a path's last dot. */
const char *targets_last_name(const char *path);

/* Whether `layers` has the block. n_layers: of the model. False for what is no such list as well. */
int targets_has_layer(const char *layers, int64_t n_layers, int64_t layer);

#endif
