/* host/plugin/ending.h: the process ends where main ends. A plugin that calls exit would otherwise choose the status,
 * and a run that was cut short could look like one that is done; one that ends the main thread would leave a process
 * that never ends.
 *
 *     weft: optimizer:lion (/home/you/weft-optimizer-lion.so) ended the process in its prepare, in training, at step
 *         12: its work is not done
 *
 * What ends without the C library, such as _exit or the system call, is not seen from within. Another process can see
 * it, and reads what was called from memory that both share (weft_crash_crumb). */
#ifndef WEFT_HOST_PLUGIN_ENDING_H
#define WEFT_HOST_PLUGIN_ENDING_H

#include "plugin/crash.h"

/* From here on exit, and pthread_exit of this thread, give status 1 and name the plugin at work. Child processes are
 * not concerned. [main] */
void weft_ending_guard(void);

/* The same in a child process; the line goes to this descriptor. [main] */
void weft_ending_to(int descriptor);

/* True in a guarded process whose main is not done: an exit now is somebody else's. [main] */
bool weft_ending_is_early(void);

/* main is done: its status counts. [main] */
void weft_ending_reached(void);

/* The main thread is gone, in this call, without a word: another thread says so and ends the process with status 1.
 * [any-thread] */
void weft_ending_of_main(const weft_doing *call);

#endif
