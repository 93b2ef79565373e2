/* host/tools/check/process_state.h: what belongs to the host of the process that a plugin is tried in (R13): locale,
 * working directory, umask, floating-point mode, signal handlers, environment, the standard streams, and that it starts
 * no process. A run puts right what a `create` changes; what other calls change, nobody sees there. */
#ifndef WEFT_HOST_TOOLS_CHECK_PROCESS_STATE_H
#define WEFT_HOST_TOOLS_CHECK_PROCESS_STATE_H

#include "plugin/process.h"

#include <sys/stat.h>

typedef struct weft_process_state {
    weft_process process;
    uint64_t environment;   /* without the host's own WEFT_ */
    struct stat streams[3]; /* standard input, output and error */
} weft_process_state;

/* [main] */
void weft_process_state_save(weft_process_state *out);
/* WEFT_E_PLUGIN with a sentence where something is another than it was. Libraries of devices bring handlers of their
 * own, which a run puts back. [main] */
weft_status weft_process_state_check(const weft_process_state *before, const char *kind, weft_error *err);

#endif
