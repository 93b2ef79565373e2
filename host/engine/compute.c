/* host/engine/compute.c: see compute.h. */
#include "engine/compute.h"

#include "model/convert.h"
#include "plugin/enter.h"
#include "step/gather.h"

#include <stdlib.h>

/* Placements are the same in all stages. */
static bool is_gathered(const weft_engine *engine, int32_t unit) {
    const weft_job *jobs[] = {engine->train.job, engine->evaluate.job, engine->generate.job};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (jobs[i] != NULL) return weft_gather_is_due(&jobs[i]->spec, unit);
    return false;
}

/* Do products read a copy of this parameter that lies here for the whole run? Not of one that is gathered, which is
 * rounded on its way, nor of one that another rank computes with, nor of one that is looked up and nothing else: a
 * look-up rounds the rows that it takes. */
static bool is_copied(const weft_engine *engine, const weft_parameter *parameter) {
    const weft_span *span = &engine->holds[WEFT_HOLD_PARAMETERS]->spans[parameter->group];
    return engine->dtype != WEFT_F32 && weft_parameter_is_matrix(parameter) &&
           engine->in_products[parameter - engine->declared->parameters] &&
           span->n == engine->layout->groups[parameter->group].numel && !is_gathered(engine, parameter->unit);
}

/* Of one parameter's copy, on the layout's grid. */
static int64_t copy_bytes(const weft_engine *engine, const weft_parameter *parameter) {
    const int64_t grid = engine->layout->grid;
    return (parameter->numel + grid - 1) / grid * grid * weft_dtype_bytes(engine->dtype);
}

int64_t weft_compute_copy_bytes(const weft_engine *engine) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        if (is_copied(engine, p)) bytes += copy_bytes(engine, p);
    }
    return bytes;
}

weft_status weft_compute_copy_take(weft_engine *engine, weft_error *err) {
    const weft_declared *declared = engine->declared;
    weft_status status = weft_account_take(&engine->account, &engine->compute, weft_compute_copy_bytes(engine),
                                           WEFT_ACCOUNT_PARAMETERS, err);
    int64_t at = 0;
    if (status != WEFT_OK) return status;
    engine->compute_refs = calloc((size_t)declared->n_parameters + 1, sizeof *engine->compute_refs);
    engine->compute_dtypes = calloc((size_t)declared->n_parameters + 1, sizeof *engine->compute_dtypes);
    if (engine->compute_refs == NULL || engine->compute_dtypes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        engine->compute_refs[i] = engine->parameter_refs[i];
        engine->compute_dtypes[i] = WEFT_F32;
        if (!is_copied(engine, &declared->parameters[i])) continue;
        engine->compute_dtypes[i] = engine->dtype;
        engine->compute_refs[i] = weft_ref_at(engine->compute.ref, at);
        at += copy_bytes(engine, &declared->parameters[i]);
    }
    return WEFT_OK;
}

static void follow(void *context, int32_t parameter, int64_t first, int64_t n, const float *values) {
    const weft_fetcher *fetcher = context;
    const weft_engine *engine = fetcher->engine;
    const weft_ref to = weft_ref_at(engine->compute_refs[parameter], first * weft_dtype_bytes(engine->dtype));
    if (!is_copied(engine, &engine->declared->parameters[parameter])) return;
    (void)weft_convert(engine->kernels->host_view(engine->device, to), engine->dtype, values, WEFT_F32, n);
}

bool weft_compute_copy_follow(weft_region *masters, const weft_engine *engine) {
    if (engine->kernels->host_view == NULL) return false;
    masters->filled = follow;
    return true;
}

weft_status weft_compute_copy_refresh(const weft_engine *engine, bool trained_only, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < engine->declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        if (!is_copied(engine, p) || (trained_only && !p->trainable)) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, engine->compute_refs[i],
                         engine->dtype, engine->parameter_refs[i], WEFT_F32, p->numel);
    }
    return status;
}

int64_t weft_compute_copy_traffic(const weft_engine *engine) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        if (is_copied(engine, p) && p->trainable)
            bytes += p->numel * (weft_dtype_bytes(WEFT_F32) + weft_dtype_bytes(engine->dtype));
    }
    return bytes;
}
