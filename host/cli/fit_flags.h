/* host/cli/fit_flags.h: --fit and --no-fit of the commands that take memory. */
#ifndef WEFT_HOST_CLI_FIT_FLAGS_H
#define WEFT_HOST_CLI_FIT_FLAGS_H

#include "cli/cli.h"
#include "report/fit_words.h"
#include "report/fit_table.h"

/* Of a command's flags. */
#define WEFT_FIT_FLAG                                                                                                  \
    { "fit", "SIZE", false, "Available memory of a rank's device, as 80GB or 24GiB (default: query it)." }
#define WEFT_NO_FIT_FLAG                                                                                               \
    { "no-fit", NULL, false, "Start even if the plan does not fit." }

/* What --fit says; 0: it is not given. False: WEFT_EXIT_USAGE. */
bool weft_command_room(const weft_args *args, int64_t *bytes, weft_error *err);

/* What a command has opened, and the room that there is for it: bytes, or what its device has where that is 0. */
weft_fit_question weft_command_question(const weft_args *args, const weft_session *session, int64_t bytes);

/* Refuses a session of one rank that does not fit, unless --no-fit says otherwise. */
weft_status weft_command_judge_room(const weft_args *args, const weft_session *session, int64_t bytes, weft_error *err);

#endif
