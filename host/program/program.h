/* host/program/program.h: the step program: the list of instructions that a strategy emits.
 *
 * All decisions are made before step 1. Passes rewrite the instructions and the checker proves them correct. Liveness
 * assigns slots to each instruction and sums their bytes. The executor runs the program, and the trace records the
 * actual lifetimes. This folder is independent of configuration files, model names and operator implementations. Sizes
 * enter through weft_job_spec; work is dispatched through weft_exec_table. */
#ifndef WEFT_HOST_PROGRAM_PROGRAM_H
#define WEFT_HOST_PROGRAM_PROGRAM_H

#include "graph/graph.h"

#include <stdio.h>
#include <weft/strategy.h>

/* Memory categories of the accounting. */
typedef enum weft_memory_category {
    WEFT_MEMORY_PARAMETERS = 0,
    WEFT_MEMORY_GRADIENTS = 1,
    WEFT_MEMORY_OPTIMIZER = 2,
    WEFT_MEMORY_ACTIVATIONS = 3,
    WEFT_MEMORY_WORKSPACE = 4,
    WEFT_MEMORY_DATA = 5, /* the data plugin's tokens and sequences */
    WEFT_N_MEMORY_CATEGORIES = 6
} weft_memory_category;

const char *weft_memory_category_name(int32_t category);
const char *weft_mode_name(int32_t mode); /* "training", "evaluation", "generation" */

/* Sizes on one rank. A size is 0 if the unit's placement does not need the buffer. */
typedef struct weft_unit_sizes {
    int64_t gradient;    /* micro-batch gradient: trainable groups in fp32, padded to complete shards; 0: frozen */
    int64_t gathered;    /* the slot that a GATHER of its parameters fills */
    int64_t exchange[5]; /* by weft_scope: slot of a REDUCE: data to send in another type, and received data */
    int64_t gather_each; /* bytes that a GATHER of its parameters sends to each other rank */
} weft_unit_sizes;

/* All inputs of program compilation except the strategy. */
typedef struct weft_job_spec {
    weft_strategy_job view;           /* the view of the strategy; the caller owns its arrays */
    const weft_graph_sizes *segments; /* [view.n_segments] the maximum over all micro-batch lengths */
    const weft_unit_sizes *units;     /* [view.n_units] */
    int32_t prefetch;                 /* number of GATHERs issued ahead of the required one; 0: no prefetch */
    /* ids, targets, weights, starts, positions of a micro-batch on the device */
    int64_t micro_batch_bytes;
    int64_t step_work; /* scratch of NORM and STEP */
    bool activation_checkpointing;
    bool in_order; /* two ranks receive messages of one sort in send order: no tags needed */
    /* Limits of the strategy: [plugins] compile_seconds for each of its calls and compile_events for each program.
     * 0: no limit. */
    double most_seconds;
    int64_t most_instructions;
} weft_job_spec;

/* A planned buffer. It is live from instruction `first` to instruction `last`, both included. */
typedef enum weft_slot_kind {
    /* micro-batch: from its first FORWARD to the last instruction that runs a segment on it */
    WEFT_SLOT_MICRO_BATCH = 1,
    WEFT_SLOT_CARRY = 2, /* output of segment, micro-batch: from its FORWARD to its last reader in the next segment */
    WEFT_SLOT_TAPE = 3,  /* segment, micro-batch: from FORWARD, or RECOMPUTE if there is one, to BACKWARD */
    WEFT_SLOT_CARRY_GRADIENT = 4, /* gradient of that carry: from the next segment's BACKWARD to its own BACKWARD */
    WEFT_SLOT_MICRO_BATCH_GRADIENT = 5, /* unit, micro-batch: from the first BACKWARD that reads the unit to REDUCE */
    WEFT_SLOT_WORK = 6,                 /* of one instruction */
    WEFT_SLOT_UNIT = 7,    /* unit: its gathered parameters, from GATHER to RELEASE or its last reading segment */
    WEFT_SLOT_EXCHANGE = 8 /* unit: of one REDUCE, from its start to its end */
} weft_slot_kind;

typedef struct weft_slot {
    int32_t kind, category;
    int32_t unit, segment, micro_batch; /* -1 if not applicable */
    int32_t first, last;                /* indices of instructions */
    int64_t bytes;                      /* rounded up to 64 */
    int64_t offset;                     /* in the arena; -1: not placed, or no storage of its own */
    bool elsewhere;                     /* no storage of its own: the micro-batch gradient aliases the gradient sum */
} weft_slot;

/* Slots of one instruction; -1: no slot. A RECOMPUTE follows a FORWARD without a tape, unless it has no BACKWARD. A
 * RECOMPUTE writes only the tape and has no carry_out, because the segment above has already read that carry. */
typedef struct weft_instruction_slots {
    int32_t micro_batch, carry_in, carry_out, tape, work;
    int32_t d_carry_out, d_carry_in; /* gradient from the segment above; gradient for the segment below */
    int32_t unit;                    /* of a GATHER or RELEASE: the gathered parameters */
    int32_t exchange;                /* of a REDUCE */
    const int32_t *gradients;        /* [n_units] micro-batch gradient slot of each unit at this instruction, or -1 */
} weft_instruction_slots;

struct weft_program {
    weft_instruction *instructions;
    int32_t n_instructions, capacity;
    int32_t mode, micro_batches; /* micro-batches: R * A micro-batches of the complete step */
    int32_t rank;
    weft_slot *slots;
    int32_t n_slots;
    weft_instruction_slots *instruction_slots; /* [n_instructions] */
    int32_t *instruction_gradients;            /* storage of instruction_slots[].gradients */
    int32_t *by_last;                          /* [n_slots] slots sorted by their last instruction */
    int64_t arena;                             /* bytes of all slots with storage, placed */
    /* bytes of live slots with storage at peak_instruction; arena - peak is fragmentation */
    int64_t peak;
    int32_t peak_instruction;                   /* the first instruction with peak live bytes */
    int64_t category[WEFT_N_MEMORY_CATEGORIES]; /* bytes of live slots at that instruction */
    bool too_many, out_of_memory;               /* emit failed; compile reports it */
    int64_t most_instructions;                  /* limit of emitted instructions; 0: no limit */
    /* the first instruction that this host does not support; -1: all are supported */
    int32_t foreign_instruction;
};

/* Queries the strategy for the number of replicas, validates it and sets job->view.replicas. */
weft_status weft_job_replicas(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                              const void *strategy_config, weft_error *err);
/* Queries the strategy for the placement of each unit and the owner of each segment. Writes them into the arrays
 * that job->view points to; only the strategy sees these as const. */
weft_status weft_job_place(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                           const void *strategy_config, weft_error *err);
/* Compiles a rank's program of a placed job with the strategy, then runs the passes. The program is unchecked and
 * has no slots yet. The caller destroys *out on success and on failure. After a failure *out holds the instructions
 * emitted so far. */
weft_status weft_program_compile(weft_program **out, const weft_host *host, const weft_strategy_plugin *strategy,
                                 const void *strategy_config, const weft_job_spec *job, int32_t rank, weft_error *err);
void weft_program_destroy(weft_program *program);

/* Result of the check of the gradient sums: true if each is bit-identical to the sum that the job's `reduce`
 * defines. */
typedef struct weft_coverage {
    bool covered;
    char why[512]; /* if not covered: the reason and the nearest setting that is covered */
    /* Failing rank and instruction; -1: no failure, or no single instruction failed. For a missing instruction,
     * refused_instruction is the number of instructions. */
    int32_t refused_rank, refused_instruction;
} weft_coverage;

/* Checks the programs of all ranks, given in rank order, as one optimizer step of this job. In evaluation they must
 * form one micro-batch per replica, in generation one micro-batch. Running them yields the numbers that the job
 * defines, for any sizes, values and speeds. All ranks finish even with no message buffering. err names rank,
 * instruction, unit or segment, micro-batch, and the expected state.
 *
 * Checked for a training step:
 * - Each (segment, micro-batch) has one FORWARD over all ranks, on a rank that owns the segment. The carry of the
 *   segment below is available there, from its own FORWARD or a completed RECV. All units that it reads are live:
 *   complete, or gathered since STEP and not released.
 * - Each segment with a BACKWARD has one per micro-batch, on the rank of its FORWARD, after COUNT. The gradient from
 *   above is available there. At most one RECOMPUTE lies between the two; there is no RECOMPUTE if checkpointing is
 *   off.
 * - BACKWARDs of a rank that read a trainable unit run in micro-batch order.
 * - A REDUCE runs after every BACKWARD that reads the unit for that micro-batch, on this rank or on a rank whose part
 *   has been received. Each micro-batch is in the finished sum of each trainable unit exactly once. It is added in the
 *   defined order (otherwise the sums are not covered), at the location required by the placement. Frozen units have no
 *   sum.
 * - No instruction touches data that an instruction of another queue reads or writes before the WAIT of that
 *   instruction. Each such instruction has one WAIT.
 * - Collectives match within their groups, and SENDs match RECVs pairwise. All ranks finish in a simulation where an
 *   exchange ends only after all its ranks have started it.
 * - NORM runs once, after all sums; STEP runs once, after NORM. After STEP only refreshes of stale copies follow. At
 *   the end all copies are fresh and gathered copies are released.
 * - No instruction is missing or duplicated, and unused fields of each instruction have their empty values.
 *
 * For evaluation and generation: only FORWARDs and the transfers of parameters and carries that they require. */
weft_status weft_programs_check(weft_coverage *out, const weft_program *const *programs, const weft_job_spec *job,
                                weft_error *err);

/* Assigns slots (by liveness) and arena offsets to a rank's checked program, once. After a failure it may only be
 * destroyed. */
weft_status weft_program_place(weft_program *program, const weft_job_spec *job, weft_error *err);

const char *weft_instruction_kind_name(int32_t kind);
const char *weft_what_name(int32_t what);
const char *weft_scope_name(int32_t scope);
/* Writes "BACKWARD layers.3.mlp micro-batch 2" into text. If job is NULL, segments and units are numbered. */
void weft_instruction_describe(char *text, size_t size, const weft_instruction *instruction, const weft_job_spec *job);

#endif
