/* host/tools/check/try_rule.h: one rule tried on one plugin, in a process of its own. */
#ifndef WEFT_HOST_TOOLS_CHECK_TRY_RULE_H
#define WEFT_HOST_TOOLS_CHECK_TRY_RULE_H

#include "tools/check/rule.h"

typedef enum weft_verdict {
    WEFT_VERDICT_HOLDS = 0,
    WEFT_VERDICT_MOOT = 1,    /* it is about what this plugin does not have, and need not */
    WEFT_VERDICT_UNTRIED = 2, /* it needs something that is not here */
    WEFT_VERDICT_BROKEN = 3,
    WEFT_VERDICT_CRASHED = 4, /* the process was ended by a signal, or by the plugin */
    WEFT_VERDICT_HANGS = 5    /* it took longer than it may */
} weft_verdict;

const char *weft_verdict_name(int32_t verdict);

typedef struct weft_trial {
    const weft_rule *rule;
    int32_t verdict;
    char why[2048]; /* where it holds: what it was not tried on, or "" */
} weft_trial;

/* Tries the rule. An error is this host's own; WEFT_E_USER: a key that the user gave is refused. [main] */
weft_status weft_rule_try(weft_trial *out, const weft_rule *rule, const weft_plugin_under_test_options *options,
                          weft_error *err);

/* Rule i of a kind, those of all kinds first and last; NULL: no more. */
const weft_rule *weft_rule_at(const char *kind, size_t i);

#endif
