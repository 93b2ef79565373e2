/* host/report/sent.h: computes the bytes that a program's communication will send, by kind and by link. */
#ifndef WEFT_HOST_REPORT_SENT_H
#define WEFT_HOST_REPORT_SENT_H

#include "report/rank_plan.h"

/* Sets the traffic of the rank's plan; all-rank plan: provides the world and its nodes. */
weft_status weft_sent_plan(weft_rank_plan *out, const weft_all_rank_plan *all_rank_plan, const weft_plan *plan,
                           const weft_program *program, int32_t rank, weft_error *err);

#endif
