/* host/tools/check/leaves_process.h: what belongs to the host of the process that a plugin is tried in (R13): locale,
 * working directory, umask, floating-point mode, signal handlers, environment, the standard streams, and that it starts
 * no process. A run puts right what a `create` changes; what other calls change, nobody sees there. */
#ifndef WEFT_HOST_TOOLS_CHECK_LEAVES_PROCESS_H
#define WEFT_HOST_TOOLS_CHECK_LEAVES_PROCESS_H

#include "plugin/process.h"

#include <sys/stat.h>

typedef struct weft_left {
    weft_process process;
    uint64_t environment;   /* without the host's own WEFT_ */
    struct stat streams[3]; /* standard input, output and error */
} weft_left;

/* [main] */
void weft_left_note(weft_left *out);
/* WEFT_E_PLUGIN with a sentence where something is another than it was. Libraries of devices bring handlers of their
 * own, which a run puts back. [main] */
weft_status weft_left_judge(const weft_left *before, const char *kind, weft_error *err);

#endif
