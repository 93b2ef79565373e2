/* host/tools/prove/prove.h: a run under a grid of strategies, policies and splits, compared to the bit.
 *
 * All ranks of one launch go through it together. Every rank trains the reference by itself, the first cell of the
 * grid; the others run on as many ranks as they need, several at once where they fit, wave by wave. */
#ifndef WEFT_HOST_TOOLS_PROVE_PROVE_H
#define WEFT_HOST_TOOLS_PROVE_PROVE_H

#include "tools/prove/verification_run.h"
#include "tools/prove/omitted.h"
#include "run/meeting.h"

typedef enum weft_verdict {
    WEFT_VERDICT_EQUAL = 0,
    WEFT_VERDICT_NOT_COVERED = 1, /* the contract does not promise the same bits: cells[].coverage.why */
    WEFT_VERDICT_DIFFERENT = 2,
    WEFT_VERDICT_IDLE = 3, /* nothing was trained: the last hash is that of the beginning */
    WEFT_N_VERDICTS = 4
} weft_verdict;

typedef struct weft_prove_options {
    bool full;       /* the whole grid, or all pairs of settings */
    int64_t steps;   /* 0: those of the configuration, at most WEFT_PROVE_STEPS */
    bool progress;   /* by rank 0 on stderr: a line that is renewed on a terminal, elsewhere one now and then */
    bool any_room;   /* cells that do not fit are started all the same */
    int64_t room;    /* bytes that the device of a rank is said to have; 0: it is asked */
    char alone[512]; /* of one rank: why there are no more; "": no more were asked for */
} weft_prove_options;

enum { WEFT_PROVE_STEPS = 50 };

typedef struct weft_proof {
    weft_verification_run_spec spec;
    weft_meeting meeting; /* of all ranks, who compare what they are about to do */
    weft_session *plugin_lookup;
    weft_available_memory room; /* that a rank has at least; 0 bytes: none is looked at */
    weft_grid grid;
    int32_t left_out; /* cells whose programs are those of another */
    char missing[96]; /* strategies that there are no plugins of: "mp"; "": none */
    weft_omitted omitted;
    char reduce[16];
    weft_verification_run verification_run;
    weft_verification_run_end *ends; /* [grid.n] */
    double *losses;                  /* [grid.n][steps] */
    int32_t count[WEFT_N_VERDICTS];
    double seconds;
} weft_proof;

/* Runs it; the result is the same on all ranks. To be closed also after a failure. [collective] */
weft_status weft_prove(weft_proof *out, const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_prove_options *options, weft_error *err);
void weft_proof_close(weft_proof *self);

weft_verdict weft_proof_verdict(const weft_proof *self, int32_t cell);
/* WEFT_E_USER and a sentence where a covered cell differs or a cell has not trained. */
weft_status weft_proof_judge(const weft_proof *self, weft_error *err);

#endif
