/* host/tools/check/usable.c: see usable.h. */
#include "tools/check/usable.h"

#include "base/child.h"
#include "plugin/call.h"
#include "plugin/exit_guard.h"
#include "tools/check/process_state.h"
#include "tools/check/rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* ---- in a process of its own: what a library looks at to answer may leave its process unable to fork ---- */

/* *works: what it says. What it does besides is judged. */
static weft_status ask(bool *works, weft_error *said, const weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin *plugin = tested->loaded->plugin;
    const int64_t before = weft_plugin_under_test_pieces();
    weft_plugin_call call;
    weft_status status;
    weft_plugin_call_begin(&call, tested->loaded, "works");
    *works = plugin->works(weft_plugin_under_test_host(WEFT_POISON_ONE), said) == WEFT_OK;
    status = weft_plugin_call_end(&call, WEFT_OK, err);
    if (status == WEFT_OK && !*works && said->text[0] == '\0')
        return WEFT_BROKEN(err, "it says in works that it cannot work here, and not why");
    if (status == WEFT_OK && weft_plugin_under_test_pieces() != before)
        return WEFT_BROKEN(err, "works keeps %lld pieces of memory of host->alloc",
                           (long long)(weft_plugin_under_test_pieces() - before));
    return status;
}

static weft_status ask_twice(const weft_plugin_under_test *tested, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT, again = WEFT_ERROR_INIT;
    bool works = true, works_again = true;
    weft_status status = ask(&works, &said, tested, err);
    if (status == WEFT_OK) status = ask(&works_again, &again, tested, err);
    if (status == WEFT_OK && works != works_again)
        status = WEFT_BROKEN(err, "works says that it can%s work here, and asked again that it can%s: %s",
                             works ? "" : "not", works_again ? "" : "not", works ? again.text : said.text);
    if (status == WEFT_OK && !works) status = weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", said.text);
    return status;
}

enum answer { CAN = '1', CANNOT, BREAKS_A_RULE, IS_NOT_ASKED };

static char answer_of(weft_status status) {
    switch (status) {
    case WEFT_OK: return CAN;
    case WEFT_E_UNSUPPORTED: return CANNOT;
    case WEFT_E_PLUGIN: return BREAKS_A_RULE;
    default: return IS_NOT_ASKED; /* for what this machine lacks */
    }
}

static void answer_there(int end, void *context) {
    const weft_plugin_under_test *tested = context;
    weft_error err = WEFT_ERROR_INIT;
    weft_process_state before;
    weft_status status = WEFT_OK, left;
    weft_crash_to(end);
    weft_exit_guard_to(end);
    weft_process_state_save(&before);
    status = ask_twice(tested, &err);
    left = status == WEFT_E_PLUGIN ? WEFT_OK : weft_process_state_check(&before, tested->options->kind, &err);
    (void)dprintf(end, "%c%s", answer_of(left == WEFT_OK ? status : left), err.text);
}

/* ---- here ---- */

static weft_status judge(const weft_child *child, weft_error *err) {
    const char *said = child->n > 0 ? child->text + 1 : "";
    const char answer = child->n > 0 ? child->text[0] : '\0';
    if (answer == CAN) return WEFT_OK;
    if (answer == CANNOT) return weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", said);
    if (answer == BREAKS_A_RULE) return WEFT_BROKEN(err, "%s", said);
    if (answer == IS_NOT_ASKED) return weft_error_set(err, WEFT_E_SYSTEM, "%s", said);
    if (child->n > 0) return WEFT_BROKEN(err, "%s", child->text); /* the line of who was at work */
    if (!child->in_time) return WEFT_BROKEN(err, "works does not come back");
    if (WIFSIGNALED(child->status)) return WEFT_BROKEN(err, "works crashes: signal %d", WTERMSIG(child->status));
    return WEFT_BROKEN(err, "works ends the process, with status %d", WEXITSTATUS(child->status));
}

weft_status weft_usable(const weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin *plugin = tested->loaded->plugin;
    weft_plugin_under_test asked = *tested;
    weft_child child = {0};
    weft_status status = WEFT_OK;
    if (!WEFT_HAS(plugin, works) || plugin->works == NULL) return WEFT_OK;
    status = weft_child_run(&child, answer_there, &asked, sizeof err->text, tested->options->seconds, err);
    if (status == WEFT_OK) status = judge(&child, err);
    free(child.text);
    return status;
}
