/* runs: an external wrap policy, built outside of the tree by test_out_of_tree.c. Units are runs of blocks and the
 * embedding; the rest is the root unit. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#include <weft/policy.h>

#define RUNS_KEYS(K)                                                                                                   \
    K(I64, blocks, "2", "[1,inf)", "blocks", WEFT_SAME, "Blocks of a unit; the last one may have fewer.")
WEFT_KEYS(runs_config, RUNS_KEYS)

/* Returns the n-th block at or after module i, or the last one; -1: no block. */
static int64_t block_behind(const weft_policy_job *job, uint32_t i, int64_t n) {
    int64_t found = -1;
    for (; i < job->n_modules && n > 0; i++) {
        if (!weft_policy_module(job, i)->is_block) continue;
        found = i;
        n--;
    }
    return found;
}

static int32_t unit_of(const weft_wrap *wrap, const char *first, const char *last) {
    char name[512];
    const char *between = strcmp(first, last) == 0 ? "" : "..";
    (void)snprintf(name, sizeof name, "%s%s%s", first, between, *between == 0 ? "" : last);
    return wrap->unit(wrap->ctx, name);
}

static void wrap_blocks(const weft_policy_job *job, const weft_wrap *wrap, int64_t blocks) {
    int64_t first = block_behind(job, 0, 1), i;
    while (first >= 0) {
        const int64_t last = block_behind(job, (uint32_t)first, blocks);
        const int32_t unit = unit_of(wrap, weft_policy_module(job, (uint32_t)first)->path,
                                     weft_policy_module(job, (uint32_t)last)->path);
        for (i = first; i <= last; i++)
            if (weft_policy_module(job, (uint32_t)i)->is_block) wrap->claim_rest(wrap->ctx, unit, (int32_t)i);
        first = block_behind(job, (uint32_t)last + 1, 1);
    }
}

static weft_status runs_units(const weft_host *host, const void *config, const weft_policy_job *job,
                              const weft_wrap *wrap, weft_error *err) {
    uint32_t i;
    (void)host;
    (void)err;
    wrap_blocks(job, wrap, ((const runs_config *)config)->blocks);
    for (i = 0; i < job->n_modules; i++) {
        const weft_module_view *module = weft_policy_module(job, i);
        if (strcmp(module->class_name, "Embedding") != 0) continue;
        wrap->claim_rest(wrap->ctx, wrap->unit(wrap->ctx, module->path), (int32_t)i);
    }
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

static const weft_policy_plugin runs_table = {(uint32_t)sizeof(weft_policy_plugin), 0, runs_units};

WEFT_PLUGIN(policy, 1, "runs", "0.1.0", "Runs of blocks are units.", runs_config, NULL, runs_table)
