// A policy plugin in C++: the headers and WEFT_PLUGIN as a C++ author meets them.
#include <weft/policy.h>

namespace {

WEFT_NO_KEYS(whole_config)

weft_status whole_units(const weft_host *host, const void *, const weft_policy_job *job, const weft_wrap *wrap,
                        weft_error *) {
    weft_log(host, WEFT_LOG_DEBUG, "%u modules stay in the root unit", job->n_modules);
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

const weft_policy_plugin whole_table = {static_cast<uint32_t>(sizeof(weft_policy_plugin)), 0, whole_units};

} // namespace

WEFT_PLUGIN(policy, 1, "whole", "0.1.0", "One unit for the whole model.", whole_config, NULL, whole_table)
