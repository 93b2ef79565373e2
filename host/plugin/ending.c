/* host/plugin/ending.c: see ending.h. */
#include "plugin/ending.h"

#include "plugin/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pid_t guarded; /* the process; 0: none */
static bool reached;

bool weft_ending_is_early(void) {
    return getpid() == guarded && !reached;
}

static void at_exit(void) {
    const weft_doing now = weft_crash_current();
    const uint64_t step = weft_crash_current_step();
    char when[40] = "";
    if (!weft_ending_is_early()) return;
    (void)fflush(stdout);
    if (step != 0) (void)snprintf(when, sizeof when, ", at step %llu", (unsigned long long)step);
    if (now.kind == NULL) {
        (void)fprintf(stderr, "weft: something ended the process%s%s%s: its work is not done\n",
                      now.what != NULL ? " in " : "", now.what != NULL ? now.what : "", when);
    } else {
        (void)fprintf(stderr, "weft: %s:%s ended the process in its %s%s: its work is not done\n", now.kind, now.id,
                      now.what, when);
    }
    _exit(1);
}

void weft_ending_guard(void) {
    guarded = getpid();
    (void)atexit(at_exit);
}

void weft_ending_reached(void) {
    reached = true;
}
