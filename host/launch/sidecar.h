/* host/launch/sidecar.h: the watcher under a launcher of somebody else's: a process that a rank starts before its
 * communicator begins, so that it is no part of it.
 *
 * Which ranks share a machine is known only afterwards. So each rank starts one, and tells it then what to watch, or
 * lets it go: one stays on each machine. */
#ifndef WEFT_HOST_LAUNCH_SIDECAR_H
#define WEFT_HOST_LAUNCH_SIDECAR_H

#include "launch/fleet.h"

/* Starts the process, unless a parent watches; a second call does nothing. note: of the communicator's plugin, whose
 * launcher's stderr it speaks to where it can. The process has no threads yet. [main] */
weft_status weft_sidecar_start(const char *note, weft_error *err);
/* True: one was started, and waits to be told. */
bool weft_sidecar_waits(void);
/* Rank 0's becomes the one that those of other machines tell (fleet.h); where it finds no address, it watches this
 * machine alone. [main] */
weft_status weft_sidecar_listen(weft_fleet_address *out, weft_error *err);
/* It watches the n records that lie at path, of `total` ranks, until they end. chief: the one to
 * tell; NULL: there is none, or it is the chief, after listen. [main] */
weft_status weft_sidecar_watch(const char *path, int32_t n, int32_t total, const weft_fleet_address *chief,
                               weft_error *err);
/* It is not needed. */
void weft_sidecar_dismiss(void);

#endif
