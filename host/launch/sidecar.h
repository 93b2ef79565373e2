/* host/launch/sidecar.h: the watchdog under an external launcher: a process that a rank starts before its communicator
 * begins, so that it is outside the communicator.
 *
 * The communicator determines later which ranks share a machine. Therefore each rank starts such a process, and then
 * either assigns ranks to it or dismisses it. One process remains on each machine. */
#ifndef WEFT_HOST_LAUNCH_SIDECAR_H
#define WEFT_HOST_LAUNCH_SIDECAR_H

#include "launch/node_watchdog.h"

/* Starts the process, unless a parent is the watchdog; a second call has no effect. note: of the communicator's plugin;
 * the sidecar writes to that launcher's stderr if possible. The process must not have threads yet. [main] */
weft_status weft_sidecar_start(const char *note, weft_error *err);
/* Returns true if a sidecar was started and waits for its assignment. */
bool weft_sidecar_waits(void);
/* Makes rank 0's sidecar the chief of the other machines' sidecars (node_watchdog.h). Without an address it watches
 * only this machine. [main] */
weft_status weft_sidecar_listen(weft_node_watchdog_address *out, weft_error *err);
/* Assigns the n records at path, of `total` ranks, until they end. chief: the address to connect to; NULL: no chief, or
 * this sidecar is the chief, after listen. [main] */
weft_status weft_sidecar_watch(const char *path, int32_t n, int32_t total, const weft_node_watchdog_address *chief,
                               weft_error *err);
/* Ends the sidecar without an assignment. */
void weft_sidecar_dismiss(void);

#endif
