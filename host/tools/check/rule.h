/* host/tools/check/rule.h: rules that every plugin of a kind must satisfy, as executable tests.
 *
 * A rule runs in a child process that has loaded the plugin and filled its keys, so a crash becomes an error message.
 * Inputs are generated from numbers and identical in every process. Rules allocate by base/alloc.h: a child without
 * memory ends, and the rule counts as untried. */
#ifndef WEFT_HOST_TOOLS_CHECK_RULE_H
#define WEFT_HOST_TOOLS_CHECK_RULE_H

#include "base/alloc.h"
#include "tools/check/plugin_under_test.h"

typedef struct weft_rule {
    const char *number; /* as in docs/sdk-rules.md: "R31" */
    const char *says;   /* the requirement in short */
    /* Works in an empty temporary directory. WEFT_OK: the plugin satisfies the rule. WEFT_E_UNSUPPORTED: the rule
     * cannot be tested, for the reason in err, or does not apply (WEFT_MOOT). Otherwise err describes the violation. */
    weft_status (*holds)(weft_plugin_under_test *tested, weft_error *err);
    bool is_long; /* runs complete commands: WEFT_LONG_RULE times the timeout, and slowness is not the plugin's error */
} weft_rule;

enum { WEFT_LONG_RULE = 10 };

/* Rules of a kind, terminated by a rule without a number. */
extern const weft_rule weft_rules_optimizer[], weft_rules_policy[], weft_rules_strategy[], weft_rules_tokenizer[],
    weft_rules_data[], weft_rules_model[], weft_rules_adapter[], weft_rules_device[], weft_rules_comm[],
    weft_rules_all[];

/* Defines `name`, the `holds` of a rule, as a call of `scheme` with a test: scheme(tested, test, err). */
#define WEFT_RULE_BY(name, scheme, test)                                                                               \
    static weft_status name(weft_plugin_under_test *tested, weft_error *err) {                                         \
        return scheme(tested, test, err);                                                                              \
    }

/* Checks that `by` ("it", a slot) rejected a request with a message. what: "a weft_chat that ..."; fix: the end of the
 * message about an accepted one, or "". */
weft_status weft_rejected_check(weft_status status, const weft_error *said, const char *by, const char *what,
                                const char *fix, weft_error *err);

/* Runs `body` in threads at once, each with its element of `contexts`, and waits for them. WEFT_E_PLUGIN: the plugin
 * ended a thread that called its `slot`. [main] */
enum { WEFT_RULE_THREADS = 4 };
weft_status weft_rule_threads(void (*body)(void *context), void *contexts, size_t size, const char *slot,
                              weft_error *err);

/* Numbers of tested and rejected inputs. Inputs that a plugin rejects with a message are skipped. */
typedef struct weft_tried {
    uint32_t tried, refused;
    char first[400]; /* the first rejected input, and its message */
} weft_tried;

/* Counts a rejection. asked: "tree 3 of 12 modules". */
void weft_tried_refused(weft_tried *self, const char *asked, const weft_error *said);
/* Evaluates the counts, for inputs called `what`: "trees". Rejections are added to the plugin under test's note.
 * WEFT_E_UNSUPPORTED: fewer than one in `most` inputs was tested. */
weft_status weft_tried_check(const weft_tried *self, weft_plugin_under_test *tested, const char *what, uint32_t most,
                             weft_error *err);

/* Calls the slot `works` two times: can the plugin work on this machine. WEFT_OK: it works, or has no such slot.
 * WEFT_E_UNSUPPORTED: it does not work, and err has only its message. WEFT_E_PLUGIN: the slot violates a rule.
 * [main] */
weft_status weft_usable(const weft_plugin_under_test *tested, weft_error *err);

/* ---- one rule on one plugin, in a child process ---- */

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
