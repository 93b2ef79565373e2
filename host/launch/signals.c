/* host/launch/signals.c: see signals.h. */
#include "launch/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

/* Only async-signal-safe calls. SA_RESETHAND: the next signal of the same kind finds the default action, which ends the
 * process; the other kind is reset here. */
static void on_stop(int number) {
    static const char text[] = "\nweft: stopping after this step and saving; again to stop at once\n";
    const ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    asked = 1;
    (void)signal(number == SIGINT ? SIGTERM : SIGINT, SIG_DFL);
}

void weft_signals_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_stop;
    action.sa_flags = (int)(SA_RESTART | SA_RESETHAND);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool weft_signals_stop(void) {
    return asked != 0;
}
