/* block: each block of the model (a child of its list of blocks) is a unit; the rest is left to the root unit. */
#include <weft/policy.h>

WEFT_NO_KEYS(block_config)

static weft_status block_units(const weft_host *host, const void *config, const weft_policy_job *job, uint8_t *starts,
                               weft_error *err) {
    uint32_t i;
    (void)host;
    (void)config;
    (void)err;
    for (i = 0; i < job->n_modules; i++) {
        const weft_module_view *module =
            (const weft_module_view *)(const void *)((const char *)job->modules + (size_t)i * job->stride);
        starts[i] = module->is_block ? 1 : 0;
    }
    return WEFT_OK;
}

static const weft_policy_plugin block_table = {(uint32_t)sizeof(weft_policy_plugin), 0, block_units};

WEFT_PLUGIN(policy, 0, "block", "0.1.0", "One unit per block of the model.", block_config, NULL, block_table)
