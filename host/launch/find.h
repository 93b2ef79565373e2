/* host/launch/find.h: determines the number of ranks and the communicator before any plugin runs.
 *
 * The notes of the communicators contain each launcher command, and the variables that identify a rank. `[comm] plugin
 * = mpi` names a family. It selects the mpi-* plugin with its variables set, or else the first with an installed
 * launcher. */
#ifndef WEFT_HOST_LAUNCH_FIND_H
#define WEFT_HOST_LAUNCH_FIND_H

#include "config/config.h"
#include "launch/world.h"
#include "plugin/plugin.h"
#include <stdbool.h>
#include <stdint.h>
#include <weft/comm.h>

/* ---- built-in launcher of ranks on this machine ----
 *
 * For communicators that need no external launcher (NCCL). The note of such a communicator has `weft {ranks}` as its
 * launcher (weft/comm.h). */

/* Environment of its ranks: rank and world size. */
#define WEFT_OWN_RANK "WEFT_RANK"
#define WEFT_OWN_SIZE "WEFT_RANKS"

/* Starts n ranks of the program with these arguments, and waits for them. Runs in its own process.
 * Returns the exit status for the process: 0, or the first other status of a rank (128 plus the signal number if a
 * signal ended it). */
int weft_own_launcher_run(int32_t n, const char *program, char *const *words);

#define WEFT_RANKS_FAMILY "mpi" /* the default for several ranks */

typedef enum weft_launch_use {
    WEFT_RANKS_NONE = 0,    /* a command of one rank */
    WEFT_RANKS_PLANNED = 1, /* --ranks is a number to plan for */
    WEFT_RANKS_TRAINED = 2, /* --ranks is the world to be in */
    WEFT_RANKS_OFFERED = 3  /* no number was set: as many as requested here if they can be started, else one */
} weft_launch_use;

/* Sets the requirement of the current command; NONE and 0 at first. asked: --ranks; 0: unset. [main] */
void weft_launch_want(weft_launch_use use, int32_t asked);

typedef struct weft_launch {
    weft_world world;
    bool must_launch; /* this process is a launcher and no rank: it starts world.size ranks with `launch` */
    char launch[512]; /* "/usr/bin/mpiexec -n {ranks}" */
    char why[512];    /* the reason for this communicator and against others; for offered ranks that are not
                       * started, the reason for that; "": only one choice */
} weft_launch;

/* Determines world and launcher. config: its keys of [comm] are unread. */
weft_status weft_launch_find(weft_launch *out, weft_config *config, const weft_plugins *plugins, weft_error *err);

/* ---- `--ranks N`: starts the ranks through their launcher and waits for them (start.c) ----
 *
 * This process is the parent and no rank. It forwards SIGINT, SIGTERM and SIGHUP directly to the ranks, so that they
 * stop like a single process. The launcher would end them before they have saved. If this process is killed, the
 * launcher receives a signal to end. */

/* Runs this program again with the same arguments, as ranks->world.size ranks. *status: their exit status, 0 to 255.
 * Fails if a signal ended the launcher, or if a rank died or hangs; the message names the rank. [main] */
weft_status weft_launch_start(int *status, const weft_launch *ranks, weft_error *err);

#endif
