/* host/program/meet.h: which exchanges of proved programs are one, for whoever plays them by time.
 *
 * The checker (check_match.c) asks the same question and doubts every answer; here the programs are known to be right.
 */
#ifndef WEFT_HOST_PROGRAM_MEET_H
#define WEFT_HOST_PROGRAM_MEET_H

#include "program/program.h"

typedef struct weft_meetings {
    int32_t **of;  /* [world][n_events] the meeting of an event; -1: it needs nobody */
    int32_t *size; /* [n] ranks that come to it */
    int32_t n, world;
} weft_meetings;

/* programs: of all ranks of a placed job. To be freed also after a failure. */
weft_status weft_meetings_find(weft_meetings *out, const weft_program *const *programs, const weft_job_spec *job,
                               weft_error *err);
void weft_meetings_free(weft_meetings *self);

#endif
