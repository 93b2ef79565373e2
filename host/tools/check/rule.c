/* host/tools/check/rule.c: see rule.h. */
#include "tools/check/rule.h"

#include "base/child.h"
#include "base/file.h"
#include "base/text.h"
#include "plugin/crash.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "tools/check/own_command.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- process-wide state (R13) ---- */

/* What a plugin must not change, apart from child processes. A run restores changes made by `create`; changes by other
 * slots go unnoticed there. */
typedef struct process_state {
    weft_process process;
    uint64_t environment;   /* without WEFT_ variables of the host */
    struct stat streams[3]; /* standard input, output and error */
} process_state;

/* Returns a hash that does not depend on the order of the variables. */
static uint64_t sum_environment(void) {
    uint64_t sum = 0;
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        uint64_t hash = 1469598103934665603u; /* FNV-1a */
        if (strncmp(*at, "WEFT_", 5) == 0) continue;
        for (const char *c = *at; *c != '\0'; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
        sum += hash;
    }
    return sum;
}

static void save_state(process_state *out) {
    weft_process_save(&out->process);
    out->environment = sum_environment();
    memset(out->streams, 0, sizeof out->streams);
    for (int i = 0; i < 3; i++) (void)fstat(i, &out->streams[i]);
}

static int other_handler(const weft_process *before) {
    struct sigaction now;
    for (int i = 1; i < (int)(sizeof before->handlers / sizeof before->handlers[0]); i++)
        if (sigaction(i, NULL, &now) == 0 && now.sa_handler != before->handlers[i].sa_handler) return i;
    return 0;
}

static weft_status check_streams(const process_state *before, weft_error *err) {
    static const char *const names[] = {"input", "output", "error"};
    for (int i = 0; i < 3; i++) {
        struct stat now;
        const bool is_open = fstat(i, &now) == 0;
        if (!is_open || now.st_dev != before->streams[i].st_dev || now.st_ino != before->streams[i].st_ino)
            return WEFT_BROKEN(err,
                               "it %s standard %s, descriptor %d, during the rule: the descriptor belongs to the host",
                               is_open ? "redirected" : "closed", names[i], i);
    }
    return WEFT_OK;
}

/* WEFT_E_PLUGIN: the state differs. Device libraries' signal handlers are permitted; a run removes them. [main] */
static weft_status check_state(const process_state *before, const char *kind, weft_error *err) {
    const int handler = other_handler(&before->process);
    weft_status status = weft_process_restore(&before->process, "it was tried", err);
    if (status != WEFT_OK) return weft_error_prefix(err, "it ");
    if (handler != 0 && strcmp(kind, "device") != 0)
        return WEFT_BROKEN(err, "it changed the handler of signal %d during the rule: handlers belong to the host",
                           handler);
    if (sum_environment() != before->environment)
        return WEFT_BROKEN(err, "it changed the environment during the rule: the environment belongs to the host");
    if (check_streams(before, err) != WEFT_OK) return WEFT_E_PLUGIN;
    if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD)
        return WEFT_BROKEN(err,
                           "it started a process during the rule and did not end it: a plugin may not start processes");
    return WEFT_OK;
}

/* ---- the slot `works`, in a child process: after the query, a library may leave the process unable to fork ---- */

/* *works: the plugin's answer. Also checks for leaks. */
static weft_status ask(bool *works, weft_error *said, const weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin *plugin = tested->loaded->plugin;
    const int64_t before = weft_plugin_under_test_pieces();
    weft_plugin_call call;
    weft_status status;
    weft_plugin_call_begin(&call, tested->loaded, "works");
    *works = plugin->works(weft_plugin_under_test_host(WEFT_POISON_ONE), said) == WEFT_OK;
    status = weft_plugin_call_end(&call, WEFT_OK, err);
    if (status == WEFT_OK && !*works && said->text[0] == '\0') return WEFT_BROKEN(err, "works fails without a reason");
    if (status == WEFT_OK && weft_plugin_under_test_pieces() != before)
        return WEFT_BROKEN(err, "works does not release %lld allocations of host->alloc",
                           (long long)(weft_plugin_under_test_pieces() - before));
    return status;
}

static weft_status query_again(const weft_plugin_under_test *tested, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT, again = WEFT_ERROR_INIT;
    bool works = true, works_again = true;
    weft_status status = ask(&works, &said, tested, err);
    if (status == WEFT_OK) status = ask(&works_again, &again, tested, err);
    if (status == WEFT_OK && works != works_again)
        status = WEFT_BROKEN(err, "works returns that it can%s run here, and on a second call that it can%s: %s",
                             works ? "" : "not", works_again ? "" : "not", works ? again.text : said.text);
    if (status == WEFT_OK && !works) status = weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", said.text);
    return status;
}

enum { STATUS = 'A' }; /* begins an answer, with the status added; the line of a crash handler begins otherwise */

static void answer_there(int end, void *context) {
    const weft_plugin_under_test *tested = context;
    weft_error err = WEFT_ERROR_INIT;
    process_state before;
    weft_status status = WEFT_OK, left;
    weft_crash_install(end);
    weft_exit_guard_install();
    save_state(&before);
    status = query_again(tested, &err);
    left = status == WEFT_E_PLUGIN ? WEFT_OK : check_state(&before, tested->options->kind, &err);
    (void)dprintf(end, "%c%s", STATUS + (left == WEFT_OK ? status : left), err.text);
}

static weft_status judge(const weft_child *child, weft_error *err) {
    const int status = child->n > 0 && child->text[0] < 'a' ? child->text[0] - STATUS : -1;
    if (status == WEFT_OK) return WEFT_OK;
    if (status == WEFT_E_UNSUPPORTED || status == WEFT_E_PLUGIN)
        return weft_error_set(err, (weft_status)status, "%s", child->text + 1);
    if (status > 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s", child->text + 1); /* this machine lacks something */
    if (child->n > 0) return WEFT_BROKEN(err, "%s", child->text); /* the line of the crash handler or exit guard */
    if (!child->in_time) return WEFT_BROKEN(err, "works does not return");
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

const char *weft_verdict_name(int32_t verdict) {
    static const char *const names[] = {"holds", "moot", "untried", "broken", "crashes", "hangs"};
    return names[verdict];
}

const weft_rule *weft_rule_at(const char *kind, size_t i) {
    static const struct {
        const char *kind;
        const weft_rule *rules;
    } kinds[] = {{"optimizer", weft_rules_optimizer}, {"policy", weft_rules_policy}, {"strategy", weft_rules_strategy},
                 {"tokenizer", weft_rules_tokenizer}, {"data", weft_rules_data},     {"model", weft_rules_model},
                 {"adapter", weft_rules_adapter},     {"device", weft_rules_device}, {"comm", weft_rules_comm}};
    if (i == 0) return &weft_rules_all[0];
    i--;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (strcmp(kinds[k].kind, kind) != 0) continue;
        for (const weft_rule *rule = kinds[k].rules; rule->number != NULL; rule++)
            if (i-- == 0) return rule;
    }
    return i < 2 ? &weft_rules_all[1 + i] : NULL;
}

weft_status weft_rejected_check(weft_status status, const weft_error *said, const char *by, const char *what,
                                const char *fix, weft_error *err) {
    if (status == WEFT_OK) return WEFT_BROKEN(err, "%s accepts %s%s", by, what, fix);
    return said->text[0] == '\0' ? WEFT_BROKEN(err, "%s rejects %s without an error message", by, what) : WEFT_OK;
}

/* ---- threads ---- */

typedef struct worker {
    pthread_t thread;
    void (*body)(void *context);
    void *context;
    bool is_done;
} worker;

static void *run_worker(void *context) {
    worker *self = context;
    self->body(self->context);
    self->is_done = true;
    return NULL;
}

weft_status weft_rule_threads(void (*body)(void *context), void *contexts, size_t size, const char *slot,
                              weft_error *err) {
    worker workers[WEFT_RULE_THREADS];
    weft_status status = WEFT_OK;
    int n = 0;
    for (; n < WEFT_RULE_THREADS; n++) {
        workers[n] = (worker){.body = body, .context = (char *)contexts + (size_t)n * size};
        if (pthread_create(&workers[n].thread, NULL, run_worker, &workers[n]) != 0) break;
    }
    if (n < WEFT_RULE_THREADS) status = weft_error_set(err, WEFT_E_SYSTEM, "no thread to call %s in", slot);
    for (int i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (!workers[i].is_done && status == WEFT_OK)
            status = WEFT_BROKEN(err,
                                 "a thread that has called its %s is gone: it ended the thread, which is the host's",
                                 slot);
    }
    return status;
}

/* ---- counts ---- */

void weft_tried_refused(weft_tried *self, const char *asked, const weft_error *said) {
    if (self->refused++ == 0) (void)snprintf(self->first, sizeof self->first, "%s: %.300s", asked, said->text);
}

weft_status weft_tried_check(const weft_tried *self, weft_plugin_under_test *tested, const char *what, uint32_t most,
                             weft_error *err) {
    const uint32_t all = self->tried + self->refused;
    tested->note[0] = '\0';
    if (self->tried > 0 && self->refused == 0) return WEFT_OK;
    if (self->tried == 0 || self->tried * most < all)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "tested on %u of %u %s, which is too few for a result: it rejects %u, first %s",
                              self->tried, all, what, self->refused, self->first);
    (void)snprintf(tested->note, sizeof tested->note, "tested on %u of %u %s: it rejects %u, first %s", self->tried,
                   all, what, self->refused, self->first);
    return WEFT_OK;
}

/* ---- one rule, in a child process ---- */

typedef struct question {
    const weft_rule *rule;
    const weft_plugin_under_test_options *options;
    char scratch[WEFT_PATH_BYTES]; /* temporary working directory of the child */
} question;

enum { REFUSED = 'r' }; /* instead of a verdict: the user's keys are invalid */
enum { MUTE = 109 };    /* exit status of a child without a free descriptor for its answer */

static char verdict_of(weft_status status, const weft_plugin_under_test *tested) {
    if (status == WEFT_OK) return '0' + WEFT_VERDICT_HOLDS;
    if (weft_own_command_hangs()) return '0' + WEFT_VERDICT_HANGS;
    if (status != WEFT_E_UNSUPPORTED) return '0' + WEFT_VERDICT_BROKEN;
    return tested->is_moot ? '0' + WEFT_VERDICT_MOOT : '0' + WEFT_VERDICT_UNTRIED;
}

/* True for kinds whose rules exercise every key, except keys that take effect only with another one. */
static bool has_quiet_keys(const char *kind) {
    static const char *const kinds[] = {"optimizer", "policy", "strategy", "adapter"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

/* Runs the rule and checks process-wide state. Rules that run commands load the plugin in other processes. Rules of a
 * kind are skipped if the plugin does not work on this machine; rules of every kind check that answer. */
static weft_status hold(const weft_rule *rule, weft_plugin_under_test *tested, weft_error *err) {
    process_state before;
    weft_status status;
    bool is_of_all = false;
    save_state(&before);
    for (const weft_rule *one = weft_rules_all; one->number != NULL; one++) is_of_all = is_of_all || one == rule;
    status = is_of_all ? WEFT_OK : weft_usable(tested, err);
    if (status == WEFT_OK) status = rule->holds(tested, err);
    return status == WEFT_OK && !rule->is_long ? check_state(&before, tested->options->kind, err) : status;
}

/* Writes the remarks on a passed rule. */
static void write_note(weft_error *err, const weft_plugin_under_test *tested) {
    const bool is_idle = tested->idle[0] != '\0' && has_quiet_keys(tested->options->kind);
    (void)snprintf(err->text, sizeof err->text, "%s%s%s%s", tested->note,
                   tested->note[0] != '\0' && is_idle ? "\n" : "",
                   is_idle ? "other values of these keys have no effect here, so check whether it reads them: " : "",
                   is_idle ? tested->idle : "");
}

static int answer_end; /* where the child reports that it has no memory left */

static void report_no_memory(void) {
    weft_crash_crumb(NULL); /* the host ends the process, not a plugin */
    (void)dprintf(answer_end, "%cthere is no memory for this rule", '0' + WEFT_VERDICT_UNTRIED);
}

static void try_rule(int end, void *context) {
    const question *asked = context;
    weft_error err = WEFT_ERROR_INIT;
    weft_plugin_under_test tested;
    weft_status status = WEFT_OK;
    char verdict = REFUSED;
    answer_end = end;
    weft_crash_install(end);
    weft_crash_crumb(weft_plugin_under_test_call());
    weft_exit_guard_install();
    weft_alloc_on_failure(report_no_memory);
    (void)weft_services_log_level(WEFT_LOG_ERROR);
    if (chdir(asked->scratch) != 0) return; /* the parent reports an exit without an answer */
    status = weft_plugin_under_test_open(&tested, asked->options, &err);
    if (status == WEFT_E_DEVICE) status = WEFT_E_UNSUPPORTED; /* a limit of the machine, not an error */
    if (status == WEFT_OK) status = hold(asked->rule, &tested, &err);
    verdict = tested.refused ? REFUSED : verdict_of(status, &tested);
    if (status == WEFT_OK) write_note(&err, &tested);
    weft_plugin_under_test_close(&tested);
    if (dprintf(end, "%c%s", verdict, err.text) < 0) _exit(MUTE);
}

/* Appends the last query. */
static void add_question(weft_trial *out, const char *asked) {
    const size_t n = strlen(out->why);
    if (asked[0] != '\0') (void)snprintf(out->why + n, sizeof out->why - n, ", %s", asked);
}

/* Takes the line of the crash handler (plugin/crash.h) or exit guard (plugin/crash.h); false: there is no line. */
static bool take_last_words(weft_trial *out, const weft_child *child) {
    static const char head[] = "weft: ";
    if (child->n <= sizeof head || strncmp(child->text, head, sizeof head - 1) != 0) return false;
    (void)snprintf(out->why, sizeof out->why, "%.*s", (int)strcspn(child->text, "\n") - (int)sizeof head + 1,
                   child->text + sizeof head - 1);
    return true;
}

/* Reports an exit through _exit, which leaves no line. */
static void report_end(weft_trial *out, int status) {
    const weft_crumb *call = weft_plugin_under_test_call();
    if (call == NULL || call->what[0] == '\0')
        (void)snprintf(out->why, sizeof out->why, "it ends the process, with status %d", status);
    else
        (void)snprintf(out->why, sizeof out->why, "%s ended the process in its %s, with status %d", call->who,
                       call->what, status);
}

static void report_crash(weft_trial *out, const weft_child *child) {
    const int status = child->status;
    out->verdict = WEFT_VERDICT_CRASHED;
    if (take_last_words(out, child)) return;
    if (WIFSIGNALED(status))
        (void)snprintf(out->why, sizeof out->why, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else report_end(out, WEXITSTATUS(status));
}

static void check_child(weft_trial *out, const weft_child *child, double seconds, const char *asked) {
    if (child->n > 0 && child->text[0] >= '0' && child->text[0] <= '0' + WEFT_VERDICT_HANGS) {
        out->verdict = child->text[0] - '0';
        (void)snprintf(out->why, sizeof out->why, "%s", child->text + 1);
    } else if (!child->in_time) {
        out->verdict = out->rule->is_long ? WEFT_VERDICT_UNTRIED : WEFT_VERDICT_HANGS;
        (void)snprintf(out->why, sizeof out->why,
                       out->rule->is_long ? "not finished within %g s" : "it has not returned within %g s", seconds);
        add_question(out, asked);
    } else if (WIFEXITED(child->status) && WEXITSTATUS(child->status) == MUTE) {
        out->verdict = WEFT_VERDICT_BROKEN;
        (void)snprintf(out->why, sizeof out->why, "it closes descriptors that it has not opened: those are the host's");
        add_question(out, asked);
    } else {
        report_crash(out, child);
        add_question(out, asked);
    }
}

/* Ensures that every verdict but success has a reason. */
static void need_reason(weft_trial *out) {
    if (out->verdict == WEFT_VERDICT_HOLDS || out->why[0] != '\0') return;
    (void)snprintf(out->why, sizeof out->why, "the error has no message, which is a bug of weft or of the plugin");
}

static weft_status make_scratch(question *asked, weft_error *err) {
    const char *where = getenv("TMPDIR");
    weft_status status =
        weft_path_join(asked->scratch, where == NULL || where[0] == '\0' ? "/tmp" : where, "weft-check-XXXXXX", err);
    if (status == WEFT_OK && mkdtemp(asked->scratch) == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: no directory can be created there: %s", asked->scratch,
                                strerror(errno));
    return status;
}

/* Runs the child. No process or file of it remains, however it exits. */
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
    else if (status == WEFT_OK) check_child(out, &child, seconds, weft_plugin_under_test_asked());
    if (status == WEFT_OK) need_reason(out);
    free(child.text);
    if (status == WEFT_OK) return weft_tree_remove(asked.scratch, err);
    (void)weft_tree_remove(asked.scratch, NULL);
    return status;
}
