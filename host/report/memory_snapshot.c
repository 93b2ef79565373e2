/* host/report/memory_snapshot.c: see memory_snapshot.h. */
#include "report/memory_snapshot.h"

#include "base/resident.h"
#include "base/units.h"

#include <stdlib.h>

static void take_moment(weft_memory_snapshot *out, const weft_session *session) {
    out->planned = session->engine->plan.bytes.total;
    out->taken = session->engine->account.most;
    out->resident = weft_resident_now();
    out->resident_peak = weft_resident_peak();
}

weft_status weft_memory_snapshots_collect(weft_memory_snapshot **out, const weft_session *session, weft_error *err) {
    const weft_engine *engine = session->engine;
    weft_memory_snapshot *rows = calloc((size_t)engine->ranks.world, sizeof *rows);
    weft_status status = WEFT_OK;
    *out = rows;
    if (rows == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what %d ranks take", (int)engine->ranks.world);
    else take_moment(&rows[engine->ranks.rank], session);
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status != WEFT_OK || engine->ranks.world == 1) return status;
    return weft_process_group_gather(&engine->peers, rows, (int64_t)sizeof *rows, err);
}

void weft_memory_snapshots_print_planned(const weft_memory_snapshot *moments, const weft_session *session, int width,
                                         FILE *to) {
    const weft_ranks *ranks = &session->engine->ranks;
    int32_t most = ranks->rank;
    bool alike = ranks->rank == 0;
    char text[WEFT_UNIT_SIZE];
    for (int32_t r = 1; ranks->rank == 0 && r < ranks->world; r++) {
        alike = alike && moments[r].planned == moments[0].planned;
        if (moments[r].planned > moments[most].planned) most = r;
    }
    (void)fprintf(to, "%-*s%s planned", width, "memory", weft_unit_bytes(text, moments[most].planned));
    if (ranks->world > 1 && alike) (void)fprintf(to, " on each rank");
    else if (ranks->world > 1)
        (void)fprintf(to, " on rank %d%s", (int)most, ranks->rank == 0 ? ", which takes the most" : "");
    (void)fprintf(to, " (weft plan shows it)\n");
}

static double gib(int64_t bytes) {
    return (double)bytes / 1073741824.0;
}

void weft_memory_snapshot_describe(char *out, size_t size, const weft_memory_snapshot *own, const weft_session *session,
                                   int64_t step) {
    (void)snprintf(out, size,
                   "Step %lld: Current memory usage: %.2f GiB, Peak memory usage: %.2f GiB, Total memory: %.2f GiB",
                   (long long)step, gib(own->resident), gib(own->resident_peak),
                   gib(session->engine->device_info.memory));
}

void weft_memory_snapshots_describe(char *out, size_t size, const weft_memory_snapshot *moments,
                                    const weft_session *session, int64_t step) {
    int32_t least = 0, most = 0, peak = 0;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    for (int32_t r = 1; r < session->engine->ranks.world; r++) {
        if (moments[r].resident < moments[least].resident) least = r;
        if (moments[r].resident > moments[most].resident) most = r;
        if (moments[r].resident_peak > moments[peak].resident_peak) peak = r;
    }
    (void)snprintf(out, size, "memory     %s (rank %d) to %s (rank %d) resident after step %lld, %s at most (rank %d)",
                   weft_unit_bytes(a, moments[least].resident), (int)least, weft_unit_bytes(b, moments[most].resident),
                   (int)most, (long long)step, weft_unit_bytes(c, moments[peak].resident_peak), (int)peak);
}
