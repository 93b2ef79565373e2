/* host/launch/fleet.h: the watchers of several machines tell one another.
 *
 * The watcher beside rank 0 is the chief: the others connect to it over TCP (IPv4), tell it every tick what they see,
 * and stop their ranks when it says so. The address and a secret word travel among the ranks, through the
 * communicator. */
#ifndef WEFT_HOST_LAUNCH_FLEET_H
#define WEFT_HOST_LAUNCH_FLEET_H

#include "launch/watch.h"

enum { WEFT_FLEET_HOSTS = 8 };

typedef struct weft_fleet_address {
    uint64_t word[2];
    uint32_t hosts[WEFT_FLEET_HOSTS]; /* IPv4 addresses of the chief's machine, in network order */
    int32_t n_hosts;                  /* 0: it cannot be reached */
    int32_t port;
} weft_fleet_address;

/* The chief's socket, which takes connections from now on; -1: there is none, and n_hosts is 0. */
int weft_fleet_listen(weft_fleet_address *out);

/* A connection to the chief, for a watcher of n ranks; -1: it cannot be reached. */
int weft_fleet_reach(const weft_fleet_address *to, int32_t n);

/* The chief, which has a socket that listens, and another watcher, which has reached it: watch until the ranks end or
 * must be stopped, and stop those of this machine. True: `why` says why; empty where the chief says it. Neither is
 * called twice in a process. */
bool weft_fleet_lead(weft_watch *watch, char *why, size_t size, int socket, const weft_fleet_address *address);
bool weft_fleet_follow(weft_watch *watch, char *why, size_t size, int socket);

#endif
