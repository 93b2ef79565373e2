/* host/launch/signals.h: signals that stop a run after the current step. A second SIGINT or SIGTERM ends the process
 * immediately. SIGHUP (the terminal has closed), SIGPIPE (the output has no reader), SIGUSR1, SIGALRM and SIGXCPU (a
 * time limit) may repeat. A signal that was ignored at process start (nohup) stays ignored. */
#ifndef WEFT_HOST_LAUNCH_SIGNALS_H
#define WEFT_HOST_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* State of a process of this machine, from /proc. */
typedef struct weft_proc {
    int32_t parent; /* 0: the process does not exist or has no parent */
    int32_t status; /* wait status of a zombie, in the format of waitpid; -1: any other process */
    char state;     /* the letter of its state; ' ': the process does not exist */
} weft_proc;

weft_proc weft_proc_read(int32_t pid);

/* Returns true if the process runs this file, through any path; false if it cannot be determined. */
bool weft_proc_runs(int32_t pid, const char *program);

/* From here on a first signal only requests a stop. what: the stop's position for the notice, "step and saving". [main]
 */
void weft_signals_install(const char *what);
/* Lists the signals that weft_signals_install would handle. [main] */
void weft_signals_list(sigset_t *out);
/* Returns true once a signal has requested a stop. [any-thread] [hot] */
bool weft_signals_stop(void);

#endif
