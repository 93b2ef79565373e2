/* host/model/wrap.h: a wrap policy is asked, and its answer taken down: which unit each parameter travels in.
 *
 * Each parameter is claimed once: one that was left out, and one that was claimed twice, are errors of the policy. What
 * the units come to in memory is host/model/layout.h. */
#ifndef WEFT_HOST_MODEL_WRAP_H
#define WEFT_HOST_MODEL_WRAP_H

#include "model/declare.h"
#include <weft/policy.h>

typedef struct weft_wrapping {
    char **names; /* [n_units] as the policy gave them, in the order in which it made them */
    int32_t n_units;
    int32_t *unit_of; /* [n_parameters] index into names, or WEFT_UNIT_ROOT */
} weft_wrapping;

/* *out is zeroed first; to be freed also after a failure. */
weft_status weft_wrapping_ask(weft_wrapping *out, const weft_declared *declared, const weft_host *host,
                              const weft_policy_plugin *policy, const void *policy_config, weft_error *err);
void weft_wrapping_free(weft_wrapping *self);

#endif
