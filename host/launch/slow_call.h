/* host/launch/slow_call.h: slow-call warning for plugin calls of a run, printed while the call is still running.
 *
 * Without it a hanging call would be silent: the watchdog never treats a computing rank as hung. A thread observes the
 * main thread's current call (plugin/crash.h), calls of other threads that began during it, and the position in the
 * pass (heartbeat.h). Recording a call costs the main thread a few stores, and a copy of two names if another process
 * reads the record; another thread also reads the clock. No call is stopped, unless the caller enables a timeout. If a
 * call has ended the main thread, the process ends with an error message. */
#ifndef WEFT_HOST_LAUNCH_SLOW_CALL_H
#define WEFT_HOST_LAUNCH_SLOW_CALL_H

#include <stdbool.h>

/* Part of each such line and of no other line. */
#define WEFT_SLOW_CALL_WORDS "and goes on; other processes may wait for it"

/* Starts the warnings: a call that has lasted `seconds` is reported, each slot of a plugin once; 0: disabled. If the
 * main thread's call waits for another thread's call, the latter is reported instead. Each begin needs an end; for
 * nested begins the first one's seconds count. Without a thread there are no warnings. [main] */
void weft_slow_call_begin(double seconds);
/* Enables giving up a call that was reported, or that has lasted 60 s if reports are disabled. It happens after a
 * signal has requested a stop, or `most` seconds from now. end(stopped, "optimizer:lion (/home/you/...) has been in its
 * prepare for 60 s, in training, in step 12") must end the process; the observing thread calls it. NULL, the default:
 * never. */
void weft_slow_call_give_up(void (*end)(bool stopped, const char *call), double most);
void weft_slow_call_end(void);

#endif
