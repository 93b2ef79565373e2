/* host/report/world_line.h: who trains, how the work is split, and what is said of the sums: before a run and after
 * it. */
#ifndef WEFT_HOST_REPORT_WORLD_LINE_H
#define WEFT_HOST_REPORT_WORLD_LINE_H

#include "run/session.h"

#include <jansson.h>

/* What a run came to, of the steps of this process. */
typedef struct weft_run_result {
    int64_t steps;
    double first_loss, last_loss; /* in training */
    double last_lr;
} weft_run_result;

/* Precision and every plugin, in one line; result: of the run once it has ended, NULL before. */
void weft_run_print(const weft_session *session, const weft_run_result *result, int width, FILE *to);
/* The same with the world and the strategy's settings. NULL: no memory. */
json_t *weft_run_object(const weft_session *session, const weft_run_result *result);

/* Ranks, nodes, the strategy with its settings; replicas and leaves. width: of the words in front. */
void weft_world_print(const weft_session *session, int width, FILE *to);
/* A notice where a strategy for several ranks has one. */
void weft_world_tell_alone(const weft_session *session);
/* A notice where one thread would be faster than the device's several. Measures, where that may be (report/threads.h):
 * before the session is started. [rank 0] */
void weft_world_tell_threads(const weft_session *session);
/* The same where 16 bits, in which the run computes, are slower than fp32 (report/precision.h). [rank 0] */
void weft_world_tell_precision(const weft_session *session);
/* How the leaves' gradients are summed, and whether that is covered by the contract of equal bits. */
void weft_sums_print(const weft_session *session, int width, FILE *to);
/* Which rows of each step every rank takes: rank 0 tells of all, any other of itself; nothing where there is one
 * replica. */
void weft_batches_print(const weft_session *session, FILE *to);
/* The same of one step, with the ids of each rank's first row; also where there is one replica. */
weft_status weft_samples_print(const weft_session *session, int64_t step, FILE *to, weft_error *err);

#endif
