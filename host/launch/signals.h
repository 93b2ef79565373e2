/* host/launch/signals.h: SIGINT and SIGTERM ask to stop after the step that runs; the second one stops at once. So do
 * SIGHUP, when a terminal closes, and SIGPIPE, when nobody reads what is printed any more; further ones of these change
 * nothing, and where they were ignored (nohup) they stay so. */
#ifndef WEFT_HOST_LAUNCH_SIGNALS_H
#define WEFT_HOST_LAUNCH_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* From here on a first signal only asks. what: where it stops, "step and saving", told when one comes. [main] */
void weft_signals_install(const char *what);
/* This process is a rank of several: the handler's notice carries the rank, and comes from rank 0 alone. [main] */
void weft_signals_rank(int32_t rank);
/* True once one has asked. [any-thread] [hot] */
bool weft_signals_stop(void);

#endif
