/* host/launch/log_ranks.h: selects the ranks that print their lines: [run] log_ranks. */
#ifndef WEFT_HOST_LAUNCH_LOG_RANKS_H
#define WEFT_HOST_LAUNCH_LOG_RANKS_H

#include "config/config.h"
#include "launch/world.h"

/* Sets world->speaks. list: the value of [run] log_ranks. WEFT_E_USER: invalid list, or a rank outside a world of
 * several ranks. */
weft_status weft_log_ranks_validate(weft_world *world, const char *list, const weft_config *config, weft_error *err);

#endif
