/* host/base/child.c: see child.h. */
#include "base/child.h"

#include "base/alloc.h"
#include "base/units.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Redirects output to /dev/null and disables core dumps: only the parent reports the result. */
static void silence_output(void) {
    const struct rlimit none = {0, 0};
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGABRT, SIG_DFL);
    (void)signal(SIGFPE, SIG_DFL);
    (void)signal(SIGBUS, SIG_DFL);
    if (nothing < 0) return;
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(nothing, STDERR_FILENO);
}

/* Reads until the child closes its end, the timeout, or a full buffer; returns the bytes. */
static size_t read_answer(char *out, size_t n, int from, double until) {
    size_t used = 0;
    while (used < n) {
        struct pollfd one = {from, POLLIN, 0};
        const double left = until - weft_clock_seconds();
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

/* Waits for the child's end until the timeout. Returns true if it ended by itself. */
static bool reap_child(int *status, pid_t process, double until) {
    const struct timespec moment = {0, 2000000};
    pid_t ended = 0;
    while ((ended = waitpid(process, status, WNOHANG)) == 0 && weft_clock_seconds() < until)
        (void)nanosleep(&moment, NULL);
    if (ended != 0) return true;
    (void)kill(process, SIGKILL);
    (void)waitpid(process, status, 0);
    return false;
}

weft_status weft_child_run(weft_child *out, void (*body)(int end, void *context), void *context, size_t most,
                           double seconds, weft_error *err) {
    const double until = weft_clock_seconds() + seconds;
    weft_status status = WEFT_OK;
    int ends[2];
    pid_t process;
    memset(out, 0, sizeof *out);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "no pipe for a child process: %s.", strerror(errno));
    (void)fflush(NULL);
    process = fork();
    if (process == 0) {
        silence_output();
        body(ends[1], context);
        _exit(0);
    }
    (void)close(ends[1]);
    if (process < 0) {
        status = weft_error_set(err, WEFT_E_SYSTEM, "no child process: %s.", strerror(errno));
    } else {
        out->text = weft_alloc(most + 1, 1);
        out->n = read_answer(out->text, most, ends[0], until);
        out->in_time = reap_child(&out->status, process, until);
    }
    (void)close(ends[0]);
    return status;
}
