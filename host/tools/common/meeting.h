/* host/tools/common/meeting.h: run, process context and control channel of ranks that open and close sessions
 * together. */
#ifndef WEFT_HOST_TOOLS_COMMON_MEETING_H
#define WEFT_HOST_TOOLS_COMMON_MEETING_H

#include "program/run.h"
#include "run/ranks.h"

typedef struct weft_meeting {
    weft_run *run;
    weft_process_context *process_context;
    weft_ranks ranks; /* all of them */
    weft_control_channel channel;
    weft_process_group peers;
    bool failed; /* a failure occurred while ranks may have waited for each other */
} weft_meeting;

/* Opens the configured plugins, starts the watchdogs, and compares the ranks. out: zeroed by the caller; close it also
 * after a failure. [collective] */
weft_status weft_meeting_open(weft_meeting *out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_error *err);
void weft_meeting_close(weft_meeting *self);

/* All-gather of `bytes` bytes per rank. all: [size][bytes]. [collective] */
weft_status weft_meeting_share(weft_meeting *self, void *all, const void *mine, int64_t bytes, weft_error *err);

#endif
