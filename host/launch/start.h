/* host/launch/start.h: `--ranks N`: this process starts the ranks through their launcher and waits for them.
 *
 * It is their parent and no rank. What it is told by SIGINT, SIGTERM and SIGHUP it tells the ranks themselves, and not
 * the launcher, which would end them before they have saved: they stop as a single process does. If it is killed, the
 * launcher is told to end, too. */
#ifndef WEFT_HOST_LAUNCH_START_H
#define WEFT_HOST_LAUNCH_START_H

#include "launch/find.h"

/* Runs this program again with the same arguments, as ranks->world.size ranks. *status: what they ended with, 0 to 255;
 * a launcher that a signal ended is an error, and so is a rank that died or hangs, which is named. [main] */
weft_status weft_launch_start(int *status, const weft_launch *ranks, weft_error *err);

#endif
