/* host/launch/sidecar.h: the watchdog under an external launcher: a process that a rank starts before its communicator
 * begins, so that it is outside the communicator.
 *
 * The communicator determines later which ranks share a machine. Therefore each rank starts such a process, and then
 * either assigns ranks to it or dismisses it. One process remains on each machine. */
#ifndef WEFT_HOST_LAUNCH_SIDECAR_H
#define WEFT_HOST_LAUNCH_SIDECAR_H

#include "launch/watchdog.h"

/* multi-node watchdog: connects the watchdogs of several machines.
 *
 * The watchdog of rank 0's machine is the chief. The others connect to it over TCP (IPv4), send it their state every
 * tick, and stop their ranks at its command. The communicator distributes the chief's address and a secret to the
 * ranks. */

enum { WEFT_NODE_WATCHDOG_HOSTS = 8 };

typedef struct weft_node_watchdog_address {
    uint64_t word[2];
    uint32_t hosts[WEFT_NODE_WATCHDOG_HOSTS]; /* IPv4 addresses of the chief's machine, in network order */
    int32_t n_hosts;                          /* 0: unreachable */
    int32_t port;
} weft_node_watchdog_address;

/* Returns the chief's listening socket. -1: failed, and n_hosts is 0. */
int weft_node_watchdog_listen(weft_node_watchdog_address *out);

/* Run the watchdog until the ranks end or must be stopped, and stop those of this machine. weft_node_watchdog_lead
 * is for the chief with its listening socket, weft_node_watchdog_follow for the others with their connection. Return
 * true if ranks were stopped; `why` then has the reason, or is empty if the chief prints it. Each is called at most
 * once per process. */
bool weft_node_watchdog_lead(weft_watchdog *watch, char *why, size_t size, int socket,
                             const weft_node_watchdog_address *address);
bool weft_node_watchdog_follow(weft_watchdog *watch, char *why, size_t size, int socket);

/* Starts the process, unless a parent is the watchdog; a second call has no effect. note: of the communicator's plugin;
 * the sidecar writes to that launcher's stderr if possible. The process must not have threads yet. [main] */
weft_status weft_sidecar_start(const char *note, weft_error *err);
/* Returns true if a sidecar was started and waits for its assignment. */
bool weft_sidecar_waits(void);
/* Makes rank 0's sidecar the chief of the other machines' sidecars. Without an address it watches only this machine.
 * [main] */
weft_status weft_sidecar_listen(weft_node_watchdog_address *out, weft_error *err);
/* Assigns the n records at path, of `total` ranks, until they end. chief: the address to connect to; NULL: no chief, or
 * this sidecar is the chief, after listen. [main] */
weft_status weft_sidecar_watch(const char *path, int32_t n, int32_t total, const weft_node_watchdog_address *chief,
                               weft_error *err);
/* Ends the sidecar without an assignment. */
void weft_sidecar_dismiss(void);

#endif
