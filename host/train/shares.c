/* host/train/shares.c: see shares.h. Another rank's plan is made as one's own is, by an engine that differs in its rank
 * and in what follows from that. */
#include "train/shares.h"

#include "train/buffers.h"
#include "train/sums.h"

#include <stdlib.h>

static weft_status make_share(const weft_engine *engine, const weft_stage *stage, weft_program *const *programs,
                              int32_t rank, weft_error *err) {
    weft_share *out = &stage->shares[rank];
    weft_engine other = *engine;
    weft_stage its = *stage;
    weft_status status = WEFT_OK;
    other.ranks.rank = rank;
    its.program = programs[rank];
    its.terms = NULL;
    its.sums = NULL;
    its.partials = 0;
    if (stage->job->spec.view.mode == WEFT_MODE_TRAIN)
        status = weft_sums_plan(&other, &its, (const weft_program *const *)programs, err);
    out->partials = its.partials;
    weft_terms_destroy(its.terms);
    free(its.sums);
    if (status == WEFT_OK) status = weft_program_place(programs[rank], &stage->job->spec, err);
    if (status == WEFT_OK) weft_program_price(&out->price, programs[rank], &stage->job->spec);
    return status;
}

weft_status weft_shares_make(const weft_engine *engine, weft_stage *stage, weft_program *const *programs,
                             weft_error *err) {
    weft_status status = WEFT_OK;
    stage->shares = calloc((size_t)engine->ranks.world, sizeof *stage->shares);
    if (stage->shares == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the shares of %d ranks", (int)engine->ranks.world);
    for (int32_t rank = 0; rank < engine->ranks.world && status == WEFT_OK; rank++)
        status = make_share(engine, stage, programs, rank, err);
    return status;
}

static void take_share(weft_stage *stage, int32_t rank) {
    if (stage->shares == NULL) return;
    stage->price = stage->shares[rank].price;
    stage->partials = stage->shares[rank].partials;
}

weft_status weft_share_bytes(weft_engine_bytes *out, const weft_engine *engine, int32_t rank, weft_error *err) {
    const weft_job *job = engine->train.job != NULL ? engine->train.job : engine->evaluate.job;
    weft_engine other = *engine;
    weft_status status = WEFT_OK;
    other.ranks.rank = rank;
    memset(other.holds, 0, sizeof other.holds);
    memset(other.apart, 0, sizeof other.apart);
    take_share(&other.train, rank);
    take_share(&other.evaluate, rank);
    status = weft_sums_hold(&other, &job->spec, err);
    if (status == WEFT_OK) weft_engine_plan_bytes(&other);
    if (status == WEFT_OK) *out = other.bytes;
    for (int what = 0; what < WEFT_N_HOLDS; what++) {
        weft_hold_destroy(other.holds[what]);
        free(other.apart[what]);
    }
    return status;
}
