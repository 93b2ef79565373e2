/* host/tools/ab/experiment.h: experiment that trains several configurations of one run interleaved in one launch.
 * Blocks of steps alternate between the arms, so that disturbances of the machine affect all arms equally.
 *
 * All arms are open at the same time, and share the first arm's device and communicator. Each starts from its own
 * initial state. In a round all arms run the same steps, with the same sequences and learning rate; the first arm runs
 * each step two times.
 *
 * Phases: the arms are planned and their plans compared. The first three steps of each arm are compared bit by bit. The
 * first arm runs against itself to measure the noise. All arms alternate. Finally, if the arms learn differently, their
 * learning is measured. */
#ifndef WEFT_HOST_TOOLS_AB_EXPERIMENT_H
#define WEFT_HOST_TOOLS_AB_EXPERIMENT_H

#include "tools/ab/verdict.h"
#include "run/session.h"
#include "tools/common/meeting.h"

#include <jansson.h>

/* Configuration of an arm; owned by the caller and outlives the experiment. */
typedef struct weft_ab_spec {
    char label[256]; /* display name: "strategy.plugin=ddp", "b.ini" */
    const char *path;
    const char *const *overrides;
    size_t n_overrides;
    bool shares_data; /* uses the text and data of the first arm, by its configuration */
} weft_ab_spec;

/* Comparison of an arm's values to the first arm's, after each of the first WEFT_AB_COMPARED steps; on rank 0. */
typedef struct weft_ab_numbers {
    bool comparable;     /* same parameters with the same optimizer states */
    int32_t step;        /* first step that differs; 0: initial values; -1: no difference */
    int32_t micro_batch; /* micro-batch with different loss or gradients; -1: values differ after the update */
    char unit[160];      /* "": the loss */
    char what[400];      /* "the gradient of model.embed_tokens.weight" */
} weft_ab_numbers;

enum { WEFT_AB_COMPARED = 3 };

/* Learning result of an arm after the same steps from its start; on rank 0. */
typedef struct weft_ab_learned {
    double loss;             /* validation loss per target token, mean over all seeds; infinite: diverged */
    weft_paired_loss beside; /* relative to the first arm */
    weft_ab_learning answer;
    /* [experiment->learning.micro_batches], first seed, loss per target token; NaN: no targets */
    double *micro_batches;
} weft_ab_learned;

typedef struct weft_ab_arm {
    const weft_ab_spec *spec;
    weft_session *session; /* open until timing ends */
    int64_t run_seed;      /* [run] seed */
    struct {
        int64_t step; /* step with the first non-finite loss or gradient, and the arm's last step; 0: not diverged */
        char why[400];
    } diverged;
    /* Planned: allocated bytes (maximum of all ranks), sent bytes per step (all ranks), instructions (maximum). */
    int64_t bytes, sent, instructions;
    json_t *facts;         /* tools/common/plan_costs.h */
    json_t *difference;    /* diff to the first arm's facts */
    char programs[600];    /* first difference of rank 0's step program to the first arm's; "": identical */
    char not_covered[512]; /* why the arm is not deterministic across ranks; "": it is */
    weft_ab_change change; /* possible effect on numbers of the keys that differ from the first arm's */
    weft_ab_numbers numbers;
    /* Medians over rounds, on rank 0: seconds of a step; target tokens/s; seconds of communication in a step. The last
     * is negative if device queues hide it. NaN: diverged, or no round. */
    double seconds, rate, exchange;
    weft_ab_verdict verdict;          /* relative to the first arm */
    weft_median_interval exchange_of; /* relative to the first arm, like verdict.ratio; unbounded if one has no value */
    weft_ab_learned learned;
    weft_ab_outcome outcome; /* relative to the first arm */
} weft_ab_arm;

/* Calibration: blocks of the first arm compared to themselves, before the other arms run. */
typedef struct weft_ab_alone {
    weft_median_interval noise; /* interval of log(A' / A) at 5 % error */
    double told;    /* time difference that the minutes detect at 50 % probability (weft_ab_told); NaN: unknown */
    int32_t rounds; /* calibration rounds of the first arm, before the rounds of all arms */
} weft_ab_alone;

/* Reason for the end of the rounds, unless every arm was decided. */
typedef enum weft_ab_end {
    WEFT_AB_END_MINUTES = 0,
    WEFT_AB_END_ROUNDS = 1, /* requested maximum */
    WEFT_AB_END_MOST = 2,   /* maximum array size */
    WEFT_AB_END_SIGNAL = 3
} weft_ab_end;

typedef struct weft_ab_experiment {
    weft_meeting meeting;
    weft_ab_arm *arms;
    int32_t n;
    int64_t block;   /* steps per block */
    bool per_target; /* batches or sequences differ, so time per target token is compared, not time per step */
    weft_ab_alone alone;
    double within; /* equivalence margin: an interval inside it means no difference; log ratio */
    weft_ab_times times;
    /* Values per block, indexed like times: seconds of a step, target tokens/s, seconds of communication. */
    double (*step)[WEFT_AB_MOST_ROUNDS], (*rate)[WEFT_AB_MOST_ROUNDS], (*exchange)[WEFT_AB_MOST_ROUNDS];
    double seconds; /* total of all rounds */
    weft_ab_end end;
    bool stopped; /* by a signal; results so far are reported */
    struct {
        int64_t steps, micro_batches; /* steps 0: not measured, for the reason in `why` */
        int32_t seeds;
        char why[200];
    } learning;
} weft_ab_experiment;

typedef struct weft_ab_options {
    int64_t steps;  /* per block; 0: as many as fit in half a second */
    double minutes; /* maximum */
    int64_t rounds; /* maximum */
    uint64_t seed;  /* for the order of blocks */
    double within;  /* equivalence margin in percent; a wider interval is inconclusive */
    /* Handles a plugin call that does not return, which leaves no result to report. Must end the process. stopped:
     * requested by a signal. */
    void (*give_up)(bool stopped, const char *call);
    const char *page; /* HTML page; checked to be writable before the first step; NULL: no page */
    int64_t learn;    /* optimizer steps before learning is measured; 0: not measured; -1: only if numbers differ */
    int64_t seeds;    /* for the learning measurement */
    bool progress;
} weft_ab_options;

enum { WEFT_AB_LEARN_STEPS = 100, WEFT_AB_ALONE_ROUNDS = 8 };

/* Opens the arms, compares and times them until each is decided or the minutes are over. Results marked "rank 0" exist
 * only there; outcomes are identical on all ranks. Close it also after a failure. [collective] */
weft_status weft_ab_run(weft_ab_experiment *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err);
void weft_ab_close(weft_ab_experiment *self);

/* Returns the evidence for arm i's outcome. */
weft_ab_evidence weft_ab_evidence_of(const weft_ab_experiment *self, int32_t i);

/* Returns the best arm: the fastest of the better arms, or the first if all others are worse. -1: undecided. */
int32_t weft_ab_winner(const weft_ab_experiment *experiment);

/* Rank 0 shows a line of progress on a terminal, in place of the last one. */
void weft_ab_show(const weft_ab_experiment *self, const weft_ab_options *options, const char *format, ...)
    WEFT_PRINTF(3, 4);

/* ---- learning.c ---- */

/* Checks whether an arm computes the same bits as the first, and finds the first step, micro-batch and unit that
 * differ.
 *
 * For each of the first steps it stores checksums of every micro-batch's gradient of every parameter (run/values.h),
 * the micro-batches' losses, and checksums of parameters and optimizer states after the step
 * (tools/common/checksums.h). Values are neither stored nor sent. Comparisons follow the order of computation: loss,
 * gradients from the last parameter to the first, then updated values. */

/* Checksums of the first arm, and buffers for the compared arm. */
typedef struct weft_ab_bits weft_ab_bits;

weft_ab_bits *weft_ab_bits_create(weft_ab_experiment *experiment);
void weft_ab_bits_destroy(weft_ab_bits *self);

/* Starts recording, before the first step of arm i. [collective] */
weft_status weft_ab_bits_begin(weft_ab_bits *self, int32_t i, weft_error *err);
/* Compares after step `step`, from 1 to WEFT_AB_COMPARED. Results are on rank 0. [collective] */
weft_status weft_ab_bits_step(weft_ab_bits *self, int32_t step, weft_error *err);
/* Stops recording. */
void weft_ab_bits_end(weft_ab_bits *self);

/* Opens and plans each arm's session, compares its plan to the first arm's, and loads the weights. [collective] */
weft_status weft_ab_open_arms(weft_ab_experiment *self, weft_error *err);

/* Prefixes an error with the arm, unless the message already names it. Returns err's code. */
weft_status weft_ab_name(const weft_ab_arm *arm, weft_error *err);

/* True if arm i uses the first arm's sequences at each step. */
bool weft_ab_same_batches(const weft_ab_experiment *self, int32_t i);

/* Decides whether to measure, and records the reason if not. The arms must be open. Same on all ranks. [collective] */
weft_status weft_ab_learning_check(weft_ab_experiment *self, const weft_ab_options *options, bool *wanted,
                                   weft_error *err);

/* Measures learning: each arm trains the same number of steps from its start, once per seed, and validation losses of
 * the same micro-batches are compared (verdict.h). In the timing phase all arms are open, and the first runs more
 * steps. Learning is therefore measured in new training runs, one after the other. The arms' sessions must be closed.
 * [collective] */
weft_status weft_ab_learn(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err);

#endif
