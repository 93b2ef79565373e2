/* block: each block of the model (a child of its list of blocks) is a unit; the other parameters are in the root
 * unit. */
#include <weft/policy.h>

WEFT_NO_KEYS(block_config)

static weft_status block_units(const weft_host *host, const void *config, const weft_policy_job *job,
                               const weft_wrap *wrap, weft_error *err) {
    uint32_t i;
    (void)host;
    (void)config;
    (void)err;
    for (i = 0; i < job->n_modules; i++) {
        const weft_module_view *module = weft_policy_module(job, i);
        if (module->is_block) wrap->claim_rest(wrap->ctx, wrap->unit(wrap->ctx, module->path), (int32_t)i);
    }
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

static const weft_policy_plugin block_table = {(uint32_t)sizeof(weft_policy_plugin), 0, block_units};

WEFT_PLUGIN(policy, 1, "block", "0.1.0", "One unit per block of the model.", block_config, NULL, block_table)
