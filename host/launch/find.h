/* host/launch/find.h: how many ranks there are, and by which communicator, before any plugin runs.
 *
 * The notes of the communicators say how each one's ranks are started and by which variables a process knows that it is
 * one. `[comm] plugin = mpi` names a family: it stands for the one of mpi-* whose variables are there, or else for the
 * first whose launcher is. */
#ifndef WEFT_HOST_LAUNCH_FIND_H
#define WEFT_HOST_LAUNCH_FIND_H

#include "config/config.h"
#include "launch/world.h"
#include "plugin/plugin.h"

#define WEFT_RANKS_FAMILY "mpi" /* what several ranks use where nothing is said */

typedef enum weft_launch_use {
    WEFT_RANKS_NONE = 0,    /* a command of one rank */
    WEFT_RANKS_PLANNED = 1, /* --ranks is a number to plan for */
    WEFT_RANKS_TRAINED = 2, /* --ranks is the world to be in */
    WEFT_RANKS_OFFERED = 3  /* nobody said how many: as many as are asked for here if they can be started, else one */
} weft_launch_use;

/* What the command that runs wants; NONE and 0 at first. asked: of --ranks; 0: not given. [main] */
void weft_launch_want(weft_launch_use use, int32_t asked);

typedef struct weft_launch {
    weft_world world;
    bool must_launch; /* this process starts the ranks and is none of them: world.size of them, with `launch` */
    char launch[512]; /* "/usr/bin/mpiexec -n {ranks}" */
    char why[512];    /* which communicator, why, and why others not; of ranks that were offered and are not started:
                       * why not; "": there was nothing to choose */
} weft_launch;

/* config: with its keys of [comm] unread. */
weft_status weft_launch_find(weft_launch *out, weft_config *config, const weft_plugins *plugins, weft_error *err);

#endif
