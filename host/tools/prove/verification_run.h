/* host/tools/prove/verification_run.h: trains one cell for some steps, and compares each to the reference. */
#ifndef WEFT_HOST_TOOLS_PROVE_VERIFICATION_RUN_H
#define WEFT_HOST_TOOLS_PROVE_VERIFICATION_RUN_H

#include "tools/prove/grid.h"
#include "run/session.h"

/* Checksums and losses of the reference run. */
typedef struct weft_verification_run {
    int32_t n_checksums;
    uint64_t *checksums; /* [1 + steps][n_checksums]; the first before step 1 */
    double *losses;      /* [steps], mean over targets */
} weft_verification_run;

void weft_verification_run_create(weft_verification_run *out, const weft_session *session, int64_t steps);
void weft_verification_run_free(weft_verification_run *self);

/* Result of a cell. Plain data, sent between ranks. */
typedef struct weft_verification_run_end {
    int32_t cell;     /* -1: no cell */
    int32_t step;     /* first step with a difference; 0: before step 1; -1: no difference */
    int32_t checksum; /* index of the differing checksum, as in checksums.h; -1: only the loss differs */
    int32_t copy;     /* rank with a copy that differs from other ranks' copies; -1: all copies are equal */
    int32_t trained;  /* the last hash differs from the first */
    int32_t reserved;
    double seconds;
    char hash[72];
} weft_verification_run_end;

typedef struct weft_verification_run_spec {
    const char *path; /* of the INI file */
    const char *const *overrides;
    size_t n_overrides;
    const weft_session *plugin_lookup; /* session that shares its text and data */
    int64_t steps;
} weft_verification_run_spec;

/* Returns the configuration's overrides and the cell's: [*n]. The caller frees the array, not the strings. */
const char **weft_verification_run_overrides(size_t *n, const weft_verification_run_spec *spec, const weft_cell *cell);

/* Opens the session of a cell, compiled only. */
weft_status weft_verification_run_open(weft_session **out, const weft_verification_run_spec *spec,
                                       const weft_cell *cell, const weft_rank_span *rank_span, weft_error *err);

/* Stores plugin files and answers of the rank that compiled a cell, for comparison by the ranks that run it. */
void weft_verification_run_note(weft_cell *out, const weft_session *session);

/* Trains a cell. keep: the cell is the reference, so its checksums are stored; otherwise it is compared. losses:
 * [steps]. [collective: ranks of the process context] */
weft_status weft_verification_run_run(weft_verification_run_end *out, double *losses,
                                      weft_verification_run *verification_run, bool keep,
                                      const weft_verification_run_spec *spec, const weft_cell *cell,
                                      const weft_rank_span *rank_span, weft_error *err);

#endif
