/* host/launch/watch.h: the watcher of ranks, which is none of them: it sees that one has died or that none can go on,
 * says which and where, and stops the others.
 *
 * It reads the records of pulse.h and asks the kernel about the processes. What computes may compute for as long as it
 * likes: a rank counts as hanging only while it is stopped by a signal, and all ranks only while each of them waits for
 * others. Time counts as the watcher lives it, so a machine that slept is not a hang. */
#ifndef WEFT_HOST_LAUNCH_WATCH_H
#define WEFT_HOST_LAUNCH_WATCH_H

#include "launch/pulse.h"

enum {
    WEFT_WATCH_TICK = 200,      /* milliseconds between two looks */
    WEFT_WATCH_SETTLE = 400,    /* in which all that follows from a rank's end has been seen */
    WEFT_WATCH_SOON = 5000,     /* that a stopped rank, or those that a failed one left behind, are given */
    WEFT_WATCH_PATIENCE = 30000 /* until the ranks have said theirs */
};

typedef enum weft_condition {
    WEFT_RANK_UNBORN = 0, /* has not begun */
    WEFT_RANK_COMPUTES = 1,
    WEFT_RANK_WAITS = 2,
    WEFT_RANK_STOPPED = 3, /* by SIGSTOP or its like */
    WEFT_RANK_TRACED = 4,  /* held by a debugger */
    WEFT_RANK_ENDED = 5,   /* as a program ends */
    WEFT_RANK_GONE = 6,    /* otherwise */
    WEFT_RANK_LOST = 7     /* its machine's watcher says nothing any more */
} weft_condition;

/* A rank as it was at the last look. */
typedef struct weft_rank_view {
    int32_t rank;
    int32_t condition; /* weft_condition */
    int32_t status;    /* ENDED: exit status. GONE: as waitpid gives it; -1: nobody knows */
    int32_t event;     /* -1: between two passes */
    int32_t evaluates;
    int32_t stopped;  /* milliseconds */
    int32_t followed; /* GONE: it crashed inside the communicator, as libraries do when a peer is gone */
    int64_t over_at; /* ENDED, GONE: when that was seen, microseconds of CLOCK_REALTIME, to compare those of machines */
    uint64_t step, progress;
    char text[WEFT_PULSE_TEXT];
    weft_crumb call; /* the plugin's slot that it is in, or was at its end */
} weft_rank_view;

/* It did not come to a good end. */
bool weft_rank_has_failed(const weft_rank_view *rank);

/* Milliseconds. */
typedef struct weft_watch_times {
    int64_t quiet;    /* since there was any progress */
    int64_t left;     /* since a rank has failed or was gone */
    int64_t settle;   /* that `left` must reach, until all machines have told what they see */
    int64_t patience; /* that `quiet` must reach */
} weft_watch_times;

/* What to say of n ranks; false: nothing, go on. */
bool weft_watch_judge(char *out, size_t size, const weft_rank_view *ranks, int32_t n, const weft_watch_times *times);

/* The sentence of a job that was ended. It names --resume if the command has it (resumes; false at first) and the
 * output directory of the run holds a checkpoint. A watcher that a rank has forked has both from its rank. [main] */
void weft_watch_explain(char *out, size_t size, const char *why);
void weft_watch_resumes(bool resumes);
void weft_watch_output(const char *directory);

typedef struct weft_watch {
    weft_pulse *pulses;    /* [n] */
    weft_rank_view *ranks; /* [total]: those of this machine, then those that other watchers tell of (fleet.h) */
    int *files;            /* [n] one per process (pidfd); -1: none, or not any more */
    int *links;            /* [n] the ranks' connections; -1: none, or not any more */
    int32_t *woke;         /* [2 n] ranks whose process has ended since the last look, in the order in which they did */
    int32_t n, total, n_woke;
    int listener; /* for the links; -1: none */
    int events;   /* an epoll: its list is in the order in which things happened */
    uint64_t progress;
    weft_watch_times times;
    int64_t last; /* look, CLOCK_MONOTONIC in milliseconds; 0: none yet */
} weft_watch;

/* Of n records, which other processes find at path, in a world of `total` ranks. The watch keeps pulses. */
weft_status weft_watch_open(weft_watch *self, weft_pulse *pulses, const char *path, int32_t n, int32_t total,
                            weft_error *err);
/* Another descriptor that ends a wait when it can be read. */
bool weft_watch_attend(const weft_watch *self, int file);
void weft_watch_close(weft_watch *self);

/* Waits until something happens, for a tick at most. */
void weft_watch_wait(weft_watch *self);
/* Looks at the processes of this machine; gives the milliseconds since the last look. */
int64_t weft_watch_see(weft_watch *self);
/* Of all ranks, `ms` later than before. True: `out` says why they must be stopped. */
bool weft_watch_decide(weft_watch *self, char *out, size_t size, int64_t ms);
/* Every rank of this machine has begun and has its signal handlers installed, or has come to its end. */
bool weft_watch_listens(const weft_watch *self);
/* Every one of n ranks has come to its end. */
bool weft_ranks_are_over(const weft_rank_view *ranks, int32_t n);
/* Ends every rank of this machine that is still there, stopped ones too. */
void weft_watch_stop(const weft_watch *self);

#endif
