/* host/plugin/exit_guard.c: see exit_guard.h. */
#include "plugin/exit_guard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t guarded; /* the guarded process; 0: unguarded */
static bool reached;
static int line_to = STDERR_FILENO;

bool weft_exit_guard_is_early(void) {
    return getpid() == guarded && !reached;
}

/* Formats "in training, in arm plugin=ddp, at step 12", each part after a comma. */
static void say_when(char *out, size_t size, const weft_doing *call) {
    const uint64_t step = weft_crash_current_step();
    const char *mode = weft_crash_current_mode(), *arm = weft_crash_current_arm();
    size_t n;
    (void)snprintf(out, size, "%s%s", mode != NULL && call->kind != NULL ? ", in " : "",
                   mode != NULL && call->kind != NULL ? mode : "");
    n = strlen(out);
    if (arm != NULL) (void)snprintf(out + n, size - n, ", in arm %.256s", arm);
    n = strlen(out);
    if (step != 0) (void)snprintf(out + n, size - n, ", at step %llu", (unsigned long long)step);
}

/* Prints the message and ends the process. what: "the process". */
static void end_with_words(const weft_doing *call, const char *what) {
    char when[400] = "";
    (void)fflush(stdout);
    say_when(when, sizeof when, call);
    if (call->kind == NULL)
        (void)dprintf(line_to, "weft: %s ended %s%s: its work is not done\n",
                      call->what != NULL ? call->what : "something", what, when);
    else
        (void)dprintf(line_to, "weft: %s:%s (%s) ended %s in its %s%s: its work is not done\n", call->kind, call->id,
                      call->file != NULL ? call->file : "of no known file", what, call->what, when);
    _exit(1);
}

static void at_exit(void) {
    const weft_doing now = weft_crash_current();
    if (weft_exit_guard_is_early()) end_with_words(&now, "the process");
}

void weft_exit_guard_end_main(const weft_doing *call) {
    if (weft_exit_guard_is_early()) end_with_words(call, "the main thread");
}

/* Runs when the thread of weft_exit_guard_install calls pthread_exit, but not on exit or the end of main. */
static void at_thread_end(void *unused) {
    const weft_doing now = weft_crash_current();
    (void)unused;
    weft_exit_guard_end_main(&now);
}

static void guard(void) {
    static pthread_key_t key;
    static bool has_key;
    if (!has_key) has_key = pthread_key_create(&key, at_thread_end) == 0;
    if (has_key) (void)pthread_setspecific(key, &guarded);
    guarded = getpid();
}

void weft_exit_guard_install(void) {
    guard();
    (void)atexit(at_exit);
}

void weft_exit_guard_to(int descriptor) {
    const bool is_first = guarded == 0;
    line_to = descriptor;
    reached = false;
    guard();
    if (is_first) (void)atexit(at_exit);
}

void weft_exit_guard_reached(void) {
    reached = true;
}
