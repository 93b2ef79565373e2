/* weft/strategy.h: parallelism strategies: placement of units on ranks and step programs (strategy/1).
 *
 * A strategy is a pure compiler with three functions: the number of data-parallel replicas, the placement of each unit,
 * and the step program of one rank. A program is a list of instructions for one optimizer step, or for one micro-batch
 * per replica in evaluation or generation. (Identifiers call a micro-batch `micro_batch` and an instruction
 * `instruction`.) A strategy sees sizes and names, never buffers. Its output is data, which the host validates for all
 * ranks together, estimates, prints, rewrites (activation checkpointing, hoisted gathers), runs and traces. weft/emit.h
 * has one-line helpers for most strategies.
 *
 * Order. A rank starts its instructions in list order. An instruction of queue 0 ends before the next one starts. An
 * instruction of another queue runs concurrently with the following ones until one WAIT, later in the list, ends it.
 * Only GATHER, REDUCE, SEND, RECV and REFRESH may use another queue. An instruction sees the results of all that ended
 * before it starts. Its results are visible after its end, and its inputs must not change until then. Instructions of
 * one queue of a rank end in order. A SEND never uses queue 0: buffering is not guaranteed, so it may end only after
 * its RECV has started.
 *
 * Matching. GATHER, REDUCE, REFRESH and NORM are collective: all ranks of their group start the same ones (by kind,
 * unit, `what` and scope) in the same order, regardless of queues. Two groups with the same ranks are one group. COUNT
 * needs no other rank. A SEND and a RECV match by their two ranks, `what`, unit or segment, and micro-batch. Programs
 * must be free of deadlock even if every exchange ends only after all its ranks have started it.
 *
 *     NORM                 all ranks
 *     GATHER PARAMETERS    the shard group, of a unit with SHARDED parameters
 *     REDUCE               by scope, see below; with R = 1, ALL is only this rank
 *     GATHER SUM           REPLICATED gradients: all replicas; SHARDED gradients: the ranks with the same index in all
 *                          shard groups
 *     REFRESH              the shard group, if parameters are REPLICATED and the optimizer is SHARDED; the owner and
 *                          the other rank, if parameters are OWNED and a segment of another rank reads them
 *
 * A REFRESH, a GATHER SUM or a second hop within a single rank has no effect and may be omitted.
 *
 * Micro-batches. The optimizer step has n = R * A micro-batches, numbered in the order of the sum that `reduce`
 * defines. A replica runs A of them. The strategy selects them by the `micro_batch` of its instructions
 * (weft_job_micro_batch has the numberings that produce exact sums). Every micro-batch passes through every segment
 * exactly once over all ranks. The BACKWARDs of a rank that read a unit, and the unit's REDUCEs, follow the order of
 * their micro-batches.
 *
 * Gradient sum of a unit. The BACKWARDs that read the unit accumulate its gradient for a micro-batch from zero, in a
 * separate slot. REDUCE adds it to the sum, in one or two hops:
 *
 *     scope RANK    adds the micro-batch's gradient to this rank's sum, without communication
 *     scope ALL     among the replicas: each owner of a shard receives every replica's part of it and adds the parts
 *                   in order
 *     scope NODE    the same among the ranks of a shard group
 *     scope ACROSS  the same among the ranks with the same index in all shard groups
 *
 * For a tied parameter, another rank's BACKWARD may compute a part of a micro-batch's gradient. This rank receives that
 * part before its own first BACKWARD that reads the unit for that micro-batch, which adds to it. At most one such part
 * is allowed.
 *
 * A first hop names its micro-batch. All first hops of a unit have one scope, on all ranks. A second hop (ALL after
 * RANK, ACROSS after NODE) has micro-batch -1 and reduces all that the first hops accumulated; it occurs once, after
 * the rank's last micro-batch. GATHER with what = SUM then distributes the finished sum to its holders: every rank if
 * gradients are replicated, or the holders of the shard after an exchange of scope ALL with a smaller shard group. An
 * exchange of a unit's sum must end before the next one starts.
 *
 * The training step of DDP with three replicas and two micro-batches each, on rank 1, for one unit `u` and one segment
 * `s`:
 *
 *     COUNT
 *     FORWARD s 1   BACKWARD s 1   REDUCE u 1 ALL
 *     FORWARD s 4   BACKWARD s 4   REDUCE u 4 ALL   GATHER u SUM
 *     NORM
 *     STEP
 *
 * The host defines the [strategy] keys `reduce`, `reduce_dtype` and `prefetch`. A strategy declares support by flags of
 * its table, and declares no keys of these names. The first two are passed in the job. An unsupported key keeps its
 * default.
 *
 * Intended users: CUDA streams (queues), NCCL (collectives matched by order), pipelines of several schedules (SEND,
 * RECV), loss scaling (STEP may be skipped, identically on all ranks), LoRA (frozen units have no REDUCE).
 */
#ifndef WEFT_STRATEGY_H
#define WEFT_STRATEGY_H

#include <weft/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_instruction_kind {
    WEFT_INSTRUCTION_COUNT = 1,     /* the global number of target tokens with non-zero weight */
    WEFT_INSTRUCTION_GATHER = 2,    /* unit, what: PARAMETERS: gathers all of them; SUM: the finished gradient */
    WEFT_INSTRUCTION_RELEASE = 3,   /* unit: frees the gathered copy of its parameters */
    WEFT_INSTRUCTION_FORWARD = 4,   /* segment, micro-batch */
    WEFT_INSTRUCTION_RECOMPUTE = 5, /* segment, micro-batch; inserted only by the host's checkpointing pass */
    WEFT_INSTRUCTION_BACKWARD = 6,  /* segment, micro-batch */
    WEFT_INSTRUCTION_REDUCE = 7,    /* unit, micro-batch, scope */
    WEFT_INSTRUCTION_SEND = 8,      /* what, micro-batch, peer, and segment (the producer of the carry) or unit */
    WEFT_INSTRUCTION_RECV = 9,      /* the same */
    WEFT_INSTRUCTION_WAIT = 10,     /* waits: index of the instruction to end */
    WEFT_INSTRUCTION_NORM = 11,     /* the global gradient norm */
    WEFT_INSTRUCTION_STEP = 12,     /* optimizer update of the parameters that this rank owns */
    WEFT_INSTRUCTION_REFRESH = 13   /* unit: after STEP, updates stale copies of the parameters */
} weft_instruction_kind;

/* Data of a GATHER, SEND or RECV. */
typedef enum weft_payload {
    WEFT_PAYLOAD_PARAMETERS = 1,     /* GATHER */
    WEFT_PAYLOAD_SUM = 2,            /* GATHER */
    WEFT_PAYLOAD_CARRY = 3,          /* SEND, RECV: output of the segment */
    WEFT_PAYLOAD_CARRY_GRADIENT = 4, /* SEND, RECV: gradient of that output, in the backward */
    /* SEND, RECV: this rank's part of a unit's micro-batch gradient, to its owner */
    WEFT_PAYLOAD_MICRO_BATCH_GRADIENT = 5
} weft_payload;

typedef enum weft_scope {
    WEFT_SCOPE_RANK = 1,
    WEFT_SCOPE_ALL = 2,
    WEFT_SCOPE_NODE = 3,
    WEFT_SCOPE_ACROSS = 4
} weft_scope;

typedef struct weft_instruction {
    uint32_t struct_size;
    uint32_t flags;
    int32_t kind; /* weft_instruction_kind */
    int32_t unit; /* -1 if not applicable, like all fields below except queue */
    int32_t segment;
    int32_t micro_batch; /* micro-batch of this optimizer step, 0 .. R * A - 1 */
    int32_t peer;        /* world rank */
    int32_t queue;       /* 0: ends before the next instruction; 1 to 3: runs until its WAIT */
    int32_t waits;       /* index of the instruction that a WAIT ends */
    int32_t what;        /* weft_payload */
    int32_t scope;       /* weft_scope */
    int32_t reserved;    /* 0 */
} weft_instruction;

typedef enum weft_holding { WEFT_REPLICATED = 0, WEFT_SHARDED = 1, WEFT_OWNED = 2 } weft_holding;

/* Storage tier of a unit's data between uses. On every tier, GATHER copies the parameters to the device before a
 * segment reads them, and RELEASE frees that copy. STEP updates the parameters on the tier of the optimizer state. SDK
 * 1.0 supports only WEFT_TIER_DEVICE and rejects the others by name. */
typedef enum weft_tier {
    WEFT_TIER_DEVICE = 0, /* device memory */
    WEFT_TIER_HOST = 1,   /* host memory that the device can copy from */
    WEFT_TIER_FILE = 2    /* a file on this machine */
} weft_tier;

typedef struct weft_placement {
    uint32_t struct_size;
    uint32_t flags;
    /* weft_holding. A rank holds the parameters and sum of all that it updates, so a REPLICATED optimizer requires
     * REPLICATED parameters and gradients. If segments have owners, all three are OWNED. Otherwise OWNED is allowed
     * only in a world of size 1. */
    int32_t parameters, gradients, optimizer;
    int32_t owner; /* world rank of WEFT_OWNED; else -1 */
    int32_t group; /* size of the shard group of SHARDED data: consecutive ranks; divides the world */
    int32_t tier;  /* weft_tier of the rank's data of the unit; 0 is the device */
} weft_placement;

#define WEFT_UNIT_IS_ROOT 1u /* the unit of parameters that the wrap policy left */

typedef struct weft_unit_view {
    uint32_t struct_size;
    uint32_t flags;          /* WEFT_UNIT_IS_ROOT */
    const char *name;        /* path of its module; "root" for the root unit */
    int64_t parameter_bytes; /* in the storage type */
    int64_t gradient_bytes;  /* of its trainable groups; 0: frozen */
    int64_t state_bytes;
    int64_t gather_bytes; /* of its parameters in the compute type */
} weft_unit_view;

#define WEFT_SEGMENT_TRAINS_TIED 1u /* some of tied_bytes is trained */

typedef struct weft_segment_view {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_SEGMENT_TRAINS_TIED */
    const char *name;
    const int32_t *units; /* units that it reads, ascending */
    int32_t n_units;
    int32_t backward; /* 1: it has a BACKWARD (it or an earlier segment has trained parameters) */
    int32_t owner;    /* set for compile: the rank that runs it, or -1: every replica */
    int32_t reserved;
    int64_t carry_bytes, tape_bytes; /* per micro-batch of the largest shape; a recomputed tape counts 0 */
    int64_t parameter_bytes;         /* these three: storage whose first user is this segment */
    int64_t gradient_bytes;
    int64_t state_bytes;
    int64_t tied_bytes; /* parameters of storage whose first user is an earlier segment */
} weft_segment_view;

/* Order of the sum of a unit's micro-batch gradients (docs/numbers.md). */
typedef enum weft_reduce { WEFT_REDUCE_ORDERED = 0, WEFT_REDUCE_TREE = 1, WEFT_REDUCE_FAST = 2 } weft_reduce;

typedef struct weft_strategy_job {
    uint32_t struct_size;
    uint32_t flags;
    int32_t mode; /* weft_mode */
    int32_t world, nodes, ranks_per_node;
    int32_t replicas;      /* R; 0 in the call of `replicas` */
    int32_t micro_batches; /* A: micro-batches per replica and optimizer step; otherwise 1; 0 while R is unknown */
    int32_t n_units, n_segments;
    const weft_unit_view *units;
    const weft_segment_view *segments;
    const weft_placement *placements; /* [n_units]; set for compile */
    uint32_t unit_stride, segment_stride;
    int32_t reduce;            /* weft_reduce */
    int32_t reduce_dtype;      /* weft_dtype of a micro-batch's gradient in communication */
    uint32_t placement_stride; /* of placements, and of the array that `place` fills */
    uint32_t reserved;
} weft_strategy_job;

typedef struct weft_program weft_program; /* defined by the host */

typedef struct weft_emitter {
    uint32_t struct_size;
    uint32_t flags;
    weft_program *program;
    /* Appends a copy of the instruction and returns its index; < 0: out of memory. [main] */
    int32_t (*emit)(weft_program *program, const weft_instruction *instruction);
} weft_emitter;

/* Capabilities of a strategy. */
/* supports every job->reduce; numbers micro-batches as weft_job_micro_batch does */
#define WEFT_CAPABILITY_REDUCE       1u
#define WEFT_CAPABILITY_REDUCE_DTYPE 2u /* supports job->reduce_dtype for micro-batch gradients */
#define WEFT_CAPABILITY_PREFETCH     4u /* emits GATHERs of parameters that the host may start earlier */

typedef struct weft_strategy_plugin {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_OFFERS_... */
    /* All three are pure: the same job produces the same result on every rank. */

    /* Returns R, the number of replicas that process micro-batches. Either each rank is a replica, or R is 1 and
     * segments have owners. [main] [required] */
    weft_status (*replicas)(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                            weft_error *err);
    /* Fills a placement per unit. The host initializes struct_size, owner -1 and all other fields 0; weft_placement_at
     * of weft/emit.h returns the placement of a unit. If a rank runs only some segments, it also fills the owner of
     * each segment in `owners` (initially -1). If segments of different owners read a unit, the host splits the unit
     * and calls place again; a tied parameter stays with its first user. [main] [required] */
    weft_status (*place)(const weft_host *host, const void *config, const weft_strategy_job *job, weft_placement *units,
                         int32_t *owners, weft_error *err);
    /* Emits the rank's instructions. [main] [required] */
    weft_status (*compile)(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                           const weft_emitter *emitter, weft_error *err);
} weft_strategy_plugin;

#ifdef __cplusplus
}
#endif
#endif
