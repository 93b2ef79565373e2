/* host/launch/watchdog.h: the watchdog of the ranks, which runs outside of them. It detects a dead rank or a deadlock,
 * reports rank and position, and stops the others.
 *
 * It reads the records of heartbeat.h and queries the kernel about the processes. A computing rank has no time limit. A
 * rank counts as hung only while a signal has stopped it, and all ranks only while each of them waits for others. Time
 * is measured by the watchdog's ticks, so a suspended machine is not a hang. */
#ifndef WEFT_HOST_LAUNCH_WATCHDOG_H
#define WEFT_HOST_LAUNCH_WATCHDOG_H

#include "launch/heartbeat.h"

enum {
    WEFT_WATCHDOG_TICK = 200,      /* milliseconds between two checks */
    WEFT_WATCHDOG_SETTLE = 400,    /* until all consequences of a rank's end are visible */
    WEFT_WATCHDOG_SOON = 5000,     /* time for a stopped rank, or for the remaining ranks after a failure */
    WEFT_WATCHDOG_PATIENCE = 30000 /* until the ranks have set theirs */
};

typedef enum weft_condition {
    WEFT_RANK_UNBORN = 0, /* has not begun */
    WEFT_RANK_COMPUTES = 1,
    WEFT_RANK_WAITS = 2,
    WEFT_RANK_STOPPED = 3, /* by SIGSTOP or a similar signal */
    WEFT_RANK_TRACED = 4,  /* held by a debugger */
    WEFT_RANK_ENDED = 5,   /* normal exit */
    WEFT_RANK_GONE = 6,    /* any other end */
    WEFT_RANK_LOST = 7     /* its machine's watchdog is silent */
} weft_condition;

/* State of a rank at the last check. */
typedef struct weft_rank_view {
    int32_t rank;
    int32_t condition;   /* weft_condition */
    int32_t status;      /* ENDED: exit status. GONE: in the format of waitpid; -1: unknown */
    int32_t instruction; /* -1: between passes */
    int32_t evaluates;
    int32_t stopped;  /* milliseconds */
    int32_t followed; /* GONE: it crashed inside the communicator, as libraries do after a peer's end */
    int64_t over_at;  /* ENDED, GONE: time of detection, CLOCK_REALTIME in microseconds, comparable between machines */
    uint64_t step, progress;
    char text[WEFT_HEARTBEAT_TEXT];
    weft_crumb call; /* its current plugin call, or its last */
} weft_rank_view;

/* Terminates its texts, which another process or machine has written. */
void weft_rank_view_end_texts(weft_rank_view *view);

/* Writes the message for a stopped job. It mentions --resume if the command has it (resumes; false at first) and the
 * run's output directory contains a checkpoint. A watchdog that a rank has forked inherits both settings. [main] */
void weft_watchdog_explain(char *out, size_t size, const char *why);
void weft_watchdog_resumes(bool resumes);
void weft_watchdog_output(const char *directory);

typedef struct weft_watchdog {
    weft_heartbeat *heartbeats; /* [n] */
    weft_rank_view *ranks;      /* [total]: those of this machine, then those of other watchdogs */
    int *files;                 /* [n] one pidfd per process; -1: missing or closed */
    int *links;                 /* [n] the ranks' connections; -1: missing or closed */
    int32_t n, total;
    int listener;      /* for the links; -1: closed */
    int events;        /* an epoll: it reports events in their order of occurrence */
    uint64_t progress; /* of all ranks at the last decision */
    /* milliseconds */
    int64_t quiet;  /* since the last progress */
    int64_t left;   /* since a rank failed or disappeared */
    int64_t settle; /* threshold for `left`: by then all machines have sent their state */
    int64_t last;   /* last check, CLOCK_MONOTONIC; 0: no check yet */
} weft_watchdog;

/* Opens a watch of n records, which other processes find at path, in a world of `total` ranks. The watch keeps a
 * pointer to heartbeats. */
weft_status weft_watchdog_open(weft_watchdog *self, weft_heartbeat *heartbeats, const char *path, int32_t n,
                               int32_t total, weft_error *err);
/* Adds a descriptor that ends a wait when it is readable; true also if it is ready already. rank: which has ended then;
 * n: none. */
bool weft_watchdog_add(const weft_watchdog *self, int file, int32_t rank);
void weft_watchdog_close(weft_watchdog *self);

/* Waits for an event, at most one tick, and checks the processes of this machine. Returns the milliseconds since the
 * last check. */
int64_t weft_watchdog_check(weft_watchdog *self);
/* Evaluates all ranks after `ms` more milliseconds. Returns true if they must be stopped, with the reason in `out`. */
bool weft_watchdog_decide(weft_watchdog *self, char *out, size_t size, int64_t ms);
/* Returns true if every rank of this machine has started and installed its signal handlers, or has ended. */
bool weft_watchdog_listens(const weft_watchdog *self);
/* Returns true if all n ranks have ended. */
bool weft_ranks_are_over(const weft_rank_view *ranks, int32_t n);
/* Kills every remaining rank of this machine, including stopped ones. */
void weft_watchdog_stop(const weft_watchdog *self);

/* ---- multi-node watchdog: connects the watchdogs of several machines ----
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

/* ---- sidecar: the watchdog under an external launcher ----
 *
 * A process that a rank starts before its communicator begins, so that it is outside the communicator. The communicator
 * determines later which ranks share a machine. Therefore each rank starts such a process, and then either assigns
 * ranks to it or dismisses it. One process remains on each machine. */

/* Starts the process, unless a parent is the watchdog; a second call has no effect. note: of the communicator's plugin;
 * the sidecar writes to that launcher's stderr if possible. The process must not have threads yet. [main] */
weft_status weft_sidecar_start(const char *note, weft_error *err);
/* Returns true if a sidecar was started and waits for its assignment. */
bool weft_sidecar_waits(void);
/* Assigns the n records at path, of `total` ranks, until they end. chief: the address to connect to. Without hosts this
 * sidecar is the chief of the other machines' sidecars, if there are any, and *chief becomes its address. [main] */
weft_status weft_sidecar_watch(const char *path, int32_t n, int32_t total, weft_node_watchdog_address *chief,
                               weft_error *err);
/* Ends the sidecar without an assignment. */
void weft_sidecar_dismiss(void);

/* ---- slow-call warning for plugin calls of a run, printed while the call is still running (slow_call.c) ----
 *
 * Without it a hanging call would be silent: the watchdog never treats a computing rank as hung. A thread observes the
 * main thread's current call (plugin/crash.h), calls of other threads that began during it, and the position in the
 * pass (heartbeat.h). Recording a call costs the main thread a few stores, and a copy of two names if another process
 * reads the record; another thread also reads the clock. No call is stopped, unless the caller enables a timeout. If a
 * call has ended the main thread, the process ends with an error message. */

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
