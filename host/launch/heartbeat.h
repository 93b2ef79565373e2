/* host/launch/heartbeat.h: heartbeat of a rank, for the watchdog.
 *
 * Each rank has a small record in memory that it shares with the watchdog of its machine (watchdog.h): its state,
 * step and instruction. An update is a few plain stores. Without a watchdog the stores have no reader. */
#ifndef WEFT_HOST_LAUNCH_HEARTBEAT_H
#define WEFT_HOST_LAUNCH_HEARTBEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <weft/base.h>

#include "plugin/crash.h"

/* The watching parent sets this for the ranks: the file that contains the record of rank r at index r. */
#define WEFT_WATCHED "WEFT_WATCHED_BY"

enum { WEFT_HEARTBEAT_TEXT = 160 };

typedef enum weft_heartbeat_state {
    WEFT_HEARTBEAT_COMPUTES = 0, /* depends on no other rank */
    WEFT_HEARTBEAT_WAITS = 1,    /* for another rank */
    WEFT_HEARTBEAT_ENDED = 2     /* its main has returned, or it has called exit */
} weft_heartbeat_state;

typedef struct weft_heartbeat {
    _Alignas(64) _Atomic int32_t pid; /* 0: the rank has not begun */
    _Atomic int32_t state;            /* weft_heartbeat_state */
    _Atomic int32_t status;           /* once ENDED: the exit status */
    _Atomic int32_t rank;
    _Atomic int32_t patience;    /* seconds; 0: not read yet */
    _Atomic int32_t instruction; /* -1: between passes */
    _Atomic int32_t evaluates;
    _Atomic int32_t listens;   /* its signal handlers are installed: after a signal it saves and stops */
    _Atomic uint64_t step;     /* the last one that began; 0: no step yet */
    _Atomic uint64_t progress; /* increments at the start of each instruction and the end of each wait */
    _Atomic int32_t text;      /* index of the valid text */
    char texts[2][WEFT_HEARTBEAT_TEXT];
    weft_crumb call; /* the current plugin call */
} weft_heartbeat;

/* Registers this process as a rank. If WEFT_WATCHED_BY is set, the record is shared from now on, and the kernel kills
 * this process when the parent dies. If the parent is dead already, this process ends. An exit or the end of main is
 * recorded; any other end is abnormal. [main] */
void weft_heartbeat_begin(int32_t rank);
/* Returns true if a watchdog is attached. */
bool weft_heartbeat_is_watched(void);

/* Creates n records in memory that other processes of this machine can share. *file: a descriptor for
 * weft_heartbeat_path. Returns NULL if the system call fails. Both live as long as the process: others open the
 * memory by the descriptor's number, which is also part of the name of the watchdog's socket. */
weft_heartbeat *weft_heartbeat_create(int32_t *file, int32_t n);
/* Writes the path by which another process of this user opens a descriptor of process pid. */
void weft_heartbeat_path(char *out, size_t size, int32_t pid, int32_t file);
/* Maps the records at that path; NULL: there are fewer than n. */
weft_heartbeat *weft_heartbeat_map(const char *path, int32_t n);
/* Connects to the watchdog of the records at this path, for the life of the process. The kernel closes connections in
 * the order in which processes die, before a launcher can react. Returns the descriptor; -1: unreachable. [main] */
int weft_heartbeat_link(const char *path);
/* Opens a local stream socket that has this name until it is closed, without a file, and listens, or connects to it. A
 * listening one does not block. Returns -1 if that fails. */
int weft_local_socket(const char *name, bool listens);
enum { WEFT_LOCAL_NAME = 100 }; /* bytes of a name with its end */
#define WEFT_WATCH_NAME                                                                                                \
    "weft-watch:%.80s" /* of the socket between a watchdog and its ranks, with the path of records */
/* Moves the record, with its contents, to other memory. [main] */
void weft_heartbeat_move(weft_heartbeat *to);

/* Update the rank's record. [main] [hot] */
void weft_heartbeat_instruction(uint64_t step, int32_t instruction, const char *text); /* step 0: of an evaluation */
void weft_heartbeat_rest(void);                                                        /* the pass has ended */
void weft_heartbeat_wait(void);
void weft_heartbeat_go(void); /* the wait has ended */
void weft_heartbeat_patience(int64_t seconds);
void weft_heartbeat_listens(void); /* signal handlers are installed */

/* Writes the position, "in step 12, at instruction 33, REDUCE model.layers.1 micro-batch 2", and whether the rank
 * waits for another. [any-thread] */
void weft_heartbeat_position(char *out, size_t size);
bool weft_heartbeat_waits(void);
/* Formats the position of a record. instruction: -1: between passes. [any-thread] */
void weft_position_format(char *out, size_t size, bool evaluates, uint64_t step, int32_t instruction, const char *text);

#endif
