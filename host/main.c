/* host/main.c: the process `weft`. */
#include "cli/cli.h"

#include "plugin/crash.h"
#include "plugin/ending.h"

#include <signal.h>
#include <stdlib.h>

/* A device plugin's OpenMP reads its settings when it is loaded. By default its threads burn a core for milliseconds
 * while they wait for work, which on a machine that does anything else makes a step ten times slower; a short spin
 * costs nothing there and keeps the speed of a free machine. What the user has set stays. */
static void settle_openmp(void) {
    if (getenv("OMP_WAIT_POLICY") == NULL && getenv("GOMP_SPINCOUNT") == NULL)
        (void)setenv("GOMP_SPINCOUNT", "5000", 0);
}

int main(int argc, char **argv) {
    int status = 0;
    settle_openmp();
    weft_crash_install();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a write that fails, and is told as one */
    weft_ending_guard();
    status = weft_cli_main(argc, argv);
    weft_ending_reached();
    return status;
}
