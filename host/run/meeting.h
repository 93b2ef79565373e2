/* host/run/meeting.h: the ranks of one launch, who open and close several sessions together: a run that names
 * device and communicator, the process context of these, and what the ranks tell one another by. */
#ifndef WEFT_HOST_RUN_MEETING_H
#define WEFT_HOST_RUN_MEETING_H

#include "run/control_channel.h"
#include "program/run.h"

typedef struct weft_meeting {
    weft_run *run;
    weft_process_context *process_context;
    weft_ranks ranks; /* all of them */
    weft_control_channel post;
    weft_process_group peers;
    bool failed; /* something went wrong while ranks may have waited for one another: for weft_meeting_close */
} weft_meeting;

/* Opens what the configuration names; the ranks are watched from here on, and know of one another that they are alike.
 * out: zeroed by the caller, to be closed also after a failure. [collective] */
weft_status weft_meeting_open(weft_meeting *out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_error *err);
void weft_meeting_close(weft_meeting *self);

/* all: [size][bytes], what every rank has at `mine`. [collective] */
weft_status weft_meeting_share(weft_meeting *self, void *all, const void *mine, int64_t bytes, weft_error *err);

#endif
