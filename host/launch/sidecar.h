/* host/launch/sidecar.h: the watcher under a launcher of somebody else's: a process that a rank starts before its
 * communicator begins, so that it is no part of it.
 *
 * Which ranks share a machine is known only afterwards. So each rank starts one, and tells it then what to watch, or
 * lets it go: one stays on each machine. */
#ifndef WEFT_HOST_LAUNCH_SIDECAR_H
#define WEFT_HOST_LAUNCH_SIDECAR_H

#include "launch/watch.h"

/* Starts the process, unless a parent watches; a second call does nothing. The process has no threads yet. [main] */
weft_status weft_sidecar_start(weft_error *err);
/* True: one was started, and waits to be told. */
bool weft_sidecar_waits(void);
/* It watches the n records that lie at path, until the ranks end. [main] */
weft_status weft_sidecar_watch(const char *path, int32_t n, weft_error *err);
/* It is not needed. */
void weft_sidecar_dismiss(void);

#endif
