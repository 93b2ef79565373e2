/* host/report/world_line.h: prints the ranks, the distribution of the work, and the reduction of gradients, before a
 * run and after it. */
#ifndef WEFT_HOST_REPORT_WORLD_LINE_H
#define WEFT_HOST_REPORT_WORLD_LINE_H

#include "run/session.h"

#include <jansson.h>
#include <stdio.h>
#include <weft/device.h>

/* Prints the device in one line, at the start of a run and of a profile. */

void weft_device_line_print(const weft_device_info *info, FILE *to);

/* Result of a run, over the steps of this process. */
typedef struct weft_run_result {
    int64_t steps;
    double first_loss, last_loss; /* training loss */
    double last_lr;
} weft_run_result;

/* Prints precision and every plugin in one line; result: of the finished run, NULL before. */
void weft_run_print(const weft_session *session, const weft_run_result *result, int width, FILE *to);
/* Returns the same with the world and the strategy's settings. */
json_t *weft_run_object(const weft_session *session, const weft_run_result *result);

/* Prints ranks, nodes, the strategy with its settings, replicas and micro-batches. width: of the labels. */
void weft_world_print(const weft_session *session, int width, FILE *to);
/* Prints a notice if a strategy for several ranks runs on one. */
void weft_world_log_single_rank(const weft_session *session);
/* Prints a notice if one thread would be faster than the device's team. May measure (report/world_line.c), so call it
 * before the session is started. [rank 0] */
void weft_world_log_threads(const weft_session *session);
/* Prints a notice if the run's 16-bit type is slower than fp32 (report/world_line.c). [rank 0] */
void weft_world_log_precision(const weft_session *session);
/* Prints how the micro-batches' gradients are summed, and whether the sum is deterministic across ranks. */
void weft_sums_print(const weft_session *session, int width, FILE *to);
/* Prints the sequences that every rank processes in each step: rank 0 prints all ranks, any other only itself. No
 * output with one replica. */
void weft_batches_print(const weft_session *session, FILE *to);

#endif
