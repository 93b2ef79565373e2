/* host/cli/flags.h: flags that several commands share: --fit and --no-fit of those that allocate memory, and --ranks of
 * those that run on several ranks. */
#ifndef WEFT_HOST_CLI_FLAGS_H
#define WEFT_HOST_CLI_FLAGS_H

#include "cli/cli.h"
#include "launch/find.h"
#include "train/fit.h"

/* Entries of a command's flags. */
#define WEFT_FIT_FLAG                                                                                                  \
    { "fit", "SIZE", false, "Available memory of a rank's device, as 80GB or 24GiB (default: query it)." }
#define WEFT_NO_FIT_FLAG                                                                                               \
    { "no-fit", NULL, false, "Start even if the plan does not fit." }

/* Parses --fit; 0: unset. Returns false for WEFT_EXIT_USAGE. */
bool weft_command_room(const weft_args *args, int64_t *bytes, weft_error *err);

/* Combines an open session with its available memory: bytes, or a query of the device if that is 0. */
weft_fit_question weft_command_question(const weft_args *args, const weft_session *session, int64_t bytes);

/* Rejects a session of one rank that does not fit, unless --no-fit is set. */
weft_status weft_command_check_room(const weft_args *args, const weft_session *session, int64_t bytes, weft_error *err);

/* Purpose of the ranks. */
typedef enum weft_ranks_purpose {
    WEFT_RANKS_RUN_ONE, /* the configuration's strategy, validated with batch and ranks before they start */
    WEFT_RANKS_RUN_MANY /* the programs of many strategies; the command skips the impossible ones */
} weft_ranks_purpose;

typedef struct weft_overrides {
    const char *const *items;
    size_t n;
} weft_overrides;

/* Returns true if this process is a rank, or the only process. Returns false if it has started the ranks or failed to;
 * *status then has the result. with: overrides in place of the command line's, or NULL; the ranks receive them through
 * their command line. asked: --ranks; 0: unset. */
bool weft_command_is_rank(weft_exit *status, const weft_args *args, const weft_overrides *with, int32_t asked,
                          weft_ranks_purpose purpose, weft_error *err);

/* Does the same after the command has set its requirement (weft_launch_want), and returns the launch. */
bool weft_command_find_ranks(weft_exit *status, weft_launch *ranks, const weft_args *args, const weft_overrides *with,
                             weft_ranks_purpose purpose, weft_error *err);

#endif
