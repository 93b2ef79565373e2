/* host/plugin/exit_guard.h: guard against a plugin that ends the process before main returns. A plugin that calls exit
 * would choose the exit status, and an incomplete run could look complete. A plugin that ends the main thread would
 * leave a process that never ends.
 *
 *     weft: optimizer:lion (/home/you/weft-optimizer-lion.so) ended the process in its prepare, in training, at step
 *         12: its work is not done
 *
 * An end that bypasses the C library, such as _exit or the system call, cannot be detected inside the process. Another
 * process can detect it and reads the current call from shared memory (weft_crash_crumb). */
#ifndef WEFT_HOST_PLUGIN_EXIT_GUARD_H
#define WEFT_HOST_PLUGIN_EXIT_GUARD_H

#include "plugin/crash.h"

/* From here on exit, and pthread_exit of this thread, end the process with status 1 and name the active plugin. Child
 * processes are not affected. [main] */
void weft_exit_guard_install(void);

/* Guards a child process; reports go to this descriptor. [main] */
void weft_exit_guard_to(int descriptor);

/* Returns true in a guarded process before the end of main: an exit now is not the host's. [main] */
bool weft_exit_guard_is_early(void);

/* Disables the guard at the end of main. [main] */
void weft_exit_guard_reached(void);

/* Reports, from another thread, that the main thread ended in this call, and ends the process with status 1.
 * [any-thread] */
void weft_exit_guard_end_main(const weft_doing *call);

#endif
