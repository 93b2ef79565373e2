/* host/report/moment.h: what every rank takes at one moment of a run: planned before it, taken after its first step. */
#ifndef WEFT_HOST_REPORT_MOMENT_H
#define WEFT_HOST_REPORT_MOMENT_H

#include "run/session.h"

/* Of one rank, bytes. */
typedef struct weft_moment {
    int64_t planned, taken;          /* from the device */
    int64_t resident, resident_peak; /* of the process, now and at most */
} weft_moment;

/* out: [world], to be freed, also after a failure; whole on rank 0, the others have their own alone. [collective] */
weft_status weft_moments_collect(weft_moment **out, const weft_session *session, weft_error *err);

/* What is planned: by rank 0 the most, with its rank; by any other rank its own. width: of the word in front. */
void weft_moments_print_planned(const weft_moment *moments, const weft_session *session, int width, FILE *to);

/* What this rank takes after a step, as a line without its end. own: of moments; size: at least 200. */
void weft_moment_describe(char *out, size_t size, const weft_moment *own, const weft_session *session, int64_t step);
/* By rank 0: which ranks take the least and the most. The same size. */
void weft_moments_describe(char *out, size_t size, const weft_moment *moments, const weft_session *session,
                           int64_t step);

#endif
