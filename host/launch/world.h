/* host/launch/world.h: this process among those that train together.
 *
 * A world is known before any plugin runs: from the variables that a launcher gives each process (host/launch/find.h
 * finds them), or it is one rank. The communicator confirms it and adds what lies on which machine. */
#ifndef WEFT_HOST_LAUNCH_WORLD_H
#define WEFT_HOST_LAUNCH_WORLD_H

#include <stdbool.h>
#include <weft/comm.h>

typedef struct weft_world {
    int32_t rank, size;
    int32_t local_rank, local_size; /* among the ranks of this machine; before confirm: as if all ranks were here */
    char launched_by[64];           /* the variable that told the rank, "PMI_RANK"; "": started by itself */
    char comm[64];                  /* id that the family name in [comm] plugin stands for; "": as it is named */
    char wrapped[64];               /* id of the one as which a communicator that wraps others was started; "" */
    bool is_alone;                  /* the command runs on one rank, whatever [comm] names, and exchanges nothing */
    bool is_planned;                /* size is a number to plan for: no other rank exists */
    bool speaks;                    /* all its lines are shown, as those of rank 0 always are */
} weft_world;

/* Set for a launcher that this program starts: "N/P", N ranks and the processors that they divide. */
#define WEFT_STARTED "WEFT_STARTED_RANKS"

/* Processors that this process may run on. */
int32_t weft_world_allowed(void);

/* Machines that a planned world is on, as many ranks on each; 1 at first. [main] */
void weft_world_plan_nodes(int32_t nodes);
int32_t weft_world_planned_nodes(void);

const weft_world *weft_world_get(void); /* one rank before the first set. [any-thread] */

/* Takes the world over: from here on the lines of this process carry its rank, and ranks but 0 and those that speak
 * print errors alone. [main] */
void weft_world_set(const weft_world *world);

/* What the communicator says. WEFT_E_PEER: another world than the launcher's variables told. [main] */
weft_status weft_world_confirm(const weft_comm_info *info, weft_error *err);

#endif
