/* balance.c: computes maps from bytes.
 *
 * The cost of a stage is the sum of three parts: parameters, gradients and optimizer state of storage that it uses
 * first; activations of a micro-batch (tapes, carries) times the micro-batches in flight; and a micro-batch's gradient.
 * Storage that an earlier segment also uses is a copy, with parts of its gradient in flight to the owner. It is no copy
 * if the earlier segment is in the same stage, which is assumed only for the first stage. */
#include "mp.h"

static int64_t segment_bytes(const weft_segment_view *v, int64_t micro_batches) {
    return v->parameter_bytes + v->gradient_bytes + v->state_bytes + micro_batches * (v->tape_bytes + v->carry_bytes);
}

/* Returns the number of micro-batches between FORWARD and BACKWARD on the rank. */
static int64_t micro_batches_under_way(const mp_config *keys, const weft_strategy_job *job, int32_t rank) {
    const int64_t below = job->world - rank;
    if (keys->schedule == MP_GPIPE) return job->micro_batches;
    if (keys->schedule == MP_1F1B) return below < job->micro_batches ? below : job->micro_batches;
    return 1;
}

/* least[rank][end]: the minimal maximum cost of ranks 0 .. rank for segments [0, end), with at least one segment each;
 * from: first segment of the last rank. Computed row by row, so only the previous row is stored. */
static void next_row(const mp_config *keys, const weft_strategy_job *job, int32_t rank, const int64_t *before,
                     int64_t *least, int32_t *from) {
    const int64_t micro_batches = micro_batches_under_way(keys, job, rank), parts = mp_parts(keys, job->world);
    int32_t end, begin;
    for (end = 0; end <= job->n_segments; end++) {
        int64_t bytes = 0, copies = 0, gradient = 0;
        least[end] = INT64_MAX;
        for (begin = end - 1; begin >= 0; begin--) {
            const weft_segment_view *v = weft_job_segment(job, begin);
            int64_t most;
            bytes += segment_bytes(v, micro_batches);
            copies += v->tied_bytes * ((v->flags & WEFT_SEGMENT_TRAINS_TIED) != 0 ? 1 + parts : 1);
            if (v->gradient_bytes > gradient) gradient = v->gradient_bytes;
            most = bytes + gradient + (begin > 0 ? copies : 0);
            if (before[begin] > most) most = before[begin];
            if (most >= least[end]) continue;
            least[end] = most;
            from[end] = begin;
        }
    }
}

weft_status mp_map_balanced(const weft_host *host, const mp_config *keys, const weft_strategy_job *job, int32_t *owners,
                            weft_error *err) {
    const size_t row = (size_t)job->n_segments + 1, rows = (size_t)job->world;
    int64_t *least = (int64_t *)host->alloc(host, 2 * row * sizeof *least, 8);
    int32_t *from = (int32_t *)host->alloc(host, rows * row * sizeof *from, 8), end = job->n_segments, rank;
    weft_status status = WEFT_OK;
    if (least == NULL || from == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a map of %d segments", (int)job->n_segments);
        goto done;
    }
    for (end = 0; end <= job->n_segments; end++) least[end] = end == 0 ? 0 : INT64_MAX;
    for (rank = 0; rank < job->world; rank++)
        next_row(keys, job, rank, least + (size_t)(rank % 2) * row, least + (size_t)((rank + 1) % 2) * row,
                 from + (size_t)rank * row);
    for (rank = job->world - 1, end = job->n_segments; rank >= 0; rank--) {
        const int32_t begin = from[(size_t)rank * row + (size_t)end];
        while (end > begin) owners[--end] = rank;
    }
done:
    host->release(host, least);
    host->release(host, from);
    return status;
}

/* Assigns segments to each rank until the sum is closest to the rank's share of the total, and keeps at least one
 * segment for each later rank. */
void mp_map_sequential(const weft_strategy_job *job, int32_t *owners) {
    double total = 0, sum = 0;
    int32_t s, rank = 0, since = 0;
    for (s = 0; s < job->n_segments; s++) total += (double)segment_bytes(weft_job_segment(job, s), 1);
    for (s = 0; s < job->n_segments; s++) {
        const double share = total * (rank + 1) / job->world,
                     bytes = (double)segment_bytes(weft_job_segment(job, s), 1);
        const int32_t left = job->n_segments - s, behind = job->world - 1 - rank;
        if (since > 0 && behind > 0 && (left <= behind || sum + bytes / 2 > share)) {
            rank++;
            since = 0;
        }
        owners[s] = rank;
        sum += bytes;
        since++;
    }
}
