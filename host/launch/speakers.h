/* host/launch/speakers.h: whose lines are shown, of several ranks: [run] log_ranks. */
#ifndef WEFT_HOST_LAUNCH_SPEAKERS_H
#define WEFT_HOST_LAUNCH_SPEAKERS_H

#include "config/config.h"
#include "launch/world.h"

/* Sets world->speaks. list: the value of [run] log_ranks. WEFT_E_USER: it is none, or names a rank that the world of
 * several does not have. */
weft_status weft_speakers_judge(weft_world *world, const char *list, const weft_config *config, weft_error *err);

#endif
