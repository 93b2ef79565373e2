/* The policy in SOURCE. ROOT_ONLY_IF: the root unit has everything where that is true. IN_UNITS: a function of this
 * file, called first in `units`, which first sleeps for SLEEP_MS. */
#include "changed/changed.h"

#include SOURCE

static int go_on(void) {
    return 1;
}

static int crash(void) {
    *(volatile int *)8 = 1;
    return 1;
}

static int hang(void) {
    for (;;) (void)sleep(1);
}

static int stop(void) { /* without a claim */
    return 0;
}

#ifndef IN_UNITS
#define IN_UNITS go_on
#endif
#ifndef ROOT_ONLY_IF
#define ROOT_ONLY_IF 0
#endif

static weft_status units(const weft_host *host, const void *config, const weft_policy_job *job, const weft_wrap *wrap,
                         weft_error *err) {
    usleep((useconds_t)(1000 * number_in("SLEEP_MS", 0)));
    if (!IN_UNITS()) return WEFT_OK;
    if (!(ROOT_ONLY_IF)) return original.units(host, config, job, wrap, err);
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

static void change(weft_policy_plugin *to) {
    to->units = units;
}
