/* host/launch/signals.c: see signals.h. */
#include "launch/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

enum { ALONE, FIRST, OTHER }; /* of several */
static volatile sig_atomic_t speaker = ALONE;

/* Only async-signal-safe calls, and errno as it was: it may be read next by what is interrupted. SA_RESETHAND: the next
 * signal of the same kind finds the default action, which ends the process; the other kind is reset here. */
static void on_stop(int number) {
    /* Alone it may follow a line of progress and the ^C of a terminal. */
    const char *text = speaker == ALONE ? "\nweft: stopping after this step and saving; again to stop at once\n"
                                        : "[0] weft: stopping after this step and saving; again to stop at once\n";
    const int before = errno;
    if (speaker != OTHER && write(STDERR_FILENO, text, strlen(text)) < 0) { /* nobody is there to read it */
    }
    asked = 1;
    (void)signal(number == SIGINT ? SIGTERM : SIGINT, SIG_DFL);
    errno = before;
}

/* On the stack that weft_crash_install has made, never on the one at hand: oneDNN 2.6's products keep a pointer into
 * their panels in the stack pointer, and what the kernel puts there for a handler lands in the heap. */
void weft_signals_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_stop;
    action.sa_flags = (int)(SA_RESTART | SA_RESETHAND | SA_ONSTACK);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

void weft_signals_rank(int32_t rank) {
    speaker = rank == 0 ? FIRST : OTHER;
}

bool weft_signals_stop(void) {
    return asked != 0;
}
