/* host/report/sent.h: the bytes that a program's exchanges will send, by kind and by link. */
#ifndef WEFT_HOST_REPORT_SENT_H
#define WEFT_HOST_REPORT_SENT_H

#include "report/rank_plan.h"

/* Fills what the plan says of bytes that the rank sends; survey: its world and nodes. */
weft_status weft_sent_plan(weft_rank_plan *out, const weft_survey *survey, const weft_plan *plan,
                           const weft_program *program, int32_t rank, weft_error *err);

#endif
