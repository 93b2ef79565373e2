/* host/model/wrap.h: runs a wrap policy and records the unit of each parameter.
 *
 * The policy must claim each parameter exactly once; otherwise it fails. host/model/layout.h computes the memory layout
 * of the units. */
#ifndef WEFT_HOST_MODEL_WRAP_H
#define WEFT_HOST_MODEL_WRAP_H

#include "model/declare.h"
#include <weft/policy.h>

typedef struct weft_wrapping {
    char **names; /* [n_units] names from the policy, in order of creation */
    int32_t n_units;
    int32_t *unit_of; /* [n_parameters] index into names, or WEFT_UNIT_ROOT */
} weft_wrapping;

/* Zeroes *out first. The caller frees it, also after a failure. */
weft_status weft_wrapping_ask(weft_wrapping *out, const weft_declared *declared, const weft_host *host,
                              const weft_policy_plugin *policy, const void *policy_config, weft_error *err);
void weft_wrapping_free(weft_wrapping *self);

#endif
