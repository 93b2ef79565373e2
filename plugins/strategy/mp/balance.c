/* balance.c: maps that are computed from bytes.
 *
 * A stage costs the parameters, gradients and optimizer state of the storage whose first users it has; what a leaf
 * leaves behind in it (tapes, carries) for each leaf that is under way there at a time; and a leaf's gradient. Storage
 * that an earlier segment uses as well is a copy here, with parts of its gradient on their way to the owner, unless the
 * earlier one is in the same stage; that is taken for true of the first stage alone. */
#include "mp.h"

static int64_t segment_bytes(const weft_segment_view *v, int64_t leaves) {
    return v->parameter_bytes + v->gradient_bytes + v->state_bytes + leaves * (v->tape_bytes + v->carry_bytes);
}

/* Leaves that are between FORWARD and BACKWARD on the rank at a time. */
static int64_t leaves_under_way(const mp_config *keys, const weft_strategy_job *job, int32_t rank) {
    const int64_t below = job->world - rank;
    if (keys->schedule == MP_GPIPE) return job->leaves;
    if (keys->schedule == MP_1F1B) return below < job->leaves ? below : job->leaves;
    return 1;
}

/* least[rank][end]: the largest of ranks 0 .. rank where they share segments [0, end), each at least one; from: where
 * the last of them begins. Row by row, so that the row before is all that is needed. */
static void next_row(const mp_config *keys, const weft_strategy_job *job, int32_t rank, const int64_t *before,
                     int64_t *least, int32_t *from) {
    const int64_t leaves = leaves_under_way(keys, job, rank), parts = mp_parts(keys, job->world);
    int32_t end, begin;
    for (end = 0; end <= job->n_segments; end++) {
        int64_t bytes = 0, copies = 0, gradient = 0;
        least[end] = INT64_MAX;
        for (begin = end - 1; begin >= 0; begin--) {
            const weft_segment_view *v = weft_job_segment(job, begin);
            int64_t most;
            bytes += segment_bytes(v, leaves);
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

/* Each rank is filled until the segments so far come closest to its share of the total; those behind it get a segment
 * each. */
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
