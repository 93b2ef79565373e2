/* host/plugin/ending.c: see ending.h. */
#include "plugin/ending.h"

#include "plugin/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t guarded; /* the process; 0: none */
static bool reached;

bool weft_ending_is_early(void) {
    return getpid() == guarded && !reached;
}

static void at_exit(void) {
    const weft_doing now = weft_crash_current();
    const uint64_t step = weft_crash_current_step();
    const char *mode = weft_crash_current_mode(), *arm = weft_crash_current_arm();
    char when[400] = "";
    if (!weft_ending_is_early()) return;
    (void)fflush(stdout);
    (void)snprintf(when, sizeof when, "%s%s", mode != NULL && now.kind != NULL ? ", in " : "",
                   mode != NULL && now.kind != NULL ? mode : "");
    if (arm != NULL) (void)snprintf(when + strlen(when), sizeof when - strlen(when), ", in arm %.256s", arm);
    if (step != 0)
        (void)snprintf(when + strlen(when), sizeof when - strlen(when), ", at step %llu", (unsigned long long)step);
    if (now.kind == NULL)
        (void)fprintf(stderr, "weft: %s ended the process%s: its work is not done\n",
                      now.what != NULL ? now.what : "something", when);
    else
        (void)fprintf(stderr, "weft: %s:%s (%s) ended the process in its %s%s: its work is not done\n", now.kind,
                      now.id, now.file != NULL ? now.file : "of no known file", now.what, when);
    _exit(1);
}

void weft_ending_guard(void) {
    guarded = getpid();
    (void)atexit(at_exit);
}

void weft_ending_reached(void) {
    reached = true;
}
