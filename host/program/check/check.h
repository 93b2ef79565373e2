/* host/program/check/check.h: shared state of the checker.
 *
 *     check.c       the driver, the fields of each instruction, a simulation of all ranks, message order without tags,
 *                   order of gradient sums
 *     check_rank.c  one rank's instructions in order
 *
 * check_rank.c processes one rank at a time and records by (segment, micro-batch) and (unit, micro-batch), not by rank.
 * The check therefore takes time linear in the number of instructions, and in ranks times micro-batches. */
#ifndef WEFT_HOST_PROGRAM_CHECK_CHECK_H
#define WEFT_HOST_PROGRAM_CHECK_CHECK_H

#include "program/job.h"

/* The instruction that performed an operation; rank -1: not yet. */
typedef struct weft_check_place {
    int32_t rank, instruction;
} weft_check_place;

/* The instructions of a segment and micro-batch; -1: not yet. `recompute`, `backward`: on the rank of `forward`. */
typedef struct weft_check_run {
    weft_check_place forward;
    int32_t recompute, backward;
} weft_check_run;

/* The instructions of a transfer between ranks; -1: not yet. */
typedef struct weft_check_transfer {
    int32_t sent, received;
    int32_t arrived; /* the RECV that has ended */
} weft_check_transfer;

/* The REDUCE that added a micro-batch's gradient to the sum of its unit. */
typedef struct weft_check_term {
    weft_check_place at;
    int32_t round; /* number of the first hop among those of its rank and unit */
} weft_check_term;

/* State of a unit, for all ranks. */
typedef struct weft_check_unit {
    bool trains;
    /* with owners: the rank that sums it, and the rank that sends part of each micro-batch gradient; else -1 */
    int32_t owner, borrower;
    int32_t scope;          /* of its first hops; 0: not known yet */
    weft_check_place first; /* the first REDUCE found */
} weft_check_unit;

/* State of a unit on the current rank: instructions, or -1. */
typedef struct weft_check_use {
    int32_t gathered, gathering; /* the GATHER of the live copy; the GATHER in flight */
    int32_t summing;             /* the REDUCE or the GATHER of the sum in flight */
    int32_t second, finished;    /* the second hop; the GATHER of the sum */
    int32_t refreshed;
    int32_t reached, reduced; /* micro-batch of the latest BACKWARD and of the latest first hop */
    int32_t readers;          /* number of BACKWARDs of this rank that read it, per micro-batch */
    int32_t terms;            /* number of first hops */
    int32_t parts;            /* number of parts of micro-batch gradients sent to the owner */
} weft_check_use;

typedef struct weft_checker {
    const weft_program *const *programs;
    const weft_job_spec *job;
    weft_error *err;
    weft_coverage *out;           /* weft_check_refuse_at sets its rank and instruction */
    int32_t world, micro_batches; /* R * A */
    /* for all ranks */
    weft_check_run *runs; /* [n_segments][micro-batches] */
    int32_t *begun[2];    /* [n_units][micro-batches] BACKWARDs of the unit so far, on its owner and on its borrower */
    weft_check_term *terms;         /* [n_units][micro-batches] */
    weft_check_transfer *transfers; /* of carries, of their gradients, of units; [each][micro-batches] */
    weft_check_unit *units;         /* [n_units] */
    /* of the current rank */
    const weft_program *program;
    int32_t rank, at;
    int32_t count, norm, step; /* instructions; -1: not yet */
    int32_t taken;             /* number of its micro-batches so far */
    weft_check_use *uses;      /* [n_units] */
    bool *waited;              /* [n_instructions] */
} weft_checker;

static inline size_t weft_check_pair(const weft_checker *check, int32_t row, int32_t micro_batch) {
    return (size_t)row * (size_t)check->micro_batches + (size_t)micro_batch;
}

static inline weft_check_run *weft_check_run_at(const weft_checker *check, int32_t segment, int32_t micro_batch) {
    return &check->runs[weft_check_pair(check, segment, micro_batch)];
}

/* of: the unit or segment. */
static inline weft_check_transfer *weft_check_transfer_at(const weft_checker *check, int32_t what, int32_t of,
                                                          int32_t micro_batch) {
    const int32_t n = check->job->view.n_segments;
    const int32_t first = what == WEFT_PAYLOAD_CARRY ? 0 : what == WEFT_PAYLOAD_CARRY_GRADIENT ? n : 2 * n;
    return &check->transfers[weft_check_pair(check, first + of, micro_batch)];
}

/* Returns the transfer of a SEND or RECV. */
static inline weft_check_transfer *weft_check_transfer_of(const weft_checker *check, const weft_instruction *i) {
    return weft_check_transfer_at(check, i->what, i->unit >= 0 ? i->unit : i->segment, i->micro_batch);
}

static inline bool weft_check_trains(const weft_checker *check) {
    return check->job->view.mode == WEFT_MODE_TRAIN;
}

/* Fails with "rank 1, instruction 7, REDUCE layers.0 all micro-batch 2: ...". */
weft_status weft_check_refuse_at(weft_checker *check, int32_t rank, int32_t instruction, const char *format, ...)
    WEFT_PRINTF(4, 5);
#define weft_check_refuse(check, ...) weft_check_refuse_at(check, (check)->rank, (check)->at, __VA_ARGS__)

weft_status weft_check_fields(weft_checker *check, const weft_instruction *instruction);
/* Checks one rank's program. */
weft_status weft_check_rank(weft_checker *check, int32_t rank);

#endif
