/* fsdp: replicas with sharded storage (Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277).
 *
 * A table defines the placements; program.c derives the instructions. Under shard = optimizer the gradient sum is
 * sharded as well, although other implementations call it replicated: no rank reads the other shards. Only the gradient
 * of each micro-batch is complete, for all units together until the backward of the micro-batch ends. */
#include "fsdp.h"

WEFT_KEYS_TABLE(fsdp_config, FSDP_KEYS)

fsdp_shard fsdp_shard_of(const fsdp_config *keys) {
    switch (keys->shard) {
    case FSDP_STAGE_1: return FSDP_OPTIMIZER;
    case FSDP_STAGE_2: return FSDP_GRADIENTS;
    case FSDP_STAGE_3: return FSDP_FULL;
    default: return (fsdp_shard)keys->shard;
    }
}

int32_t fsdp_group_of(const fsdp_config *keys, const weft_strategy_job *job) {
    if (fsdp_shard_of(keys) != FSDP_HYBRID) return job->world;
    return keys->shard_group == WEFT_AUTO_I64 ? job->ranks_per_node : (int32_t)keys->shard_group;
}

static weft_status fsdp_replicas(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                                 weft_error *err) {
    const fsdp_config *keys = (const fsdp_config *)config;
    const int32_t group = fsdp_group_of(keys, job);
    (void)host;
    if (group < 1 || group > job->world || job->world % group != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "shard_group = %d does not divide the %d ranks of this job: each group needs as many "
                              "ranks as the next; choose a divisor of %d",
                              (int)group, (int)job->world, (int)job->world);
    *out = job->world;
    return WEFT_OK;
}

static int replicates(const fsdp_config *keys, const weft_unit_view *unit) {
    const fsdp_shard shard = fsdp_shard_of(keys);
    if (shard == FSDP_OPTIMIZER || shard == FSDP_GRADIENTS) return 1;
    return keys->root == 1 && (unit->flags & WEFT_UNIT_IS_ROOT) != 0;
}

static weft_status fsdp_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                              weft_placement *units, int32_t *owners, weft_error *err) {
    const fsdp_config *keys = (const fsdp_config *)config;
    int32_t u;
    (void)host;
    (void)owners;
    (void)err;
    for (u = 0; u < job->n_units; u++) {
        weft_placement *placement = weft_placement_at(job, units, u);
        placement->parameters = replicates(keys, weft_job_unit(job, u)) ? WEFT_REPLICATED : WEFT_SHARDED;
        placement->gradients = placement->optimizer = WEFT_SHARDED;
        placement->group = fsdp_group_of(keys, job);
    }
    return WEFT_OK;
}

static const weft_strategy_plugin fsdp_table = {(uint32_t)sizeof(weft_strategy_plugin),
                                                WEFT_CAPABILITY_REDUCE | WEFT_CAPABILITY_REDUCE_DTYPE |
                                                    WEFT_CAPABILITY_PREFETCH,
                                                fsdp_replicas, fsdp_place, fsdp_compile};

WEFT_PLUGIN(strategy, 1, "fsdp", "0.1.0", "Replicas share optimizer state, gradients and parameters.", fsdp_config,
            NULL, fsdp_table)
