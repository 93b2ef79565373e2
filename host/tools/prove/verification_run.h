/* host/tools/prove/verification_run.h: one cell trained for some steps, and compared step by step with the
 * reference. */
#ifndef WEFT_HOST_TOOLS_PROVE_VERIFICATION_RUN_H
#define WEFT_HOST_TOOLS_PROVE_VERIFICATION_RUN_H

#include "tools/prove/grid.h"
#include "run/session.h"

/* What the reference went through. */
typedef struct weft_verification_run {
    int32_t n_checksums;
    uint64_t *checksums; /* [1 + steps][n_checksums]; the first before step 1 */
    double *losses;      /* [steps] mean over targets */
} weft_verification_run;

weft_status weft_verification_run_create(weft_verification_run *out, const weft_session *session, int64_t steps,
                                         weft_error *err);
void weft_verification_run_free(weft_verification_run *self);

/* What a cell came to. Plain bytes: ranks send it to one another. */
typedef struct weft_verification_run_end {
    int32_t cell;     /* -1: none */
    int32_t step;     /* the first at which something differs; 0: before step 1; -1: nothing ever */
    int32_t checksum; /* what does, as in checksums.h; -1: the loss alone */
    int32_t copy;     /* rank whose copy is not its peers'; -1: all agree */
    int32_t trained;  /* the last hash is not the first */
    int32_t reserved;
    double seconds;
    char hash[72];
} weft_verification_run_end;

typedef struct weft_verification_run_spec {
    const char *path; /* of the INI file */
    const char *const *overrides;
    size_t n_overrides;
    const weft_session *plugin_lookup; /* whose text and data are used */
    int64_t steps;
} weft_verification_run_spec;

/* The overrides of the configuration and those of a cell behind them: [*n], to be freed; the texts are not its own. */
weft_status weft_verification_run_overrides(const char ***out, size_t *n, const weft_verification_run_spec *spec,
                                            const weft_cell *cell, weft_error *err);

/* The session of a cell, compiled and no more. */
weft_status weft_verification_run_open(weft_session **out, const weft_verification_run_spec *spec,
                                       const weft_cell *cell, const weft_rank_span *rank_span, weft_error *err);

/* What a rank that compiled a cell knows of the plugins' files and answers, for those that run it. */
void weft_verification_run_note(weft_cell *out, const weft_session *session);

/* keep: this is the reference, and written to; else it is compared with. losses: [steps]. [collective: the rank
 * span] */
weft_status weft_verification_run_run(weft_verification_run_end *out, double *losses,
                                      weft_verification_run *verification_run, bool keep,
                                      const weft_verification_run_spec *spec, const weft_cell *cell,
                                      const weft_rank_span *rank_span, weft_error *err);

#endif
