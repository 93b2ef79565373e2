/* host/cli/fit_flags.h: the flags --fit and --no-fit of the commands that allocate memory. */
#ifndef WEFT_HOST_CLI_FIT_FLAGS_H
#define WEFT_HOST_CLI_FIT_FLAGS_H

#include "cli/cli.h"
#include "report/fit_table.h"

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

#endif
