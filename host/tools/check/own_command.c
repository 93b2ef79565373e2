/* host/tools/check/own_command.c: see own_command.h. */
#include "tools/check/own_command.h"

#include "base/units.h"
#include "base/file.h"
#include "launch/watchdog.h"
#include "plugin/services.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORDS = 40, MOST_SAID = 1700 };

/* Reads the end of a command's output. */
static void read_end(char *out, size_t size, const char *path) {
    FILE *file = fopen(path, "rb");
    bool is_cut;
    size_t n = 0;
    out[0] = '\0';
    if (file == NULL) return;
    is_cut = fseek(file, -(long)size + 1, SEEK_END) == 0;
    if (!is_cut) rewind(file);
    n = fread(out, 1, size - 1, file);
    out[n] = '\0';
    if (is_cut && strchr(out, '\n') != NULL) { /* starts at the first complete line */
        const char *whole = strchr(out, '\n') + 1;
        n -= (size_t)(whole - out);
        memmove(out, whole, n + 1);
    }
    while (n > 0 && out[n - 1] == '\n') out[--n] = '\0';
    (void)fclose(file);
}

static void become(const char *const *words) {
    char program[WEFT_PATH_BYTES];
    const int answer = open("answer", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)dup2(answer, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setenv("WEFT_CODE_FILE", "code", 1);
    (void)setenv("WEFT_RANK_CODES", "code.ranks", 1);
    (void)setenv("WEFT_CALL_FILE", "call", 1);
    (void)setenv(WEFT_NO_NEWS, "1", 1);
    if (weft_sibling_program(program, "weft")) (void)execv(program, (char *const *)(uintptr_t)words);
    _exit(127);
}

/* True if a rank failed with a user error, and others only because they lost their peer. */
static bool ranks_report_it(void) {
    char codes[512], *at = codes;
    bool any = false;
    read_end(codes, sizeof codes, "code.ranks");
    while (*at != '\0') {
        const long code = strtol(at, &at, 10);
        if (code != WEFT_OK && code != WEFT_E_USER && code != WEFT_E_PEER) return false;
        any = any || code == WEFT_E_USER;
        at += strcspn(at, "\n");
        at += strspn(at, "\n");
    }
    return any;
}

/* True if the command or one of its ranks replaced its standard streams. */
static bool has_lost_streams(void) {
    char own[16], ranks[512];
    read_end(own, sizeof own, "code");
    read_end(ranks, sizeof ranks, "code.ranks");
    return strstr(own, " lost") != NULL || strstr(ranks, " lost") != NULL;
}

/* True for user errors: a rejected file, key or rank count. Not after a success with the same input. */
static bool is_users_fault(bool has_run) {
    char code[16];
    read_end(code, sizeof code, "code");
    return !has_run && (strtol(code, NULL, 10) == WEFT_E_USER || ranks_report_it());
}

/* "3 of 12 cells" */
static bool is_progress(const char *line, size_t n) {
    static const char cells[] = " cells";
    return n > sizeof cells && line[0] >= '0' && line[0] <= '9' &&
           memcmp(line + n - sizeof cells + 1, cells, sizeof cells - 1) == 0;
}

static bool has(const char *line, size_t n, const char *words) {
    const char *at = strstr(line, words);
    return at != NULL && at < line + n;
}

/* True for lines that are not a reason: warnings, progress, and references to the ranks' output. */
static bool is_chatter(const char *line, size_t n) {
    return has(line, n, "weft: warning: ") || has(line, n, "; what they said stands above") || is_progress(line, n);
}

static void drop_chatter(char *said) {
    char *from = said, *to = said;
    while (*from != '\0') {
        const size_t n = strcspn(from, "\n"), whole = n + (from[n] == '\n');
        const bool is_dropped = is_chatter(from, n);
        if (!is_dropped) memmove(to, from, whole);
        to += is_dropped ? 0 : whole;
        from += whole;
    }
    *to = '\0';
    while (to > said && to[-1] == '\n') *--to = '\0';
}

/* Keeps the reason: the first line of failed ranks (before lines of ranks that lost their peer), else the last line. */
static void keep_reason(char *said) {
    const bool is_of_ranks = ranks_report_it();
    char *last = strrchr(said, '\n');
    if (is_of_ranks) said[strcspn(said, "\n")] = '\0';
    else if (last != NULL) memmove(said, last + 1, strlen(last + 1) + 1);
}

/* ---- hanging calls ---- */

static bool hangs;

bool weft_own_command_hangs(void) {
    return hangs;
}

/* Timeout of a call, as for a rule that calls the plugin in this process. */
static double call_seconds(const weft_plugin_under_test *tested) {
    return fmax(tested->options->seconds, 1);
}

/* Returns the start of the line that contains `words`, without the warning prefix; NULL: not found. */
static char *line_of(char *said, const char *words) {
    static const char mark[] = "weft: warning: ";
    char *line = strstr(said, words), *marked;
    if (line == NULL) return NULL;
    while (line > said && line[-1] != '\n') line--;
    marked = strstr(line, mark);
    return marked == NULL ? line : marked + sizeof mark - 1;
}

/* Finds the line about a hanging call (launch/watchdog.h), or, once late, about a hanging `create`
 * (plugin/enter.h). */
static bool reports_call(char said[MOST_SAID], bool is_late) {
    const char *goes_on = is_late ? " and goes on" : WEFT_SLOW_CALL_WORDS;
    char *line, *end;
    read_end(said, MOST_SAID, "log");
    line = line_of(said, goes_on);
    if (line == NULL) return false;
    end = strstr(line, " and goes on") + strlen(" and goes on");
    *end = '\0';
    memmove(said, line, strlen(line) + 1);
    return true;
}

/* Waits for the child. Kills it if a call hangs; `said` then has the line about it. */
static bool await(int *status, char said[MOST_SAID], pid_t child, double seconds) {
    const struct timespec moment = {0, 5000000};
    const double since = weft_clock_seconds();
    pid_t ended;
    for (int32_t i = 1; (ended = waitpid(child, status, WNOHANG)) == 0; i++) {
        hangs = i % 20 == 0 && reports_call(said, weft_clock_seconds() - since > seconds);
        if (hangs) {
            (void)kill(child, SIGKILL);
            return waitpid(child, status, 0) == child;
        }
        (void)nanosleep(&moment, NULL);
    }
    return ended == child;
}

/* ---- early exit ---- */

static bool has_code(void) {
    char code[16];
    read_end(code, sizeof code, "code");
    return code[0] != '\0';
}

/* Returns false if the process was not in a plugin call. */
static bool read_call(weft_crumb *out) {
    FILE *file = fopen("call", "rb");
    const bool is_read = file != NULL && fread(out, sizeof *out, 1, file) == 1;
    if (file != NULL) (void)fclose(file);
    out->who[sizeof out->who - 1] = out->what[sizeof out->what - 1] = '\0';
    return is_read && out->what[0] != '\0';
}

/* True if the plugin ended the process: through exit (plugin/crash.h), or _exit, when only the call is known. */
static bool was_ended(char said[MOST_SAID], int status) {
    weft_crumb call = {.what = ""};
    char *line = NULL;
    if (!WIFEXITED(status) || has_code()) return false;
    read_end(said, MOST_SAID, "log");
    line = line_of(said, ": its work is not done");
    if (line != NULL) {
        line[strcspn(line, "\n")] = '\0';
        line += strncmp(line, "weft: ", 6) == 0 ? 6 : 0;
        memmove(said, line, strlen(line) + 1);
    } else if (read_call(&call)) {
        (void)snprintf(said, MOST_SAID, "%s ended the process in its %s, with status %d: its work is not done",
                       call.who, call.what, WEXITSTATUS(status));
    }
    return line != NULL || call.what[0] != '\0';
}

/* ---- the command ---- */

/* Finds the reason of a failure. */
static void find_reason(char said[MOST_SAID]) {
    read_end(said, MOST_SAID, "log");
    drop_chatter(said);
    if (said[0] == '\0') read_end(said, MOST_SAID, "answer"); /* a failed proof is not logged */
    if (said[0] == '\0') (void)snprintf(said, MOST_SAID, "it has printed no output");
}

weft_status weft_own_command(const weft_plugin_under_test *tested, const char *const *words, bool chosen,
                             weft_error *err) {
    static bool has_run; /* the plugin has run in this process, which runs one rule */
    const weft_plugin_under_test_options *options = tested->options;
    char plugin[WEFT_PATH_BYTES + 32]; /* "optimizer.plugin=FILE" */
    char lasting[64];
    const char *all[MOST_WORDS] = {"weft"};
    char said[MOST_SAID];
    int n = 1, status = 0;
    pid_t child;
    while (*words != NULL && n < MOST_WORDS - 4) all[n++] = *words++;
    (void)snprintf(plugin, sizeof plugin, "%s.plugin=%s", tested->loaded->plugin->kind, options->file);
    (void)snprintf(lasting, sizeof lasting, "plugins.call_seconds=%g", call_seconds(tested));
    if (chosen) all[n++] = plugin;
    if (chosen) all[n++] = lasting;
    for (size_t i = 0; chosen && i < options->n_overrides && n < MOST_WORDS - 1; i++) all[n++] = options->overrides[i];
    (void)unlink("code");
    (void)unlink("code.ranks");
    (void)unlink("call");
    child = fork();
    if (child == 0) become(all);
    if (child < 0 || !await(&status, said, child, call_seconds(tested)))
        return weft_error_set(err, WEFT_E_SYSTEM, "weft cannot be started");
    if (hangs) return WEFT_BROKEN(err, "weft %s %s: %s", all[1], all[2], said);
    if (has_lost_streams())
        return WEFT_BROKEN(err,
                           "weft %s %s: standard output or error was closed or redirected during the run: descriptors "
                           "belong to the host, and the output is lost",
                           all[1], all[2]);
    if (was_ended(said, status)) return WEFT_BROKEN(err, "weft %s %s: %s", all[1], all[2], said);
    has_run = has_run || (chosen && status == 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return WEFT_OK;
    find_reason(said);
    if (WIFEXITED(status) && is_users_fault(has_run)) {
        keep_reason(said);
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", said);
    }
    return WEFT_BROKEN(err, "weft %s %s ends with status %d: %s", all[1], all[2],
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said);
}

weft_status weft_own_ini(char out[WEFT_PATH_BYTES], const weft_plugin_under_test *tested, weft_error *err) {
    return weft_path_join(out, tested->options->directory, "run.ini", err);
}

weft_status weft_own_loss(double *loss, const weft_plugin_under_test *tested, const char *const *words, bool chosen,
                          weft_error *err) {
    const weft_status status = weft_own_command(tested, words, chosen, err);
    json_t *printed = status == WEFT_OK ? json_load_file("answer", 0, NULL) : NULL;
    const json_t *number = json_object_get(printed, "loss");
    const bool is_number = json_is_number(number);
    *loss = json_number_value(number);
    json_decref(printed);
    return status == WEFT_OK && !is_number ? weft_error_set(err, WEFT_E_SYSTEM, "weft eval prints no loss") : status;
}
