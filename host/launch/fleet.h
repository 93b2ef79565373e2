/* host/launch/fleet.h: multi-node watchdog: connects the watchdogs of several machines.
 *
 * The watchdog of rank 0's machine is the chief. The others connect to it over TCP (IPv4), send it their state every
 * tick, and stop their ranks at its command. The communicator distributes the chief's address and a secret to the
 * ranks. */
#ifndef WEFT_HOST_LAUNCH_FLEET_H
#define WEFT_HOST_LAUNCH_FLEET_H

#include "launch/watch.h"

enum { WEFT_FLEET_HOSTS = 8 };

typedef struct weft_fleet_address {
    uint64_t word[2];
    uint32_t hosts[WEFT_FLEET_HOSTS]; /* IPv4 addresses of the chief's machine, in network order */
    int32_t n_hosts;                  /* 0: unreachable */
    int32_t port;
} weft_fleet_address;

/* Returns the chief's listening socket. -1: failed, and n_hosts is 0. */
int weft_fleet_listen(weft_fleet_address *out);

/* Connects to the chief, for a watchdog of n ranks; -1: unreachable. */
int weft_fleet_reach(const weft_fleet_address *to, int32_t n);

/* Run the watchdog until the ranks end or must be stopped, and stop those of this machine. weft_fleet_lead is for the
 * chief with its listening socket, weft_fleet_follow for the others with their connection. Return true if ranks were
 * stopped; `why` then has the reason, or is empty if the chief prints it. Each is called at most once per process. */
bool weft_fleet_lead(weft_watch *watch, char *why, size_t size, int socket, const weft_fleet_address *address);
bool weft_fleet_follow(weft_watch *watch, char *why, size_t size, int socket);

#endif
