/* host/program/check/check.h: shared state of the checker.
 *
 *     check.c           the driver, the fields of each instruction, and the order of messages without tags
 *     check_rank.c      one rank's instructions in order: segments, norm, update; the order of gradient sums
 *     check_exchange.c  one rank's exchanges
 *     check_match.c     matches the exchanges of all ranks and simulates that all ranks finish
 *
 * check_rank.c and check_exchange.c process one rank at a time. They record by (segment, micro-batch) and by (unit,
 * micro-batch), not by rank. The check therefore takes time linear in the number of instructions. */
#ifndef WEFT_HOST_PROGRAM_CHECK_CHECK_H
#define WEFT_HOST_PROGRAM_CHECK_CHECK_H

#include "program/job.h"

/* The instruction that did something; rank -1: not done yet. */
typedef struct weft_check_place {
    int32_t rank, instruction;
} weft_check_place;

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
    int32_t readers;             /* BACKWARDs of this rank that read it, per micro-batch */
    int32_t gathered, gathering; /* the GATHER of the live copy; the GATHER in flight */
    int32_t summing;             /* the REDUCE or the GATHER of the sum in flight */
    int32_t second;              /* the second hop */
    int32_t finished;            /* the GATHER of the sum */
    int32_t refreshed;
    int32_t reached, reduced; /* micro-batch of the latest BACKWARD and of the latest first hop; -1: none */
    int32_t terms;            /* number of first hops */
    int32_t parts;            /* parts of micro-batch gradients sent to the owner */
} weft_check_use;

typedef struct weft_checker {
    const weft_program *const *programs;
    const weft_job_spec *job;
    weft_error *err;
    int32_t refused_rank, refused_instruction; /* by weft_check_refuse_at; -1: not yet */
    int32_t world, micro_batches;              /* R * A */
    /* for all ranks */
    weft_check_place *forward;     /* [n_segments][micro-batches] */
    int32_t *recompute, *backward; /* [n_segments][micro-batches] instructions of the rank of `forward`, -1: none */
    /* [n_units][micro-batches] BACKWARDs of the unit so far, on its owner and on its borrower */
    int32_t *begun[2];
    weft_check_term *terms;   /* [n_units][micro-batches] */
    int32_t *sent, *received; /* [transfers] instructions, -1: none; NULL without owners */
    uint8_t *arrived;         /* [transfers] true if the RECV has ended */
    weft_check_unit *units;   /* [n_units] */
    /* of the current rank */
    const weft_program *program;
    int32_t rank, at;
    int32_t count, norm, step; /* instructions; -1: not yet */
    int32_t taken;             /* number of its micro-batches so far */
    int32_t due;               /* FORWARDs and BACKWARDs of those micro-batches that are still missing */
    weft_check_use *uses;      /* [n_units] */
    uint8_t *waited;           /* [most instructions] */
} weft_checker;

static inline const char *weft_check_segment_name(const weft_checker *check, int32_t segment) {
    return check->job->view.segments[segment].name;
}

static inline const char *weft_check_unit_name(const weft_checker *check, int32_t unit) {
    return check->job->view.units[unit].name;
}

static inline size_t weft_check_pair(const weft_checker *check, int32_t row, int32_t micro_batch) {
    return (size_t)row * (size_t)check->micro_batches + (size_t)micro_batch;
}

/* Returns the index of the data of a SEND or RECV among all transfers. */
static inline size_t weft_check_transfer(const weft_checker *check, const weft_instruction *instruction) {
    const int32_t n = check->job->view.n_segments;
    if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT)
        return weft_check_pair(check, 2 * n + instruction->unit, instruction->micro_batch);
    return weft_check_pair(check,
                           instruction->what == WEFT_PAYLOAD_CARRY ? instruction->segment : n + instruction->segment,
                           instruction->micro_batch);
}

static inline bool weft_check_trains(const weft_checker *check) {
    return check->job->view.mode == WEFT_MODE_TRAIN;
}

/* True if the current rank has a part of the unit's finished sum. */
static inline bool weft_check_sums(const weft_checker *check, int32_t unit) {
    const weft_check_unit *facts = &check->units[unit];
    return facts->trains && (facts->owner < 0 || facts->owner == check->rank);
}

/* Fails with "rank 1, instruction 7, REDUCE layers.0 all micro-batch 2: ...". */
weft_status weft_check_refuse_at(weft_checker *check, int32_t rank, int32_t instruction, const char *format, ...)
    WEFT_PRINTF(4, 5);
#define weft_check_refuse(check, ...) weft_check_refuse_at(check, (check)->rank, (check)->at, __VA_ARGS__)

/* Records the current instruction in *done; fails if *done has one already. */
weft_status weft_check_once(weft_checker *check, int32_t *done);

weft_status weft_check_fields(weft_checker *check, const weft_instruction *instruction);
/* Checks one rank's program. */
weft_status weft_check_rank(weft_checker *check, int32_t rank);
/* Checks an exchange of the current rank. */
weft_status weft_check_exchange(weft_checker *check, const weft_instruction *instruction);
/* Checks that this rank has the finished sum of each trained unit that it needs. */
weft_status weft_check_sums_complete(weft_checker *check);
/* Checks at the end of a rank's program that its exchanges are complete. */
weft_status weft_check_exchanges_closed(weft_checker *check);

weft_status weft_check_matches(weft_checker *check);

void weft_check_sums_order(weft_checker *check, weft_coverage *out);

#endif
