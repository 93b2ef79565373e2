/* host/plugin/ending.h: the process ends where main ends. A plugin that calls exit would otherwise choose the status,
 * and a run that was cut short could look like one that is done.
 *
 *     weft: optimizer:lion (/home/you/weft-optimizer-lion.so) ended the process in its prepare, in training, at step
 *         12: its work is not done
 *
 * What ends without the C library, such as _exit, is not seen.
 */
#ifndef WEFT_HOST_PLUGIN_ENDING_H
#define WEFT_HOST_PLUGIN_ENDING_H

#include <stdbool.h>

/* From here on exit gives status 1 and names the plugin at work. Child processes are not concerned. [main] */
void weft_ending_guard(void);

/* True in a guarded process whose main is not done: an exit now is somebody else's. [main] */
bool weft_ending_is_early(void);

/* main is done: its status counts. [main] */
void weft_ending_reached(void);

#endif
