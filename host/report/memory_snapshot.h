/* host/report/memory_snapshot.h: memory snapshot of every rank: planned before the run, measured after the first
 * step. */
#ifndef WEFT_HOST_REPORT_MEMORY_SNAPSHOT_H
#define WEFT_HOST_REPORT_MEMORY_SNAPSHOT_H

#include "run/session.h"

/* Memory of one rank in bytes. */
typedef struct weft_memory_snapshot {
    int64_t planned, taken;          /* on the device */
    int64_t resident, resident_peak; /* of the process, now and at the peak */
} weft_memory_snapshot;

/* Gathers the snapshots. out: [world], which the caller frees, also after a failure. Rank 0 receives all of them, the
 * others have only their own. [collective] */
weft_status weft_memory_snapshots_collect(weft_memory_snapshot **out, const weft_session *session, weft_error *err);

/* Prints the planned memory: on rank 0 the maximum with its rank, on any other rank its own. width: of the label. */
void weft_memory_snapshots_print_planned(const weft_memory_snapshot *moments, const weft_session *session, int width,
                                         FILE *to);

/* Formats this rank's memory after a step, without a newline. own: of moments; size: at least 200. */
void weft_memory_snapshot_describe(char *out, size_t size, const weft_memory_snapshot *own, const weft_session *session,
                                   int64_t step);
/* Formats the ranks with the least and the most memory, on rank 0. The same size. */
void weft_memory_snapshots_describe(char *out, size_t size, const weft_memory_snapshot *moments,
                                    const weft_session *session, int64_t step);

#endif
