/* weftnew-id: a wrap policy: consecutive blocks form units, and all other parameters form the root unit.
 *
 * The main thread of every rank calls it once per run, before planning. The same job must produce the same units. Units
 * determine the timing of communication, and do not change any bit of a result. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/policy.h>

/* The keys of [policy]: type, name, default, range, unit, flags, help. They define struct weftnew_config. */
#define WEFTNEW_KEYS(K)                                                                                                \
    K(I64, blocks, "2", "[1,inf)", "blocks", WEFT_SAME, "Blocks of a unit; the last one may have fewer.")
WEFT_KEYS(weftnew_config, WEFTNEW_KEYS)

/* Returns the n-th block at or after module i, the last block if there are fewer, or -1 if there is no block. */
static int64_t block_behind(const weft_policy_job *job, uint32_t i, int64_t n) {
    int64_t found = -1;
    for (; i < job->n_modules && n > 0; i++) {
        if (!weft_policy_module(job, i)->is_block) continue;
        found = i;
        n--;
    }
    return found;
}

/* Creates a unit with its module's path as the name, or "first..last". */
static int32_t unit_of(const weft_wrap *wrap, const char *first, const char *last) {
    char name[2048];
    const int one = strcmp(first, last) == 0;
    (void)snprintf(name, sizeof name, "%s%s%s", first, one ? "" : "..", one ? "" : last);
    return wrap->unit(wrap->ctx, name);
}

static weft_status weftnew_units(const weft_host *host, const void *config, const weft_policy_job *job,
                                 const weft_wrap *wrap, weft_error *err) {
    const int64_t blocks = ((const weftnew_config *)config)->blocks;
    int64_t first = block_behind(job, 0, 1), i;
    (void)host;
    (void)err; /* the host stores and reports errors of claims */
    while (first >= 0) {
        const int64_t last = block_behind(job, (uint32_t)first, blocks);
        const int32_t unit = unit_of(wrap, weft_policy_module(job, (uint32_t)first)->path,
                                     weft_policy_module(job, (uint32_t)last)->path);
        for (i = first; i <= last; i++)
            if (weft_policy_module(job, (uint32_t)i)->is_block) wrap->claim_rest(wrap->ctx, unit, (int32_t)i);
        first = block_behind(job, (uint32_t)last + 1, 1);
    }
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

static const weft_policy_plugin weftnew_table = {(uint32_t)sizeof(weft_policy_plugin), 0, weftnew_units};

WEFT_PLUGIN(policy, 1, "weftnew-id", "0.1.0", "Runs of blocks are units.", weftnew_config, NULL, weftnew_table)
