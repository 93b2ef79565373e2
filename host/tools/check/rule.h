/* host/tools/check/rule.h: what a plugin of a kind has to keep to, as rules that can be tried.
 *
 * A rule is tried in a process of its own, which has loaded the plugin and filled its keys: whatever it breaks there,
 * the answer is a sentence. What is asked is generated from numbers and the same in every process. */
#ifndef WEFT_HOST_TOOLS_CHECK_RULE_H
#define WEFT_HOST_TOOLS_CHECK_RULE_H

#include "tools/check/plugin_under_test.h"

typedef struct weft_rule {
    const char *number; /* as in docs/sdk-rules.md: "R31" */
    const char *kind;   /* NULL: every kind */
    const char *says;   /* what holds, in a few words */
    /* Works in an empty directory that goes away after it. WEFT_OK: it holds. WEFT_E_UNSUPPORTED: it cannot be tried,
     * and err says why; or it does not apply, which WEFT_MOOT says. Else err says what broke it. */
    weft_status (*holds)(weft_plugin_under_test *tested, weft_error *err);
    bool is_long; /* whole commands: it has WEFT_LONG_RULE times as long, and being slow says nothing of the plugin */
} weft_rule;

enum { WEFT_LONG_RULE = 10 };

/* The rules of a kind, ended by one without a number. */
extern const weft_rule weft_rules_optimizer[], weft_rules_policy[], weft_rules_strategy[], weft_rules_tokenizer[],
    weft_rules_data[], weft_rules_model[], weft_rules_adapter[], weft_rules_device[], weft_rules_comm[],
    weft_rules_all[];

/* What a rule is about is something that this plugin does not have, and need not. A broken rule: WEFT_E_PLUGIN with the
 * sentence. */
#define WEFT_MOOT(tested, err, ...) ((tested)->is_moot = true, weft_error_set(err, WEFT_E_UNSUPPORTED, __VA_ARGS__))
/* How much of what a rule asks was tried; what a plugin refuses, with a sentence, is passed over. */
typedef struct weft_tried {
    uint32_t tried, refused;
    char first[400]; /* refusal: what was asked, and what it said */
} weft_tried;

/* After it has refused something. asked: "tree 3 of 12 modules". */
void weft_tried_refused(weft_tried *self, const char *asked, const weft_error *said);
/* What it comes to, of "trees": where some were refused the plugin under test's note says so, and WEFT_E_UNSUPPORTED
 * where fewer than one in `most` was tried. */
weft_status weft_tried_judge(const weft_tried *self, weft_plugin_under_test *tested, const char *what, uint32_t most,
                             weft_error *err);

#define WEFT_BROKEN(err, ...) weft_error_set(err, WEFT_E_PLUGIN, __VA_ARGS__)

/* Of several threads that a rule has started, one has not come to its end. */
#define WEFT_LOST_THREAD(err, slot)                                                                                    \
    WEFT_BROKEN(err, "a thread that has called its %s is gone: it ended the thread, which is the host's", slot)

#endif
