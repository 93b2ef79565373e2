/* host/tools/check/try_rule.h: runs one rule on one plugin, in a child process. */
#ifndef WEFT_HOST_TOOLS_CHECK_TRY_RULE_H
#define WEFT_HOST_TOOLS_CHECK_TRY_RULE_H

#include "tools/check/plugin_under_test.h"
#include "tools/check/rule.h"

/* checks the slot `works`: can the plugin work on this machine. */

/* Calls it two times. WEFT_OK: it works, or has no such slot. WEFT_E_UNSUPPORTED: it does not work, and err has only
 * its message. WEFT_E_PLUGIN: the slot violates a rule. [main] */
weft_status weft_usable(const weft_plugin_under_test *tested, weft_error *err);

typedef enum weft_verdict {
    WEFT_VERDICT_HOLDS = 0,
    WEFT_VERDICT_MOOT = 1,    /* it tests an optional feature that this plugin lacks */
    WEFT_VERDICT_UNTRIED = 2, /* a requirement is missing here */
    WEFT_VERDICT_BROKEN = 3,
    WEFT_VERDICT_CRASHED = 4, /* a signal or the plugin ended the process */
    WEFT_VERDICT_HANGS = 5    /* it exceeded the timeout */
} weft_verdict;

const char *weft_verdict_name(int32_t verdict);

typedef struct weft_trial {
    const weft_rule *rule;
    int32_t verdict;
    char why[2048]; /* after success: remarks such as skipped inputs, or "" */
} weft_trial;

/* Runs the rule. An error is the host's own; WEFT_E_USER: a key passed by the user is invalid. [main] */
weft_status weft_rule_try(weft_trial *out, const weft_rule *rule, const weft_plugin_under_test_options *options,
                          weft_error *err);

/* Returns rule i of a kind, with the rules of every kind first and last; NULL: no more rules. */
const weft_rule *weft_rule_at(const char *kind, size_t i);

#endif
