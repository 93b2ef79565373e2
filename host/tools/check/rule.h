/* host/tools/check/rule.h: rules that every plugin of a kind must satisfy, as executable tests.
 *
 * A rule runs in a child process that has loaded the plugin and filled its keys, so a crash becomes an error message.
 * Inputs are generated from numbers and identical in every process. */
#ifndef WEFT_HOST_TOOLS_CHECK_RULE_H
#define WEFT_HOST_TOOLS_CHECK_RULE_H

#include "tools/check/plugin_under_test.h"

typedef struct weft_rule {
    const char *number; /* as in docs/sdk-rules.md: "R31" */
    const char *kind;   /* NULL: every kind */
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

/* WEFT_MOOT: the rule tests an optional feature that the plugin lacks. WEFT_BROKEN: a violation, with its message. */
#define WEFT_MOOT(tested, err, ...) ((tested)->is_moot = true, weft_error_set(err, WEFT_E_UNSUPPORTED, __VA_ARGS__))
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

#define WEFT_BROKEN(err, ...) weft_error_set(err, WEFT_E_PLUGIN, __VA_ARGS__)

/* A thread of the rule did not finish. */
#define WEFT_LOST_THREAD(err, slot)                                                                                    \
    WEFT_BROKEN(err, "a thread that has called its %s is gone: it ended the thread, which is the host's", slot)

#endif
