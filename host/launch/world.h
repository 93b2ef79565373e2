/* host/launch/world.h: this process's rank and the world of ranks.
 *
 * The world is known before any plugin runs: from the variables that a launcher sets for each process
 * (find.h), or it is one rank. The communicator confirms it and adds the machine of each rank. */
#ifndef WEFT_HOST_LAUNCH_WORLD_H
#define WEFT_HOST_LAUNCH_WORLD_H

#include "config/config.h"

#include <stdbool.h>
#include <stdio.h>
#include <weft/comm.h>

typedef struct weft_world {
    int32_t rank, size;
    int32_t local_rank, local_size; /* among the ranks of this machine; before confirm: as if all ranks were here */
    char launched_by[64];           /* the variable with the rank, "PMI_RANK"; "": started without a launcher */
    char comm[64];                  /* id selected for the family name in [comm] plugin; "": no family */
    char wrapped[64];               /* id of the wrapped communicator that provided the launcher; "" */
    bool is_alone;   /* the command runs on one rank, independent of [comm], and communicates with no other */
    bool is_planned; /* size is only planned: no other rank exists */
    bool speaks;     /* prints all its lines, as rank 0 always does */
} weft_world;

/* Environment of a launcher that this program starts: "N/P", N ranks that share P processors. */
#define WEFT_STARTED "WEFT_STARTED_RANKS"

extern int32_t weft_world_planned_nodes; /* machines of a planned world, with equally many ranks on each; 1 at first */

const weft_world *weft_world_get(void); /* one rank before the first set. [any-thread] */

/* Sets the world. From here on each line of this process has its rank. Ranks other than 0 and those with `speaks` print
 * only errors. [main] */
void weft_world_set(const weft_world *world);

/* Adds the communicator's information. WEFT_E_PEER: it differs from the launcher's variables. [main] */
weft_status weft_world_confirm(const weft_comm_info *info, weft_error *err);

/* selects the ranks that print their lines: [run] log_ranks. */

/* Sets world->speaks. list: the value of [run] log_ranks. WEFT_E_USER: invalid list, or a rank outside a world of
 * several ranks. */
weft_status weft_log_ranks_validate(weft_world *world, const char *list, const weft_config *config, weft_error *err);

/* ---- log prefix: each line that a rank prints starts with its rank, "[2] weft train: ..." ----
 *
 * Direct writes to the descriptors (crash reports, libraries) are unchanged. */

/* `--ranks N`: lets rank 0 write to the terminal on stdout of this process, which starts the ranks. Output through a
 * launcher is delayed and is no terminal. Set through the environment before the ranks start. [main] */
void weft_log_prefix_offer_terminal(void);

/* Returns stdout without the prefix, for the results that rank 0 prints and a program may parse. */
FILE *weft_log_prefix_plain(void);

#endif
