/* host/launch/watch.h: the watcher of ranks, which is none of them: it sees that one has died or that none can go on,
 * says which and where, and stops the others.
 *
 * It reads the records of pulse.h and asks the kernel about the processes. What computes may compute for as long as it
 * likes: a rank counts as hanging only while it is stopped by a signal, and all ranks only while each of them waits for
 * others. Time counts as the watcher lives it, so a machine that slept is not a hang. */
#ifndef WEFT_HOST_LAUNCH_WATCH_H
#define WEFT_HOST_LAUNCH_WATCH_H

#include "launch/pulse.h"

#include <poll.h>

enum {
    WEFT_WATCH_TICK = 200,      /* milliseconds between two looks */
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
    WEFT_RANK_GONE = 6     /* otherwise */
} weft_condition;

/* A rank as it was at the last look. */
typedef struct weft_rank_view {
    int32_t rank;
    int32_t condition; /* weft_condition */
    int32_t status;    /* ENDED: exit status. GONE: as waitpid gives it; -1: nobody knows */
    int32_t event;     /* -1: between two passes */
    int32_t evaluates;
    int32_t stopped; /* milliseconds */
    uint64_t step, progress;
    char text[WEFT_PULSE_TEXT];
} weft_rank_view;

/* "in step 12, at event 33, REDUCE model.layers.1 leaf 2" */
void weft_rank_place(char *out, size_t size, const weft_rank_view *rank);

/* It has told its failure itself, or somebody has asked it to end: no news, unless others do not follow. */
bool weft_rank_has_failed(const weft_rank_view *rank);

/* What to say of n ranks; false: nothing, go on. quiet: milliseconds without any progress, left: since a rank has failed,
 * patience: all three in milliseconds. */
bool weft_watch_judge(char *out, size_t size, const weft_rank_view *ranks, int32_t n, int64_t quiet, int64_t left,
                      int64_t patience);

typedef struct weft_watch {
    weft_pulse *pulses;
    weft_rank_view *ranks;
    struct pollfd *files; /* [1 + n] the caller's own, and one per process */
    int32_t n;
    uint64_t progress;
    int64_t quiet, left; /* milliseconds */
    int64_t last;        /* look, CLOCK_MONOTONIC in milliseconds; 0: none yet */
} weft_watch;

/* Of n records; own: a descriptor that ends a wait when it can be read; -1: none. The watch keeps pulses. */
weft_status weft_watch_open(weft_watch *self, weft_pulse *pulses, int32_t n, int32_t own, weft_error *err);
void weft_watch_close(weft_watch *self);

/* Waits until something happens, for a tick at most. */
void weft_watch_wait(weft_watch *self);
/* True: `out` says why the ranks must be stopped. */
bool weft_watch_look(weft_watch *self, char *out, size_t size);
/* Every rank has begun, and has come to its end. */
bool weft_watch_is_over(const weft_watch *self);
/* Ends every rank that is still there, stopped ones too. */
void weft_watch_stop(const weft_watch *self);

#endif
