/* host/launch/node_watchdog.h: multi-node watchdog: connects the watchdogs of several machines.
 *
 * The watchdog of rank 0's machine is the chief. The others connect to it over TCP (IPv4), send it their state every
 * tick, and stop their ranks at its command. The communicator distributes the chief's address and a secret to the
 * ranks. */
#ifndef WEFT_HOST_LAUNCH_NODE_WATCHDOG_H
#define WEFT_HOST_LAUNCH_NODE_WATCHDOG_H

#include "launch/watchdog.h"

enum { WEFT_NODE_WATCHDOG_HOSTS = 8 };

typedef struct weft_node_watchdog_address {
    uint64_t word[2];
    uint32_t hosts[WEFT_NODE_WATCHDOG_HOSTS]; /* IPv4 addresses of the chief's machine, in network order */
    int32_t n_hosts;                          /* 0: unreachable */
    int32_t port;
} weft_node_watchdog_address;

/* Returns the chief's listening socket. -1: failed, and n_hosts is 0. */
int weft_node_watchdog_listen(weft_node_watchdog_address *out);

/* Connects to the chief, for a watchdog of n ranks; -1: unreachable. */
int weft_node_watchdog_reach(const weft_node_watchdog_address *to, int32_t n);

/* Run the watchdog until the ranks end or must be stopped, and stop those of this machine. weft_node_watchdog_lead
 * is for the chief with its listening socket, weft_node_watchdog_follow for the others with their connection. Return
 * true if ranks were stopped; `why` then has the reason, or is empty if the chief prints it. Each is called at most
 * once per process. */
bool weft_node_watchdog_lead(weft_watchdog *watch, char *why, size_t size, int socket,
                             const weft_node_watchdog_address *address);
bool weft_node_watchdog_follow(weft_watchdog *watch, char *why, size_t size, int socket);

#endif
