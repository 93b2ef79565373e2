/* host/launch/signals.h: signals that stop a run after the current step. A second SIGINT or SIGTERM ends the process at
 * once. SIGHUP (the terminal has closed), SIGPIPE (the output has no reader), SIGUSR1, SIGALRM and SIGXCPU (a time
 * limit) may repeat; where the process was started with one of these ignored (nohup), it stays ignored. */
#ifndef WEFT_HOST_LAUNCH_SIGNALS_H
#define WEFT_HOST_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* From here on a first signal only asks. what: where it stops, "step and saving", told when one comes. [main] */
void weft_signals_install(const char *what);
/* The signals that weft_signals_install would handle. [main] */
void weft_signals_list(sigset_t *out);
/* This process is a rank of several: the handler's notice carries the rank, and comes from rank 0 alone. [main] */
void weft_signals_rank(int32_t rank);
/* True once one has asked. [any-thread] [hot] */
bool weft_signals_stop(void);

#endif
