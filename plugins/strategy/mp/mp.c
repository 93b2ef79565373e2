/* mp: one replica of the model with its segments divided among the ranks.
 *
 * Naive model parallelism and pipelines differ only in their instructions (program.c). A unit is owned by the rank that
 * runs its first user. Another rank that reads it (tied storage) has a copy of the parameters. That rank sends its part
 * of each micro-batch gradient to the owner and receives the update. GPipe: Huang et al., arXiv 1811.06965; 1F1B:
 * Narayanan et al., arXiv 2104.04473. */
#include "mp.h"

WEFT_KEYS_TABLE(mp_config, MP_KEYS)

/* With 1F1B, the first stage runs a micro-batch's backward after the last stage with a delay of half the number of
 * stages between them, in micro-batches. With only backwards (GPipe) the delay is the number of stages. */
int32_t mp_parts(const mp_config *keys, int32_t stages) {
    int32_t parts = 1;
    if (keys->schedule == MP_GPIPE) parts = stages - 1;
    if (keys->schedule == MP_1F1B) parts = stages / 2;
    return parts > 1 ? parts : 1;
}

static weft_status mp_replicas(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                               weft_error *err) {
    (void)host;
    (void)config;
    if (job->world > job->n_segments)
        return weft_error_set(
            err, WEFT_E_USER,
            "strategy mp needs a segment for each rank, and this model has %d for %d ranks. Fix: start fewer ranks",
            (int)job->n_segments, (int)job->world);
    *out = 1;
    return WEFT_OK;
}

/* Counts runs of consecutive segments on one rank. */
static int32_t count_stages(const int32_t *owners, int32_t n_segments) {
    int32_t stages = 1, s;
    for (s = 1; s < n_segments; s++) stages += owners[s] != owners[s - 1];
    return stages;
}

/* 1F1B requires that each rank has exactly one stage. */
static weft_status check_stages(const mp_config *keys, const weft_strategy_job *job, const int32_t *owners,
                                weft_error *err) {
    int32_t s, t;
    if (keys->schedule != MP_1F1B || count_stages(owners, job->n_segments) == job->world) return WEFT_OK;
    for (s = 1; s < job->n_segments; s++)
        for (t = 0; t + 1 < s; t++)
            if (owners[t] == owners[s] && owners[s - 1] != owners[s])
                return weft_error_set(
                    err, WEFT_E_USER,
                    "device_map assigns to rank %d segment %s and, after others of rank %d, %s: schedule = 1f1b needs "
                    "contiguous segments for each rank. Fix: set schedule to gpipe or naive",
                    (int)owners[s], weft_job_segment(job, t)->name, (int)owners[s - 1], weft_job_segment(job, s)->name);
    return WEFT_OK;
}

static weft_status make_map(const weft_host *host, const mp_config *keys, const weft_strategy_job *job, int32_t *owners,
                            weft_error *err) {
    weft_status status = WEFT_OK;
    if (strcmp(keys->device_map, "auto") == 0) return mp_map_balanced(host, keys, job, owners, err);
    if (strcmp(keys->device_map, "sequential") == 0) mp_map_sequential(job, owners);
    else status = mp_map_read(host, keys, job, owners, err);
    return status == WEFT_OK ? check_stages(keys, job, owners, err) : status;
}

static weft_status mp_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                            weft_placement *units, int32_t *owners, weft_error *err) {
    const weft_status status = make_map(host, (const mp_config *)config, job, owners, err);
    int32_t u, s, i;
    for (u = 0; u < job->n_units && status == WEFT_OK; u++) {
        weft_placement *placement = weft_placement_at(job, units, u);
        placement->parameters = placement->gradients = placement->optimizer = WEFT_OWNED;
        placement->owner = 0; /* for units that no segment reads */
    }
    for (s = job->n_segments - 1; s >= 0 && status == WEFT_OK; s--)
        for (i = 0; i < weft_job_segment(job, s)->n_units; i++)
            weft_placement_at(job, units, weft_job_segment(job, s)->units[i])->owner = owners[s];
    return status;
}

static const weft_strategy_plugin mp_table = {(uint32_t)sizeof(weft_strategy_plugin),
                                              WEFT_CAPABILITY_REDUCE | WEFT_CAPABILITY_REDUCE_DTYPE, mp_replicas,
                                              mp_place, mp_compile};

WEFT_PLUGIN(strategy, 1, "mp", "0.1.0", "One replica, its segments spread over the ranks; pipelines.", mp_config, NULL,
            mp_table)
