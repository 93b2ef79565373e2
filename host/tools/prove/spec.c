/* host/tools/prove/spec.c: see spec.h. */
#include "tools/prove/spec.h"

#include <stdlib.h>

/* ---- policies ---- */

static weft_grid_policy *add_policy(weft_grid_spec *out, const char *label) {
    weft_grid_policy *policy = &out->policies[out->n_policies++];
    (void)snprintf(policy->label, sizeof policy->label, "%s", label);
    return policy;
}

static void add_plugin(weft_grid_spec *out, const char *label, const char *plugin, const char *key) {
    weft_grid_policy *policy = NULL;
    if (out->n_policies == WEFT_GRID_POLICIES) return;
    policy = add_policy(out, label);
    weft_grid_say(&policy->keys, "!policy");
    weft_grid_say(&policy->keys, "policy.plugin=%s", plugin);
    if (key != NULL) weft_grid_say(&policy->keys, "%s", key);
}

/* Modules of a class that have parameters themselves, if this is the first of them. */
static int32_t count_class(const weft_declared *declared, int32_t module) {
    const char *name = declared->modules[module]->class_name;
    int32_t n = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        int32_t p = 0;
        if (strcmp(declared->modules[m]->class_name, name) != 0) continue;
        if (m < module) return 0;
        while (p < declared->n_parameters && declared->parameters[p].module != m) p++;
        n += p < declared->n_parameters;
    }
    return n;
}

/* The class that holds parameters itself in the most modules: the finest units that one name gives. */
static const char *commonest_class(const weft_declared *declared) {
    const char *best = "";
    int32_t most = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const int32_t n = count_class(declared, m);
        if (n > most) best = declared->modules[m]->class_name;
        if (n > most) most = n;
    }
    return best;
}

/* The configuration's own first; the others from coarse to fine, as many as are let. */
static void choose_policies(weft_grid_spec *out, const weft_run *run, const weft_declared *declared) {
    const char *own = run->parts[WEFT_PART_POLICY].loaded->plugin->id, *name = commonest_class(declared);
    char label[160], key[200];
    const int64_t size = weft_declared_numel(declared, false) / 3 + 1;
    (void)add_policy(out, own);
    if (strcmp(own, "block") != 0) add_plugin(out, "block", "block", NULL);
    if (strcmp(own, "whole") != 0) add_plugin(out, "whole", "whole", NULL);
    (void)snprintf(label, sizeof label, "size %lld", (long long)size);
    (void)snprintf(key, sizeof key, "policy.size=%lld", (long long)size);
    if (strcmp(own, "size") != 0) add_plugin(out, label, "size", key);
    (void)snprintf(label, sizeof label, "class %s", name);
    (void)snprintf(key, sizeof key, "policy.classes=%s", name);
    if (strcmp(own, "class") != 0 && name[0] != '\0') add_plugin(out, label, "class", key);
}

/* ---- strategies ---- */

/* A key of [strategy] as it is resolved; NULL: the strategy has none of that name. */
static const char *strategy_setting(const weft_run *run, const char *key) {
    return weft_config_shown(run->config, "strategy", key);
}

static bool has_strategy(const weft_run *run, const char *id, char *missing, size_t size) {
    const weft_loaded *loaded = NULL;
    const size_t n = strlen(missing);
    weft_error why = WEFT_ERROR_INIT;
    if (weft_plugins_get(run->plugins, &loaded, "strategy", id, &why) == WEFT_OK) return true;
    (void)snprintf(missing + n, size - n, "%s%s", n > 0 ? ", " : "", id);
    return false;
}

const char *weft_prove_reduce(const weft_run *run) {
    return strategy_setting(run, "reduce");
}

/* A value of the configuration, handed on. */
static void hand_on(weft_grid_keys *to, const weft_run *run, const char *key) {
    weft_grid_say(to, "strategy.%s=%s", key, strategy_setting(run, key));
}

static bool is_known(const char *id) {
    return strcmp(id, "single") == 0 || strcmp(id, "mp") == 0 || strcmp(id, "ddp") == 0 || strcmp(id, "fsdp") == 0;
}

/* Ranks of "embed,layers.0-12 = 0; layers.13-21,head = 1": each gets a segment, so the highest tells. 0: no map. */
static int32_t ranks_of_map(const char *map) {
    int32_t ranks = 0;
    for (const char *at = strchr(map, '='); at != NULL; at = strchr(at + 1, '=')) {
        const long rank = strtol(at + 1, NULL, 10);
        if (rank >= ranks && rank < INT32_MAX) ranks = (int32_t)rank + 1;
    }
    return ranks;
}

static void choose_map(weft_grid_spec *out, const weft_run *run) {
    const char *map = strategy_setting(run, "device_map");
    if (strcmp(map, "auto") == 0) return;
    out->map_ranks = ranks_of_map(map);
    out->map_1f1b = out->map_ranks == 0 || strcmp(strategy_setting(run, "schedule"), "1f1b") == 0;
    if (strlen(map) < sizeof out->device_map) (void)snprintf(out->device_map, sizeof out->device_map, "%s", map);
}

static void choose_strategies(weft_grid_spec *out, char *missing, size_t size, const weft_run *run) {
    const char *id = weft_run_id(run, WEFT_PART_STRATEGY), *at = strategy_setting(run, "reduce_at");
    out->has_mp = has_strategy(run, "mp", missing, size);
    out->has_ddp = has_strategy(run, "ddp", missing, size);
    out->has_fsdp = has_strategy(run, "fsdp", missing, size);
    if (!is_known(id)) out->own = id;
    out->at_last = strcmp(weft_prove_reduce(run), "ordered") != 0;
    hand_on(&out->common, run, "reduce");
    hand_on(&out->common, run, "reduce_dtype");
    if (strcmp(id, "fsdp") == 0) hand_on(&out->fsdp, run, "root");
    if (strcmp(id, "fsdp") == 0) hand_on(&out->fsdp, run, "reshard_after_forward");
    if (strcmp(id, "mp") == 0) choose_map(out, run);
    (void)snprintf(out->reduce_at, sizeof out->reduce_at, "%s", at == NULL ? "each" : at);
}

void weft_prove_spec(weft_grid_spec *out, char *missing, size_t size, const weft_run *run, const weft_session *session,
                     int32_t world) {
    const weft_engine *engine = session->engine;
    memset(out, 0, sizeof *out);
    missing[0] = '\0';
    out->world = world;
    out->micro_batches = engine->plan.spec.micro_batches;
    out->segments = engine->plan.declared->n_segments;
    choose_policies(out, run, engine->plan.declared);
    choose_strategies(out, missing, size, run);
}
