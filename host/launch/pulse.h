/* host/launch/pulse.h: where a rank is, for whoever watches it from outside.
 *
 * Each rank keeps a small record in memory that it shares with the watcher of its machine (watch.h): what it does, in
 * which step, at which event. Writing it is a few plain stores. Without a watcher the stores go nowhere. */
#ifndef WEFT_HOST_LAUNCH_PULSE_H
#define WEFT_HOST_LAUNCH_PULSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/un.h>
#include <weft/base.h>

#include "plugin/crash.h"

/* Set for the ranks by the parent that watches them: the file in which rank r has the r-th record. */
#define WEFT_WATCHED "WEFT_WATCHED_BY"

enum { WEFT_PULSE_TEXT = 160 };

typedef enum weft_pulse_state {
    WEFT_PULSE_COMPUTES = 0, /* whatever it does, it needs nobody for it */
    WEFT_PULSE_WAITS = 1,    /* for another rank */
    WEFT_PULSE_ENDED = 2     /* its main has returned, or it has called exit */
} weft_pulse_state;

typedef struct weft_pulse {
    _Alignas(64) _Atomic int32_t pid; /* 0: the rank has not begun */
    _Atomic int32_t state;            /* weft_pulse_state */
    _Atomic int32_t status;           /* once ENDED: of the process */
    _Atomic int32_t crash;            /* the signal of which it is dying; 0: none that it knows of */
    _Atomic int32_t rank;
    _Atomic int32_t patience; /* seconds; 0: not read yet */
    _Atomic int32_t event;    /* -1: between two passes */
    _Atomic int32_t evaluates;
    _Atomic int32_t listens;   /* its signal handlers are installed: a signal makes it save and stop */
    _Atomic uint64_t step;     /* the last one that began; 0: none yet */
    _Atomic uint64_t progress; /* grows with each event that begins and each wait that ends */
    _Atomic int32_t text;      /* which of the two is whole */
    char texts[2][WEFT_PULSE_TEXT];
    weft_crumb call; /* the plugin's slot that it is in */
} weft_pulse;

/* This process is a rank. Where WEFT_WATCHED_BY is set, its record is there from now on, and the kernel kills this
 * process when the parent dies; where the parent is dead already, this process ends. When the process ends by exit or
 * by the end of main, the record says so; an end that it does not tell is none of its own. [main] */
void weft_pulse_begin(int32_t rank);
/* True: somebody watches already. */
bool weft_pulse_is_watched(void);

/* n records in memory that other processes of this machine can share; *file: a descriptor for weft_pulse_path. NULL:
 * the system gives none. Both stay as long as the process: others open the memory by the descriptor's number, which is
 * in the name of the watcher's socket, too. */
weft_pulse *weft_pulse_create(int32_t *file, int32_t n);
/* How another process of this user opens the descriptor of a process. */
void weft_pulse_path(char *out, size_t size, int32_t pid, int32_t file);
/* The same records by that path; NULL: there are no n. */
weft_pulse *weft_pulse_map(const char *path, int32_t n);
/* Connects to the watcher of the records at this path, for as long as the process lives: the kernel closes connections
 * in the order in which processes die, before whatever a launcher does about it. Returns the descriptor; -1: it cannot
 * be reached. [main] */
int weft_pulse_link(const char *path);
/* The socket's name, of a watcher and its ranks. */
uint32_t weft_pulse_address(struct sockaddr_un *out, const char *path);
/* The record moves to another place, with all that it says. [main] */
void weft_pulse_move(weft_pulse *to);

/* What the rank does. [main] [hot] */
void weft_pulse_event(uint64_t step, int32_t event, const char *text); /* step 0: of an evaluation */
void weft_pulse_rest(void);                                            /* the pass has ended */
void weft_pulse_wait(void);
void weft_pulse_go(void); /* the wait has ended */
void weft_pulse_patience(int64_t seconds);
void weft_pulse_listens(void); /* signal handlers are installed */

/* Where it is, "in step 12, at event 33, REDUCE model.layers.1 leaf 2", and whether it waits for another. [any-thread]
 */
void weft_pulse_place(char *out, size_t size);
bool weft_pulse_waits(void);
/* The same of what a record says. event: -1: between two passes. [any-thread] */
void weft_pulse_say_place(char *out, size_t size, bool evaluates, uint64_t step, int32_t event, const char *text);

#endif
