/* host/plugin/scan.c: see scan.h. The child answers with one line of JSON through a pipe. */
#include "plugin/scan.h"

#include "plugin/load.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES 16384

/* --- in the child --- */

/* The plugin that the file's name promises. */
static weft_status load_named(const weft_loaded **out, const char *path, const char *kind, const char *id,
                              weft_error *err) {
    const weft_plugin_file *file = NULL;
    weft_status status = weft_plugin_file_load(&file, path, NULL, err);
    if (status == WEFT_OK) status = weft_plugin_file_choose(out, file, kind, id, err);
    return status;
}

static json_t *describe_loaded(const weft_loaded *loaded) {
    return json_pack("{s:s, s:s, s:i, s:s, s:s}", "status", "ok", "version", loaded->plugin->version, "interface",
                     (int)loaded->plugin->interface_major, "help", loaded->plugin->help, "sha256", loaded->sha256);
}

/* Its own words go nowhere: the list is the parent's. */
static void child(int answer, const char *path, const char *kind, const char *id) {
    const struct rlimit none = {0, 0};
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    const weft_loaded *loaded = NULL;
    weft_error err = WEFT_ERROR_INIT;
    json_t *object = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGABRT, SIG_DFL);
    if (nothing >= 0) {
        (void)dup2(nothing, STDIN_FILENO);
        (void)dup2(nothing, STDOUT_FILENO);
        (void)dup2(nothing, STDERR_FILENO);
    }
    if (load_named(&loaded, path, kind, id, &err) == WEFT_OK) {
        object = describe_loaded(loaded);
    } else {
        const size_t named = strncmp(err.text, path, strlen(path)) == 0 ? strlen(path) + 1 : 0; /* it stands beside */
        object = json_pack("{s:s, s:s}", "status", "failed", "reason", err.text + named);
    }
    if (object != NULL) (void)json_dumpfd(object, answer, JSON_COMPACT);
    _exit(0);
}

/* --- in the parent --- */

static double seconds_now(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reads until the child closes its end, the time is over or the text is full; returns the bytes. */
static size_t read_answer(char *out, size_t n, int from, double until) {
    size_t used = 0;
    while (used < n) {
        struct pollfd one = {from, POLLIN, 0};
        const double left = until - seconds_now();
        ssize_t got;
        int ready;
        if (left <= 0) break;
        ready = poll(&one, 1, (int)(1000 * left) + 1);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        if (ready < 0) break;
        got = read(from, out + used, n - used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    return used;
}

/* Waits for the child's end, until the time is over. True: it ended by itself. */
static int reap(int *status, pid_t process, double until) {
    const struct timespec moment = {0, 2000000};
    pid_t ended = 0;
    while ((ended = waitpid(process, status, WNOHANG)) == 0 && seconds_now() < until) (void)nanosleep(&moment, NULL);
    if (ended != 0) return 1;
    (void)kill(process, SIGKILL);
    (void)waitpid(process, status, 0);
    return 0;
}

static json_t *failed(const char *format, ...) WEFT_PRINTF(1, 2);
static json_t *failed(const char *format, ...) {
    char reason[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return json_pack("{s:s, s:s}", "status", "failed", "reason", reason);
}

/* What the child said, or what became of it. NULL: no memory. */
static json_t *judge_child(const char *text, size_t n, int in_time, int status, double seconds) {
    json_t *said = n > 0 ? json_loadb(text, n, 0, NULL) : NULL;
    if (said != NULL) return said;
    if (!in_time) return failed("it was not loaded within %g s and was ended.", seconds);
    if (WIFSIGNALED(status)) return failed("it crashes while it is loaded: signal %d.", WTERMSIG(status));
    return failed("it ends the process while it is loaded (exit status %d).", WEXITSTATUS(status));
}

static json_t *ask(const char *path, const char *kind, const char *id, double seconds, weft_error *err) {
    const double until = seconds_now() + seconds;
    char text[ANSWER_BYTES];
    int ends[2], status = 0, in_time;
    size_t n;
    pid_t process;
    json_t *out = NULL;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)weft_error_set(err, WEFT_E_SYSTEM, "no pipe for a child process: %s.", strerror(errno));
        return NULL;
    }
    (void)fflush(NULL);
    process = fork();
    if (process == 0) child(ends[1], path, kind, id);
    (void)close(ends[1]);
    if (process < 0) {
        (void)weft_error_set(err, WEFT_E_SYSTEM, "no child process: %s.", strerror(errno));
    } else {
        n = read_answer(text, sizeof text, ends[0], until);
        in_time = reap(&status, process, until);
        out = judge_child(text, n, in_time, status, seconds);
        if (out == NULL) (void)weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of plugins.");
    }
    (void)close(ends[0]);
    return out;
}

/* --- the walk --- */

typedef struct walk {
    json_t *out;
    double seconds;
    weft_status status;
    weft_error *err;
} walk;

/* The row of an earlier file that has the same kind and id, or NULL. */
static const json_t *earlier(const json_t *rows, const char *kind, const char *id) {
    size_t i;
    for (i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "kind")), kind) == 0 &&
            strcmp(json_string_value(json_object_get(row, "id")), id) == 0) {
            return row;
        }
    }
    return NULL;
}

/* "weft-<kind>-<id>.so" -> kind, id. False: another sort of name. */
static int split_name(char kind[32], char id[96], const char *path) {
    const char *name = strrchr(path, '/') + 1 + 5;
    const size_t n = strcspn(name, "-"), all = strlen(name) - 3;
    if (n >= 32 || n + 1 >= all || all - n - 1 >= 96) return 0;
    memcpy(kind, name, n);
    kind[n] = 0;
    memcpy(id, name + n + 1, all - n - 1);
    id[all - n - 1] = 0;
    return 1;
}

static void visit_file(void *context, const char *path) {
    walk *self = context;
    char kind[32], id[96], reason[4200];
    const json_t *before = NULL;
    json_t *row = NULL;
    if (self->status != WEFT_OK || !split_name(kind, id, path)) return;
    before = earlier(self->out, kind, id);
    row = ask(path, kind, id, self->seconds, self->err);
    if (row != NULL && before != NULL) {
        (void)snprintf(reason, sizeof reason, "%s comes first.", json_string_value(json_object_get(before, "file")));
        (void)json_object_set_new(row, "status", json_string("hidden"));
        (void)json_object_set_new(row, "reason", json_string(reason));
    }
    if (row == NULL || json_object_set_new(row, "kind", json_string(kind)) != 0 ||
        json_object_set_new(row, "id", json_string(id)) != 0 ||
        json_object_set_new(row, "file", json_string(path)) != 0 || json_array_append_new(self->out, row) != 0) {
        self->status = row == NULL ? (weft_status)self->err->code : WEFT_E_MEMORY;
        if (row != NULL) (void)weft_error_set(self->err, WEFT_E_MEMORY, "no memory for the list of plugins.");
    }
}

weft_status weft_plugins_scan(json_t *out, const weft_search *search, double seconds, weft_error *err) {
    walk self = {out, seconds, WEFT_OK, err};
    const weft_status status = weft_search_walk(search, visit_file, &self, err);
    return self.status != WEFT_OK ? self.status : status;
}
