/* The policy in SOURCE. ROOT_ONLY_IF: the root unit has everything where that is true. `units` first sleeps for
 * SLEEP_MS. */
#include "changed/changed.h"

#include SOURCE

static weft_status units(const weft_host *host, const void *config, const weft_policy_job *job, const weft_wrap *wrap,
                         weft_error *err) {
    usleep((useconds_t)(1000 * number_in("SLEEP_MS", 0)));
#ifdef ROOT_ONLY_IF
    if (ROOT_ONLY_IF) {
        wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
        return WEFT_OK;
    }
#endif
    return original.units(host, config, job, wrap, err);
}

static void change(weft_policy_plugin *to) {
    to->units = units;
}
