/* host/tools/ab/arms.h: the arms of an experiment (experiment.h): what each is made of, and what it came to. */
#ifndef WEFT_HOST_TOOLS_AB_ARMS_H
#define WEFT_HOST_TOOLS_AB_ARMS_H

#include "tools/ab/outcome.h"
#include "tools/ab/paired_losses.h"
#include "tools/ab/verdict.h"
#include "run/meeting.h"
#include "run/session.h"

#include <jansson.h>

/* What an arm is made of; the caller's, and outlives the experiment. */
typedef struct weft_ab_spec {
    char label[256]; /* for people: "strategy.plugin=ddp", "b.ini" */
    const char *path;
    const char *const *overrides;
    size_t n_overrides;
    bool shares_data; /* text and data are the first's by its configuration */
} weft_ab_spec;

/* How an arm's numbers stand to the first's, after each of the first WEFT_AB_COMPARED steps; rank 0's. */
typedef struct weft_ab_numbers {
    bool comparable;     /* the same parameters, with the same states */
    int32_t step;        /* the first at which they differ; 0: before the first; -1: never */
    int32_t micro_batch; /* in its loss or its gradients; -1: in what the update left */
    char unit[160];      /* "": a loss */
    char what[400];      /* "the gradient of model.embed_tokens.weight" */
} weft_ab_numbers;

enum { WEFT_AB_COMPARED = 3 };

/* What an arm learned in the same steps from the same beginning (learning.h); rank 0's. */
typedef struct weft_ab_learned {
    double loss;             /* per target of the validation rows, over all seeds; infinite: it diverged */
    weft_paired_loss beside; /* of the first */
    weft_ab_learning answer;
    double *micro_batches; /* [experiment->learning.micro_batches] of the first seed, loss per target; NaN: no target */
} weft_ab_learned;

typedef struct weft_ab_arm {
    const weft_ab_spec *spec;
    weft_session *session; /* until all is timed */
    int64_t run_seed;      /* [run] seed */
    struct {
        int64_t step; /* at which a loss or gradient was not finite, and after which it takes no more; 0: none */
        char why[400];
    } diverged;
    /* Planned: of the rank that takes the most; of all ranks in a step; of the rank that has the most. */
    int64_t bytes, sent, instructions;
    json_t *facts;         /* report/plan_diff.h */
    json_t *difference;    /* from the first's facts */
    char programs[600];    /* where rank 0's program and the first's part; "": they are alike */
    char not_covered[512]; /* why the contract promises no bits; "": it does */
    weft_ab_change change; /* what the keys that differ from the first's may do to numbers */
    weft_ab_numbers numbers;
    /* Medians over rounds, on rank 0: of a step; targets a second; exchanges and waiting for them in a step, negative
     * where the device's own queues hide it. NaN: it diverged, or there was no round. */
    double seconds, rate, exchange;
    weft_ab_verdict verdict;          /* beside the first */
    weft_median_interval exchange_of; /* beside the first's, as verdict.ratio; not bounded where one of them has none */
    weft_ab_learned learned;
    weft_ab_outcome outcome; /* beside the first */
} weft_ab_arm;

/* The first's blocks against themselves, before the others run. */
typedef struct weft_ab_alone {
    weft_median_interval noise; /* of log(A' / A), with a chance of 5 % to miss */
    double told;    /* of a share of time that the given minutes tell as likely as not (weft_ab_told); NaN: unknown */
    int32_t rounds; /* the first's steps of these come before those of all arms */
} weft_ab_alone;

/* What ended the rounds, where they did not decide all. */
typedef enum weft_ab_end {
    WEFT_AB_END_MINUTES = 0,
    WEFT_AB_END_ROUNDS = 1, /* as many as were asked for */
    WEFT_AB_END_MOST = 2,   /* as many as there are at all */
    WEFT_AB_END_SIGNAL = 3
} weft_ab_end;

typedef struct weft_ab_experiment {
    weft_meeting meeting;
    weft_ab_arm *arms;
    int32_t n;
    int64_t block;   /* steps of a block */
    bool per_target; /* batches or rows differ, and what is compared is the time of a target; else that of a step */
    weft_ab_alone alone;
    double within; /* what an interval must lie within for an answer that nothing differs; a logarithm of ratios */
    weft_ab_times times;
    /* Of blocks, as times: of a step, and targets a second. */
    double (*step)[WEFT_AB_MOST_ROUNDS], (*rate)[WEFT_AB_MOST_ROUNDS], (*exchange)[WEFT_AB_MOST_ROUNDS];
    double seconds; /* of all rounds */
    weft_ab_end end;
    bool stopped; /* by a signal: what is there is told */
    struct {
        int64_t steps, micro_batches; /* steps 0: nothing was measured, and `why` says why */
        int32_t seeds;
        char why[200];
    } learning;
} weft_ab_experiment;

typedef struct weft_ab_options {
    int64_t steps;  /* of a block; 0: as many as half a second holds */
    double minutes; /* at most */
    int64_t rounds; /* at most */
    uint64_t seed;  /* of the order of blocks */
    double within;  /* percent: an interval that reaches farther is no answer */
    /* For the end of a call of a plugin that does not come back, of which nothing else can be told; ends the process.
     * stopped: a signal asked for it. */
    void (*give_up)(bool stopped, const char *call);
    const char *page; /* a file that can be written, or nothing is begun; NULL: none */
    int64_t learn;    /* optimizer steps before what was learned is measured; 0: it is not; -1: where numbers part */
    int64_t seeds;    /* of it */
    bool progress;
} weft_ab_options;

enum { WEFT_AB_LEARN_STEPS = 100, WEFT_AB_ALONE_ROUNDS = 8 };

#endif
