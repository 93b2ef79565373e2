/* weft/strategy.h: who holds what, in which order (strategy/1).
 *
 * A strategy is a pure compiler, asked three times: how many data replicas, where each unit lies, and which events one
 * rank runs for one optimizer step (or one leaf per replica of evaluation, or of generation). It sees sizes and names,
 * never buffers; the answer is data, which the host checks for all ranks together, prices, prints, rewrites (activation
 * checkpointing, hoisted gathers), runs and traces. weft/emit.h has what most strategies want to say, in a line each.
 *
 * Order. The list of a rank is the order in which the rank starts its events. An event of queue 0 has ended when the
 * next one starts. An event of another queue runs beside what follows it, and one WAIT, later in the list, ends it;
 * only GATHER, REDUCE, SEND, RECV and REFRESH may. It sees what has ended before it starts; what it writes is there
 * once it has ended, and what it reads must stay as it is until then. Events of one queue of a rank end in order. A
 * SEND is never of queue 0: nothing is promised to be buffered, so it may end only when its RECV has started.
 *
 * Matches. GATHER, REDUCE, REFRESH and NORM are collective: all ranks of their group start the same ones (by kind,
 * unit, `what` and scope) in the same order, whatever their queues; two groups of the same ranks are one. COUNT needs
 * nobody. A SEND and a RECV match by their two ranks, `what`, unit or segment, and leaf. All ranks must get to the end
 * where every exchange ends only when all of its ranks have started it.
 *
 *     NORM                 all ranks
 *     GATHER PARAMETERS    the shard group, of a unit whose parameters are SHARDED
 *     REDUCE               by scope, below; where R = 1, ALL is this rank alone
 *     GATHER SUM           all replicas, of gradients that are REPLICATED; the ranks of one place in all shard groups,
 *                          of those that are SHARDED
 *     REFRESH              the shard group, where parameters are REPLICATED and the optimizer is SHARDED; the owner and
 *                          the other rank, where parameters are OWNED and a segment of another rank reads them
 *
 * A REFRESH, a GATHER SUM or a second hop of one rank alone changes nothing and may be left out.
 *
 * Leaves. The optimizer step has n = R * A leaves, numbered in the order of the sum that `reduce` defines; a replica
 * runs A of them, and the strategy says which by the leaves of its events (weft_job_leaf has the numberings for which
 * the sums are exact). Every leaf goes through every segment exactly once on all ranks together; the BACKWARDs of a
 * rank that read a unit, and its REDUCEs, go in the order of their leaves.
 *
 * A unit's sum. The gradient of a unit for a leaf is formed from zero by the BACKWARDs that read the unit, in a slot of
 * its own. REDUCE makes it a term of the sum, in one hop or two:
 *
 *     scope RANK    the leaf's gradient joins what this rank holds of the sum; nothing travels
 *     scope ALL     the replicas exchange: each owner of a piece gets every replica's part of it and adds them in order
 *     scope NODE    the same among the ranks of a shard group
 *     scope ACROSS  among the ranks of one place in all shard groups
 *
 * A part of a leaf's gradient that another rank's BACKWARD made (a tied parameter) is received before the first
 * BACKWARD here that reads the unit for that leaf, which adds to it; there may be one such part.
 *
 * A first hop names its leaf; all of a unit's have one scope, on all ranks. A second hop (ALL after RANK, ACROSS after
 * NODE) has leaf -1 and takes all that the first has gathered: it comes once, after the rank's last leaf. GATHER of
 * what = SUM then brings the finished sum to all who hold it: every rank where gradients are replicated, the shard's
 * holders after an exchange between ALL under a smaller shard group. An exchange of a unit's sum has ended before the
 * next one starts.
 *
 * The events of a training step under DDP with three replicas and two leaves each, on rank 1, of one unit `u` and one
 * segment `s`:
 *
 *     COUNT
 *     FORWARD s 1   BACKWARD s 1   REDUCE u 1 ALL
 *     FORWARD s 4   BACKWARD s 4   REDUCE u 4 ALL   GATHER u SUM
 *     NORM
 *     STEP
 *
 * Keys of [strategy] that the host acts on are its own: `reduce`, `reduce_dtype` and `prefetch`. A strategy offers them
 * by flags of its table, and declares none of that name; the first two stand in the job. One that it does not offer
 * stays at its default.
 *
 * Later users this serves: CUDA streams (queues), NCCL (collectives matched by order), pipelines of several schedules
 * (SEND, RECV), loss scaling (STEP may be skipped, alike on all ranks), LoRA (frozen units have no REDUCE).
 */
#ifndef WEFT_STRATEGY_H
#define WEFT_STRATEGY_H

#include <weft/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_event_kind {
    WEFT_EVENT_COUNT = 1,     /* the global number of targets of non-zero weight */
    WEFT_EVENT_GATHER = 2,    /* unit, what: PARAMETERS: all of them present here; SUM: the finished gradient */
    WEFT_EVENT_RELEASE = 3,   /* unit: the gathered copy of its parameters may go */
    WEFT_EVENT_FORWARD = 4,   /* segment, leaf */
    WEFT_EVENT_RECOMPUTE = 5, /* segment, leaf; made by the host's pass only */
    WEFT_EVENT_BACKWARD = 6,  /* segment, leaf */
    WEFT_EVENT_REDUCE = 7,    /* unit, leaf, scope */
    WEFT_EVENT_SEND = 8,      /* what, leaf, peer, and segment (whose carry comes out) or unit */
    WEFT_EVENT_RECV = 9,      /* the same */
    WEFT_EVENT_WAIT = 10,     /* waits: the event that it ends */
    WEFT_EVENT_NORM = 11,     /* the global gradient norm */
    WEFT_EVENT_STEP = 12,     /* the optimizer, on what this rank owns */
    WEFT_EVENT_REFRESH = 13   /* unit: after STEP, copies that it left stale made whole again */
} weft_event_kind;

/* What travels. */
typedef enum weft_what {
    WEFT_WHAT_PARAMETERS = 1,     /* GATHER */
    WEFT_WHAT_SUM = 2,            /* GATHER */
    WEFT_WHAT_CARRY = 3,          /* SEND, RECV: what came out of the segment */
    WEFT_WHAT_CARRY_GRADIENT = 4, /* SEND, RECV: its gradient, on the way down */
    WEFT_WHAT_LEAF_GRADIENT = 5   /* SEND, RECV: this rank's part of a unit's leaf gradient, to the unit's owner */
} weft_what;

typedef enum weft_scope {
    WEFT_SCOPE_RANK = 1,
    WEFT_SCOPE_ALL = 2,
    WEFT_SCOPE_NODE = 3,
    WEFT_SCOPE_ACROSS = 4
} weft_scope;

typedef struct weft_event {
    uint32_t struct_size;
    uint32_t flags;
    int32_t kind; /* weft_event_kind */
    int32_t unit; /* -1 where it has no meaning, as for all below but queue */
    int32_t segment;
    int32_t leaf;     /* 0 .. R * A - 1, of this optimizer step */
    int32_t peer;     /* world rank */
    int32_t queue;    /* 0: ends in its place; 1 to 3: runs until its WAIT */
    int32_t waits;    /* index of the event that a WAIT ends */
    int32_t what;     /* weft_what */
    int32_t scope;    /* weft_scope */
    int32_t reserved; /* 0 */
} weft_event;

typedef enum weft_holding { WEFT_REPLICATED = 0, WEFT_SHARDED = 1, WEFT_OWNED = 2 } weft_holding;

/* Where what a rank keeps of a unit lies between its uses. Whatever it is, GATHER brings the parameters to the device
 * before a segment reads them, RELEASE lets that copy go, and STEP updates what lies where the optimizer's state does.
 * SDK 1.0 serves WEFT_TIER_DEVICE alone and refuses the others by name. */
typedef enum weft_tier {
    WEFT_TIER_DEVICE = 0, /* the device's memory */
    WEFT_TIER_HOST = 1,   /* this process's memory, from where the device can copy */
    WEFT_TIER_FILE = 2    /* a file of this machine */
} weft_tier;

typedef struct weft_placement {
    uint32_t struct_size;
    uint32_t flags;
    /* weft_holding. A rank holds parameters and sum of all that it updates: where the optimizer is REPLICATED so are
     * the others. Where segments have owners all three are OWNED, elsewhere none is (but in a world of one). */
    int32_t parameters, gradients, optimizer;
    int32_t owner; /* world rank of WEFT_OWNED; else -1 */
    int32_t group; /* of all that is WEFT_SHARDED: ranks that follow one another; it divides the world */
    int32_t tier;  /* weft_tier of all that the rank keeps of the unit; a zeroed placement says: the device */
} weft_placement;

#define WEFT_UNIT_IS_ROOT 1u /* what the wrap policy has left over */

typedef struct weft_unit_view {
    uint32_t struct_size;
    uint32_t flags;          /* WEFT_UNIT_IS_ROOT */
    const char *name;        /* its module's path; "root" for what is left */
    int64_t parameter_bytes; /* as held */
    int64_t gradient_bytes;  /* of its trainable groups; 0: frozen */
    int64_t state_bytes;
    int64_t gather_bytes; /* of its parameters in the type that is computed in */
} weft_unit_view;

#define WEFT_SEGMENT_TRAINS_TIED 1u /* some of tied_bytes is trained */

typedef struct weft_segment_view {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_SEGMENT_TRAINS_TIED */
    const char *name;
    const int32_t *units; /* that it reads, ascending */
    int32_t n_units;
    int32_t backward; /* 1: it has a BACKWARD (something at or below it is trained) */
    int32_t owner;    /* set when compile is called: the rank that runs it, or -1: each replica's own */
    int32_t reserved;
    int64_t carry_bytes, tape_bytes; /* per leaf of the largest shape; a tape that is made again counts 0 */
    int64_t parameter_bytes;         /* these three: of storage whose first user it is */
    int64_t gradient_bytes;
    int64_t state_bytes;
    int64_t tied_bytes; /* parameters of storage whose first user is a segment before it */
} weft_segment_view;

/* How the leaf gradients of a unit are added up (docs/numbers.md). */
typedef enum weft_reduce { WEFT_REDUCE_ORDERED = 0, WEFT_REDUCE_TREE = 1, WEFT_REDUCE_FAST = 2 } weft_reduce;

typedef struct weft_strategy_job {
    uint32_t struct_size;
    uint32_t flags;
    int32_t mode; /* weft_mode */
    int32_t world, nodes, ranks_per_node;
    int32_t replicas; /* R; 0 while `replicas` is asked */
    int32_t leaves;   /* A: per replica and optimizer step; 1 in evaluation and generation; 0 while R is not known */
    int32_t n_units, n_segments;
    const weft_unit_view *units;
    const weft_segment_view *segments;
    const weft_placement *placements; /* [n_units]; set when compile is called */
    uint32_t unit_stride, segment_stride;
    int32_t reduce;            /* weft_reduce */
    int32_t reduce_dtype;      /* weft_dtype of a leaf's gradient on its way */
    uint32_t placement_stride; /* of placements, and of the array that `place` fills */
    uint32_t reserved;
} weft_strategy_job;

typedef struct weft_program weft_program; /* the host's */

typedef struct weft_emitter {
    uint32_t struct_size;
    uint32_t flags;
    weft_program *program;
    /* Appends a copy of the event and returns its index; < 0: no memory. [main] */
    int32_t (*emit)(weft_program *program, const weft_event *event);
} weft_emitter;

/* What a strategy offers. */
#define WEFT_OFFERS_REDUCE       1u /* job->reduce may be any; leaves are numbered as weft_job_leaf does */
#define WEFT_OFFERS_REDUCE_DTYPE 2u /* a leaf's gradient may travel in another type */
#define WEFT_OFFERS_PREFETCH     4u /* GATHERs of parameters in their place, which the host may start earlier */

typedef struct weft_strategy_plugin {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_OFFERS_... */
    /* All three are pure: the same job gives the same answer on every rank. */

    /* R: how many replicas of the model take leaves: each rank is one, or R is 1 and segments have owners.
     * [main] [required] */
    weft_status (*replicas)(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                            weft_error *err);
    /* Fills a placement per unit (the host has set struct_size, owner -1 and the rest 0; weft_placement_at of
     * weft/emit.h finds that of a unit), and, where a rank runs only some of the segments, the owner of each in
     * `owners` (-1 before). Where segments that read a unit have different
     * owners, the host splits the unit between them and asks again; a tied parameter stays with its first user. [main]
     * [required] */
    weft_status (*place)(const weft_host *host, const void *config, const weft_strategy_job *job, weft_placement *units,
                         int32_t *owners, weft_error *err);
    /* Emits the rank's events. [main] [required] */
    weft_status (*compile)(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                           const weft_emitter *emitter, weft_error *err);
} weft_strategy_plugin;

#ifdef __cplusplus
}
#endif
#endif
