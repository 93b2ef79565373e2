/* host/tools/check/try_rule.c: see try_rule.h. */
#include "tools/check/try_rule.h"

#include "base/child.h"
#include "base/join.h"
#include "base/tree.h"
#include "tools/check/process_state.h"
#include "tools/check/own_command.h"
#include "tools/check/usable.h"
#include "plugin/exit_guard.h"
#include "plugin/services.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char *weft_verdict_name(int32_t verdict) {
    static const char *const names[] = {"holds", "moot", "untried", "broken", "crashes", "hangs"};
    return names[verdict];
}

const weft_rule *weft_rule_at(const char *kind, size_t i) {
    static const weft_rule *const kinds[] = {weft_rules_optimizer, weft_rules_policy, weft_rules_strategy,
                                             weft_rules_tokenizer, weft_rules_data,   weft_rules_model,
                                             weft_rules_adapter,   weft_rules_device, weft_rules_comm};
    if (i == 0) return &weft_rules_all[0];
    i--;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (strcmp(kinds[k]->kind, kind) != 0) continue;
        for (const weft_rule *rule = kinds[k]; rule->number != NULL; rule++)
            if (i-- == 0) return rule;
    }
    return i < 2 ? &weft_rules_all[1 + i] : NULL;
}

/* ---- what was tried ---- */

void weft_tried_refused(weft_tried *self, const char *asked, const weft_error *said) {
    if (self->refused++ == 0) (void)snprintf(self->first, sizeof self->first, "%s: %.300s", asked, said->text);
}

weft_status weft_tried_judge(const weft_tried *self, weft_plugin_under_test *tested, const char *what, uint32_t most,
                             weft_error *err) {
    const uint32_t all = self->tried + self->refused;
    tested->note[0] = '\0';
    if (self->tried > 0 && self->refused == 0) return WEFT_OK;
    if (self->tried == 0 || self->tried * most < all)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "tried on %u of %u %s, which is too few to say that it holds: it refuses %u, first %s",
                              self->tried, all, what, self->refused, self->first);
    (void)snprintf(tested->note, sizeof tested->note, "tried on %u of %u %s: it refuses %u, first %s", self->tried, all,
                   what, self->refused, self->first);
    return WEFT_OK;
}

/* ---- in the child ---- */

typedef struct question {
    const weft_rule *rule;
    const weft_plugin_under_test_options *options;
    char scratch[WEFT_PATH_BYTES]; /* a directory for what the rule writes: the child works in it */
} question;

enum { REFUSED = 'r' }; /* in a verdict's place: the user's keys are wrong */
enum { MUTE = 109 };    /* the status of one that has no descriptor left to answer by */

static char answer_of(weft_status status, const weft_plugin_under_test *tested) {
    if (status == WEFT_OK) return '0' + WEFT_VERDICT_HOLDS;
    if (weft_own_command_hangs()) return '0' + WEFT_VERDICT_HANGS;
    if (status != WEFT_E_UNSUPPORTED) return '0' + WEFT_VERDICT_BROKEN;
    return tested->is_moot ? '0' + WEFT_VERDICT_MOOT : '0' + WEFT_VERDICT_UNTRIED;
}

/* Of these kinds, what the rule asks depends on every key, but for those that need another one to count. */
static bool has_quiet_keys(const char *kind) {
    static const char *const kinds[] = {"optimizer", "policy", "strategy", "adapter"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

/* What runs whole commands has the plugin in other processes, which end. A rule of a kind has nothing to ask of a
 * plugin that says it cannot work here; those of every kind judge that. */
static weft_status hold(const weft_rule *rule, weft_plugin_under_test *tested, weft_error *err) {
    weft_process_state before;
    weft_status status;
    weft_process_state_save(&before);
    status = rule->kind == NULL ? WEFT_OK : weft_usable(tested, err);
    if (status == WEFT_OK) status = rule->holds(tested, err);
    return status == WEFT_OK && !rule->is_long ? weft_process_state_check(&before, tested->options->kind, err) : status;
}

/* What a reader has to know of a rule that holds. */
static void write_note(weft_error *err, const weft_plugin_under_test *tested) {
    const bool is_idle = tested->idle[0] != '\0' && has_quiet_keys(tested->options->kind);
    (void)snprintf(err->text, sizeof err->text, "%s%s%s%s", tested->note,
                   tested->note[0] != '\0' && is_idle ? "\n" : "",
                   is_idle ? "with other values of these keys it answers the same here, so look whether it reads them: "
                           : "",
                   is_idle ? tested->idle : "");
}

static void try_rule(int end, void *context) {
    const question *asked = context;
    weft_error err = WEFT_ERROR_INIT;
    weft_plugin_under_test tested;
    weft_status status = WEFT_OK;
    char verdict = REFUSED;
    weft_crash_to(end);
    weft_crash_crumb(weft_plugin_under_test_call());
    weft_exit_guard_to(end);
    (void)weft_services_log_level(WEFT_LOG_ERROR);
    if (chdir(asked->scratch) != 0) return; /* which the parent tells as an end without an answer */
    status = weft_plugin_under_test_open(&tested, asked->options, &err);
    if (status == WEFT_E_DEVICE) status = WEFT_E_UNSUPPORTED; /* so says its entry: a machine's, and no mistake */
    if (status == WEFT_OK) status = hold(asked->rule, &tested, &err);
    verdict = tested.refused ? REFUSED : answer_of(status, &tested);
    if (status == WEFT_OK) write_note(&err, &tested);
    weft_plugin_under_test_close(&tested);
    if (dprintf(end, "%c%s", verdict, err.text) < 0) _exit(MUTE);
}

/* ---- in the parent ---- */

/* What it was asked last. */
static void add_question(weft_trial *out, const char *asked) {
    const size_t n = strlen(out->why);
    if (asked[0] != '\0') (void)snprintf(out->why + n, sizeof out->why - n, ", %s", asked);
}

/* The line of the crash handler (plugin/crash.h), or of who has ended the process (plugin/exit_guard.h). False: it
 * has said none. */
static bool take_last_words(weft_trial *out, const weft_child *child) {
    static const char head[] = "weft: ";
    if (child->n <= sizeof head || strncmp(child->text, head, sizeof head - 1) != 0) return false;
    (void)snprintf(out->why, sizeof out->why, "%.*s", (int)strcspn(child->text, "\n") - (int)sizeof head + 1,
                   child->text + sizeof head - 1);
    return true;
}

/* Past the C library, where it has no words. */
static void tell_end(weft_trial *out, int status) {
    const weft_crumb *call = weft_plugin_under_test_call();
    if (call == NULL || call->what[0] == '\0')
        (void)snprintf(out->why, sizeof out->why, "it ends the process, with status %d", status);
    else
        (void)snprintf(out->why, sizeof out->why, "%s ended the process in its %s, with status %d", call->who,
                       call->what, status);
}

static void tell_crash(weft_trial *out, const weft_child *child) {
    const int status = child->status;
    out->verdict = WEFT_VERDICT_CRASHED;
    if (take_last_words(out, child)) return;
    if (WIFSIGNALED(status))
        (void)snprintf(out->why, sizeof out->why, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else tell_end(out, WEXITSTATUS(status));
}

static void judge_child(weft_trial *out, const weft_child *child, double seconds, const char *asked) {
    if (child->n > 0 && child->text[0] >= '0' && child->text[0] <= '0' + WEFT_VERDICT_HANGS) {
        out->verdict = child->text[0] - '0';
        (void)snprintf(out->why, sizeof out->why, "%s", child->text + 1);
    } else if (!child->in_time) {
        out->verdict = out->rule->is_long ? WEFT_VERDICT_UNTRIED : WEFT_VERDICT_HANGS;
        (void)snprintf(out->why, sizeof out->why,
                       out->rule->is_long ? "not finished within %g s" : "it has not come back within %g s", seconds);
        add_question(out, asked);
    } else if (WIFEXITED(child->status) && WEXITSTATUS(child->status) == MUTE) {
        out->verdict = WEFT_VERDICT_BROKEN;
        (void)snprintf(out->why, sizeof out->why, "it closes descriptors that it has not opened: those are the host's");
        add_question(out, asked);
    } else {
        tell_crash(out, child);
        add_question(out, asked);
    }
}

/* Whatever the verdict, a reader learns why. */
static void need_reason(weft_trial *out) {
    if (out->verdict == WEFT_VERDICT_HOLDS || out->why[0] != '\0') return;
    (void)snprintf(out->why, sizeof out->why, "no reason was given, which is a defect of weft or of the plugin");
}

static weft_status make_scratch(question *asked, weft_error *err) {
    const char *where = getenv("TMPDIR");
    weft_status status =
        weft_path_join(asked->scratch, where == NULL || where[0] == '\0' ? "/tmp" : where, "weft-check-XXXXXX", err);
    if (status == WEFT_OK && mkdtemp(asked->scratch) == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: no directory can be made there: %s", asked->scratch,
                                strerror(errno));
    return status;
}

/* However the child has ended, nothing of it stays. */
weft_status weft_rule_try(weft_trial *out, const weft_rule *rule, const weft_plugin_under_test_options *options,
                          weft_error *err) {
    question asked = {.rule = rule, .options = options};
    weft_child child = {0};
    const double seconds = options->seconds * (rule->is_long ? WEFT_LONG_RULE : 1);
    weft_status status = make_scratch(&asked, err);
    memset(out, 0, sizeof *out);
    out->rule = rule;
    if (status != WEFT_OK) return status;
    weft_plugin_under_test_asks("%s", "");
    if (weft_plugin_under_test_call() != NULL) *weft_plugin_under_test_call() = (weft_crumb){.what = ""};
    status = weft_child_run(&child, try_rule, &asked, sizeof out->why - 1, seconds, err);
    if (status == WEFT_OK && child.n > 0 && child.text[0] == REFUSED)
        status = weft_error_set(err, WEFT_E_USER, "%s", child.text + 1);
    else if (status == WEFT_OK) judge_child(out, &child, seconds, weft_plugin_under_test_asked());
    if (status == WEFT_OK) need_reason(out);
    free(child.text);
    if (status == WEFT_OK) return weft_tree_remove(asked.scratch, err);
    (void)weft_tree_remove(asked.scratch, NULL);
    return status;
}
