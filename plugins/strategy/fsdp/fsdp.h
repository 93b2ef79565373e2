/* fsdp.h: the configuration keys, and the functions shared by fsdp.c and program.c. */
#ifndef WEFT_STRATEGY_FSDP_H
#define WEFT_STRATEGY_FSDP_H

#include <weft/emit.h>

/* clang-format off */
#define FSDP_KEYS(K)                                                                                                   \
    K(ENUM, shard, "full", "optimizer,gradients,full,hybrid,1,2,3", "", WEFT_SAME,                                     \
      "Sharded state: optimizer (1), gradients too (2), parameters too (full, 3), parameters within a group of "       \
      "ranks (hybrid).")                                                                                               \
    K(I64, shard_group, "auto", "[1,inf) | auto", "ranks", WEFT_SAME,                                                  \
      "Ranks that share one copy under shard = hybrid; auto: those of a node.")                                        \
    K(ENUM, reduce_at, "each", "each,last", "", WEFT_SAME,                                                             \
      "When gradients are reduced: at each micro-step, or once per optimizer step.")                                   \
    K(BOOL, reshard_after_forward, "yes", "", "", WEFT_SAME,                                                           \
      "Free gathered parameters after forward; no: keep them until backward.")                                         \
    K(ENUM, root, "sharded", "sharded,replicated", "", WEFT_SAME,                                                      \
      "Placement of the root unit, which has the parameters of no other unit.")
/* clang-format on */
WEFT_KEYS_STRUCT(fsdp_config, FSDP_KEYS)

typedef enum fsdp_shard {
    FSDP_OPTIMIZER,
    FSDP_GRADIENTS,
    FSDP_FULL,
    FSDP_HYBRID,
    FSDP_STAGE_1,
    FSDP_STAGE_2,
    FSDP_STAGE_3
} fsdp_shard;

/* Resolves aliases of shard. */
fsdp_shard fsdp_shard_of(const fsdp_config *keys);
/* Returns the ranks of a shard group: the world, except for hybrid. */
int32_t fsdp_group_of(const fsdp_config *keys, const weft_strategy_job *job);

weft_status fsdp_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                         const weft_emitter *emitter, weft_error *err);

#endif
