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
    weft_rank_view *ranks;      /* [total]: those of this machine, then those of other watchdogs (sidecar.h) */
    int *files;                 /* [n] one pidfd per process; -1: missing or closed */
    int *links;                 /* [n] the ranks' connections; -1: missing or closed */
    int32_t *woke;              /* [2 n] ranks whose processes have ended since the last check, in that order */
    int32_t n, total, n_woke;
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

/* Waits for an event, at most one tick. */
void weft_watchdog_wait(weft_watchdog *self);
/* Checks the processes of this machine; returns the milliseconds since the last check. */
int64_t weft_watchdog_check(weft_watchdog *self);
/* Evaluates all ranks after `ms` more milliseconds. Returns true if they must be stopped, with the reason in `out`. */
bool weft_watchdog_decide(weft_watchdog *self, char *out, size_t size, int64_t ms);
/* Returns true if every rank of this machine has started and installed its signal handlers, or has ended. */
bool weft_watchdog_listens(const weft_watchdog *self);
/* Returns true if all n ranks have ended. */
bool weft_ranks_are_over(const weft_rank_view *ranks, int32_t n);
/* Kills every remaining rank of this machine, including stopped ones. */
void weft_watchdog_stop(const weft_watchdog *self);

#endif
