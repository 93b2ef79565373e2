/* weft/strategy.h: who holds what, in which order (strategy/0: may still change until several ranks have used it).
 *
 * A strategy is a pure compiler, asked three times: how many data replicas, where each unit lies, and which events
 * one rank runs for one optimizer step (or one leaf of evaluation or generation). It sees sizes and names, never
 * buffers; the answer is data, which the host checks for all ranks together, prices, prints, rewrites (activation
 * checkpointing, hoisted gathers), runs and traces.
 *
 * The events of a training step on one device, for two units and A leaves:
 *
 *     COUNT
 *     for each leaf m:  FORWARD s m ... (segments up), BACKWARD s m ... (down), REDUCE u m for each unit once all its
 *                       segments' BACKWARDs are done
 *     NORM
 *     STEP
 */
#ifndef WEFT_STRATEGY_H
#define WEFT_STRATEGY_H

#include <weft/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_event_kind {
    WEFT_EVENT_COUNT = 1,     /* the global number of targets of non-zero weight */
    WEFT_EVENT_GATHER = 2,    /* unit: all its parameters present here */
    WEFT_EVENT_RELEASE = 3,   /* unit: the gathered copy may go */
    WEFT_EVENT_FORWARD = 4,   /* segment, leaf */
    WEFT_EVENT_RECOMPUTE = 5, /* segment, leaf; made by the host's pass only */
    WEFT_EVENT_BACKWARD = 6,  /* segment, leaf */
    WEFT_EVENT_REDUCE = 7,    /* unit, leaf: a term of the sum */
    WEFT_EVENT_SEND = 8,      /* segment (whose carry), leaf, peer */
    WEFT_EVENT_RECV = 9,
    WEFT_EVENT_WAIT = 10, /* event: ends a SEND, RECV, GATHER or REDUCE */
    WEFT_EVENT_NORM = 11,
    WEFT_EVENT_STEP = 12,
    WEFT_EVENT_REFRESH = 13 /* unit: replicated copies made whole after STEP */
} weft_event_kind;

typedef struct weft_event {
    uint32_t struct_size;
    uint32_t flags;
    int32_t kind; /* weft_event_kind */
    int32_t unit; /* -1 where it has no meaning, as for all below */
    int32_t segment;
    int32_t leaf;  /* 0 .. A-1: of this replica and optimizer step */
    int32_t peer;  /* world rank */
    int32_t queue; /* 0: compute; 1: communication; events of a queue run in order */
    int32_t after; /* index of the event that this one waits for; -1: the one before it in its queue */
    int32_t reserved;
} weft_event;

typedef enum weft_holding { WEFT_REPLICATED = 0, WEFT_SHARDED = 1, WEFT_OWNED = 2 } weft_holding;

typedef struct weft_placement {
    uint32_t struct_size;
    uint32_t flags;
    int32_t parameters, gradients, optimizer; /* weft_holding */
    int32_t owner;                            /* world rank of WEFT_OWNED */
} weft_placement;

typedef struct weft_unit_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;        /* its module's path; "root" for what is left */
    int64_t parameter_bytes; /* as held */
    int64_t gradient_bytes;  /* of its trainable groups; 0: frozen */
    int64_t state_bytes;
    weft_placement placement; /* set when compile is called */
} weft_unit_view;

typedef struct weft_segment_view {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;
    const int32_t *units; /* that it reads, ascending */
    int32_t n_units;
    int32_t backward;                /* 1: it has a BACKWARD (something at or below it is trained) */
    int64_t carry_bytes, tape_bytes; /* per leaf of the largest shape */
} weft_segment_view;

typedef struct weft_strategy_job {
    uint32_t struct_size;
    uint32_t flags;
    int32_t mode; /* weft_mode */
    int32_t world, nodes, ranks_per_node;
    int32_t replicas; /* R; 0 while `replicas` is asked */
    int32_t leaves;   /* A: per replica and optimizer step */
    int32_t n_units, n_segments;
    const weft_unit_view *units;
    const weft_segment_view *segments;
    uint32_t unit_stride, segment_stride;
} weft_strategy_job;

typedef struct weft_program weft_program; /* the host's */

typedef struct weft_emitter {
    uint32_t struct_size;
    uint32_t flags;
    weft_program *program;
    /* Appends an event and returns its index. event is copied. [main] */
    int32_t (*emit)(weft_program *program, const weft_event *event);
} weft_emitter;

typedef struct weft_strategy_plugin {
    uint32_t struct_size;
    uint32_t flags;
    /* [main] [required], all three */
    weft_status (*replicas)(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                            weft_error *err);
    weft_status (*place)(const weft_host *host, const void *config, const weft_strategy_job *job, weft_placement *units,
                         weft_error *err);
    weft_status (*compile)(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                           const weft_emitter *emitter, weft_error *err);
} weft_strategy_plugin;

#ifdef __cplusplus
}
#endif
#endif
