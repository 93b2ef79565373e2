/* host/cli/spawn.h: `--ranks N` of the commands that run on several ranks. */
#ifndef WEFT_HOST_CLI_SPAWN_H
#define WEFT_HOST_CLI_SPAWN_H

#include "cli/cli.h"

/* What ranks are started for. */
typedef enum weft_ranks_purpose {
    WEFT_RANKS_RUN_ONE, /* the configuration's strategy, which is judged with batch and ranks before they start */
    WEFT_RANKS_RUN_MANY /* the programs of many strategies, of which the command leaves out what cannot be */
} weft_ranks_purpose;

/* True: this process is a rank, or alone. False: it is neither, for it has started the ranks or could not, and *status
 * is its result. asked: of --ranks; 0: not given. */
bool weft_command_is_rank(weft_exit *status, const weft_args *args, int32_t asked, weft_ranks_purpose purpose,
                          weft_error *err);

/* The same with other overrides than those of the command line, of which the ranks are told by the line itself. */
bool weft_command_is_rank_of(weft_exit *status, const weft_args *args, const char *const *overrides, size_t n_overrides,
                             int32_t asked, weft_ranks_purpose purpose, weft_error *err);

/* The same, to run many, where nobody says how many: n ranks, if they can be started and no launcher has started any.
 * why: else, why this process is alone; "": it is not. */
bool weft_command_offers_ranks(weft_exit *status, char *why, size_t size, const weft_args *args, int32_t n,
                               weft_error *err);

#endif
