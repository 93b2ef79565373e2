/* whole: only the root unit, which contains the complete model. */
#include <weft/policy.h>

WEFT_NO_KEYS(whole_config)

static weft_status whole_units(const weft_host *host, const void *config, const weft_policy_job *job,
                               const weft_wrap *wrap, weft_error *err) {
    (void)host;
    (void)config;
    (void)job;
    (void)err;
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

static const weft_policy_plugin whole_table = {(uint32_t)sizeof(weft_policy_plugin), 0, whole_units};

WEFT_PLUGIN(policy, 1, "whole", "0.1.0", "One unit for the complete model.", whole_config, NULL, whole_table)
