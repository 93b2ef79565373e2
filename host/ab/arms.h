/* host/ab/arms.h: the arms of a contest (contest.h): what each is made of, and what it came to. */
#ifndef WEFT_HOST_AB_ARMS_H
#define WEFT_HOST_AB_ARMS_H

#include "ab/verdict.h"
#include "session/meeting.h"
#include "session/session.h"

/* What an arm is made of; the caller's, and outlives the contest. */
typedef struct weft_ab_spec {
    char label[256]; /* for people: "strategy.plugin=ddp", "b.ini" */
    const char *path;
    const char *const *overrides;
    size_t n_overrides;
    bool shares_data; /* text and data are the first's by its configuration */
} weft_ab_spec;

/* How an arm's numbers stand to the first's, after each of the first WEFT_AB_COMPARED steps. */
typedef struct weft_ab_numbers {
    bool comparable; /* the same parameters, with the same states */
    int32_t step;    /* the first after which they differ; 0: before the first; -1: never */
    int32_t mark;    /* what does (prove/marks.h); -1: the loss alone */
} weft_ab_numbers;

enum { WEFT_AB_COMPARED = 3 };

typedef struct weft_ab_arm {
    const weft_ab_spec *spec;
    weft_session *session;
    int64_t step; /* optimizer steps done */
    /* Planned: of the rank that takes the most; of all ranks in a step; of the rank that has the most. */
    int64_t bytes, sent, events;
    weft_ab_numbers numbers;
    int64_t targets; /* of a step, on the average */
    /* Of a step, median over rounds, on rank 0; exchange: of it in exchanges and waiting for them, negative where the
     * device's own queues hide it. */
    double seconds, exchange;
    weft_ab_verdict verdict; /* beside the first */
} weft_ab_arm;

typedef struct weft_ab_contest {
    weft_meeting meeting;
    weft_ab_arm *arms;
    int32_t n;
    int64_t block;   /* steps of a block */
    bool per_target; /* batches or rows differ, and what is compared is the time of a target; else that of a step */
    weft_ab_times times;
    double (*exchange)[WEFT_AB_MOST_ROUNDS];
    double seconds; /* of all rounds */
} weft_ab_contest;

#endif
