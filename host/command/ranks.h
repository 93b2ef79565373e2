/* host/command/ranks.h: `--ranks N` of the commands that run on several ranks. */
#ifndef WEFT_HOST_COMMAND_RANKS_H
#define WEFT_HOST_COMMAND_RANKS_H

#include "command/cli.h"

/* True: this process is a rank, or alone. False: it is neither, for it has started the ranks or could not, and *status
 * is its result. asked: of --ranks; 0: not given. */
bool weft_command_is_rank(weft_exit *status, const weft_args *args, int32_t asked, weft_error *err);

#endif
