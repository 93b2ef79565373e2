/* host/tools/profile/profile_table.h: a profile as a table for people and as an object for programs. */
#ifndef WEFT_HOST_TOOLS_PROFILE_PROFILE_TABLE_H
#define WEFT_HOST_TOOLS_PROFILE_PROFILE_TABLE_H

#include "tools/profile/arrival.h"
#include "tools/profile/profile.h"
#include "tools/profile/roofline.h"

typedef struct weft_profile_report {
    const weft_session *session;
    const weft_arrival *start;
    const weft_profile *profile;   /* with at least one step */
    const weft_roofline *roofline; /* NULL: not measured */
    int64_t resident_peak;         /* bytes, of the steps; the roofline's own are not in it */
} weft_profile_report;

void weft_profile_print(const weft_profile_report *report, FILE *to);
weft_status weft_profile_print_json(const weft_profile_report *report, FILE *to, weft_error *err);

#endif
