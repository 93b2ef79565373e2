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

#endif
