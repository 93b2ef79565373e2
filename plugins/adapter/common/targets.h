/* plugins/adapter/common/targets.h: selects the sites of an adapter from its configuration: by names, patterns, all
 * linears, or a regular expression; in all layers, or in some. */
#ifndef WEFT_ADAPTER_TARGETS_H
#define WEFT_ADAPTER_TARGETS_H

#include <weft/adapter.h>

/* Module names from keys or from an adapter_config.json. */
typedef struct module_names {
    const char *names;  /* "q_proj,v_proj", "*.mlp.*", "all-linear"; "": use regex */
    const char *regex;  /* must match the complete path, like PEFT's target_modules as a string; "": unused */
    const char *source; /* the adapter_config.json, in which names may match no module, as in PEFT; NULL: names come
                           from keys */
} module_names;

typedef struct targets {
    module_names wanted;
    module_names left_out; /* exclusions; "" and "": empty. Names from a file are not patterns, as in PEFT */
    const char *layers;    /* "all", "first:N", "last:N", or "0,2,5" */
    uint32_t kinds;        /* 1u << weft_site_kind for each supported kind */
} targets;

/* Sets chosen[n_sites] to 1 for each selected site. Slices are not selected: they follow their complete weight. An item
 * without a match fails with a message that begins with the key: "targets has 'qproj', ...", or with the file. */
weft_status targets_choose(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err);

/* True if a name or pattern, in the syntax of `targets` and `exclude`, matches the site. */
int targets_mean(const char *item, const weft_site *site);

/* For error messages: the names of sites, without duplicates, and the nearest one to an item. chosen: only marked
 * sites; NULL: all sites of the kinds. */
typedef struct targets_known {
    const char *nearest; /* "": no sites */
    char all[512];
} targets_known;
void targets_know(targets_known *out, const weft_adapter_job *job, uint32_t kinds, const uint8_t *chosen,
                  const char *item);
/* Returns the part of a path after its last dot. */
const char *targets_last_name(const char *path);

/* True if `layers` contains the block. n_layers: of the model. False also for an invalid list. */
int targets_has_layer(const char *layers, int64_t n_layers, int64_t layer);

#endif
