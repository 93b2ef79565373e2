/* host/program/check/check.h: what the parts of the checker share.
 *
 *     check.c           the driver: storage, what must hold of the programs as a whole, and the words of a refusal
 *     check_fields.c    an instruction is known here, and its fields say something and nothing else
 *     check_rank.c      one rank's instructions in their order: segments, norm and update
 *     check_exchange.c  the same for what travels, as far as the rank itself can show it
 *     check_match.c     which exchanges are one, and that all ranks get to the end
 *     check_order.c     that messages are taken in the order in which they are sent, where no tags tell them apart
 *     check_sum.c       that the sums are the ones that are defined
 *
 * The first three know one rank at a time and leave behind, for all ranks, who ran which segment for which
 * micro-batch and how each micro-batch's gradient joined its sum; both are told by (segment, micro-batch) and (unit,
 * micro-batch), not by rank, so that the proof costs as much as there are instructions. */
#ifndef WEFT_HOST_PROGRAM_CHECK_CHECK_H
#define WEFT_HOST_PROGRAM_CHECK_CHECK_H

#include "program/job.h"

/* Where something was done; rank -1: nowhere yet. */
typedef struct weft_check_place {
    int32_t rank, instruction;
} weft_check_place;

/* How a micro-batch's gradient joined the sum of its unit. */
typedef struct weft_check_term {
    weft_check_place at;
    int32_t round; /* of the first hops of its rank and unit, from 0 */
} weft_check_term;

/* Of a unit, for all ranks. */
typedef struct weft_check_unit {
    bool trains;
    /* where owned: who sums it, and who hands in a part of each micro-batch gradient; else -1 */
    int32_t owner, borrower;
    int32_t scope;          /* of its first hops; 0: none seen yet */
    weft_check_place first; /* the first REDUCE that was seen */
} weft_check_unit;

/* What the rank that is walked has done with a unit: instructions, -1 for none. */
typedef struct weft_check_use {
    int32_t readers;             /* its BACKWARDs per micro-batch here */
    int32_t gathered, gathering; /* the GATHER whose copy lives; that is under way */
    int32_t summing;             /* the REDUCE, or the GATHER of the sum, that is under way */
    int32_t second;              /* the second hop */
    int32_t finished;            /* the GATHER of the sum */
    int32_t refreshed;
    int32_t reached, reduced; /* micro-batch of the latest BACKWARD, of the latest first hop; -1: none */
    int32_t terms;            /* first hops */
    int32_t parts;            /* parts of micro-batch gradients handed to the owner */
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
    /* [n_units][micro-batches] BACKWARDs of the unit so far: on its owner, on its borrower */
    int32_t *begun[2];
    weft_check_term *terms;   /* [n_units][micro-batches] */
    int32_t *sent, *received; /* [transfers] instructions, -1: none; NULL where nothing has an owner */
    uint8_t *arrived;         /* [transfers] the RECV has ended */
    weft_check_unit *units;   /* [n_units] */
    /* of the rank that is walked */
    const weft_program *program;
    int32_t rank, at;
    int32_t count, norm, step; /* the instruction that did it; -1: none yet */
    int32_t taken;             /* micro-batches that it has taken on */
    int32_t due;               /* FORWARDs and BACKWARDs of those micro-batches that are still to come */
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

/* Index of what a SEND or RECV carries among all that ever travels between two ranks. */
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

/* True if the rank that is walked has a part of the unit's finished sum. */
static inline bool weft_check_sums(const weft_checker *check, int32_t unit) {
    const weft_check_unit *facts = &check->units[unit];
    return facts->trains && (facts->owner < 0 || facts->owner == check->rank);
}

/* "rank 1, instruction 7, REDUCE layers.0 all micro-batch 2: ..." */
weft_status weft_check_refuse_at(weft_checker *check, int32_t rank, int32_t instruction, const char *format, ...)
    WEFT_PRINTF(4, 5);
#define weft_check_refuse(check, ...) weft_check_refuse_at(check, (check)->rank, (check)->at, __VA_ARGS__)

/* A thing that may happen once: refused if *done has an instruction, else this one is noted. */
weft_status weft_check_once(weft_checker *check, int32_t *done);

weft_status weft_check_fields(weft_checker *check, const weft_instruction *instruction);
/* Walks one rank's program. */
weft_status weft_check_rank(weft_checker *check, int32_t rank);
/* An exchange of the rank that is walked. */
weft_status weft_check_exchange(weft_checker *check, const weft_instruction *instruction);
/* Every trained unit's sum is where this rank needs it. */
weft_status weft_check_sums_complete(weft_checker *check);
/* What the end of a rank's program must not leave open. */
weft_status weft_check_exchanges_closed(weft_checker *check);

weft_status weft_check_matches(weft_checker *check);
weft_status weft_check_transfers_in_order(weft_checker *check);
weft_status weft_check_sums_order(weft_checker *check, weft_coverage *out);

#endif
