/* host/launch/start.h: `--ranks N`: starts the ranks through their launcher and waits for them.
 *
 * This process is the parent and no rank. It forwards SIGINT, SIGTERM and SIGHUP directly to the ranks, so that they
 * stop like a single process. The launcher would end them before they have saved. If this process is killed, the
 * launcher receives a signal to end. */
#ifndef WEFT_HOST_LAUNCH_START_H
#define WEFT_HOST_LAUNCH_START_H

#include "launch/find.h"

/* Runs this program again with the same arguments, as ranks->world.size ranks. *status: their exit status, 0 to 255.
 * Fails if a signal ended the launcher, or if a rank died or hangs; the message names the rank. [main] */
weft_status weft_launch_start(int *status, const weft_launch *ranks, weft_error *err);

#endif
