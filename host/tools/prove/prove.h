/* host/tools/prove/prove.h: verification run: trains a run under a grid of strategies, policies and shardings and
 * compares the results bit by bit.
 *
 * All ranks of one launch take part. Every rank trains the reference, the first cell of the grid, on its own. The other
 * cells run on as many ranks as they need, several at the same time if they fit, in waves. */
#ifndef WEFT_HOST_TOOLS_PROVE_PROVE_H
#define WEFT_HOST_TOOLS_PROVE_PROVE_H

#include "tools/common/meeting.h"
#include "tools/prove/grid.h"
#include "tools/prove/verification_run.h"

/* Cells that a proof leaves out, with reasons, for the table and the JSON object. */

enum { WEFT_MOST_OMITTED = 8, WEFT_OMITTED_SIZE = 800 };

/* Texts without the prefix "left out: ": "mp on 3, 4 ranks: ...". */
typedef struct weft_omitted {
    char text[WEFT_MOST_OMITTED][WEFT_OMITTED_SIZE];
    int32_t n;
} weft_omitted;

typedef enum weft_verdict {
    WEFT_VERDICT_EQUAL = 0,
    WEFT_VERDICT_NOT_COVERED = 1, /* not deterministic across ranks by contract: cells[].coverage.why */
    WEFT_VERDICT_DIFFERENT = 2,
    WEFT_VERDICT_IDLE = 3, /* no parameter changed: the last hash equals the initial one */
    WEFT_N_VERDICTS = 4
} weft_verdict;

typedef struct weft_prove_options {
    bool full;       /* all cells, instead of a pairwise cover */
    int64_t steps;   /* 0: those of the configuration, at most WEFT_PROVE_STEPS */
    bool progress;   /* rank 0 prints to stderr: an updated line on a terminal, elsewhere occasional lines */
    bool any_room;   /* also start cells that do not fit */
    int64_t room;    /* bytes of a rank's device memory, given by the user; 0: queried */
    char alone[512]; /* of one rank: why there are no more; "": one was requested */
} weft_prove_options;

enum { WEFT_PROVE_STEPS = 50 };

typedef struct weft_proof {
    weft_verification_run_spec spec;
    weft_meeting meeting; /* of all ranks, which compare their next actions */
    weft_session *plugin_lookup;
    weft_available_memory room; /* smallest available memory of a rank; 0 bytes: not checked */
    weft_grid grid;
    int32_t left_out; /* cells with the same programs as another one */
    char missing[96]; /* strategies without a plugin: "mp"; "": no such strategy */
    weft_omitted omitted;
    char reduce[16];
    weft_verification_run verification_run;
    weft_verification_run_end *ends; /* [grid.n] */
    double *losses;                  /* [grid.n][steps] */
    int32_t count[WEFT_N_VERDICTS];
    double seconds;
} weft_proof;

/* Runs the proof; the result is identical on all ranks. Close it also after a failure. [collective] */
weft_status weft_prove(weft_proof *out, const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_prove_options *options, weft_error *err);
void weft_proof_close(weft_proof *self);

weft_verdict weft_proof_verdict(const weft_proof *self, int32_t cell);
/* Returns WEFT_E_USER with a message if a deterministic cell differs or a cell has not trained. */
weft_status weft_proof_check(const weft_proof *self, weft_error *err);

#endif
