/* host/run/compute.c: see compute.h. */
#include "run/compute.h"

#include "model/convert.h"
#include "program/copies.h"
#include "plugin/device_queries.h"
#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_compute_copy_take(weft_engine *engine, weft_error *err) {
    const weft_declared *declared = engine->plan.declared;
    weft_status status = weft_account_cut(&engine->account, &engine->compute, weft_copies_bytes(&engine->plan),
                                          WEFT_ACCOUNT_PARAMETERS, err);
    int64_t at = 0;
    if (status != WEFT_OK) return status;
    engine->compute_refs = calloc((size_t)declared->n_parameters + 1, sizeof *engine->compute_refs);
    engine->compute_dtypes = calloc((size_t)declared->n_parameters + 1, sizeof *engine->compute_dtypes);
    if (engine->compute_refs == NULL || engine->compute_dtypes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        engine->compute_refs[i] = engine->parameter_refs[i];
        engine->compute_dtypes[i] = declared->parameters[i].dtype;
        if (!weft_copies_has(&engine->plan, &declared->parameters[i])) continue;
        engine->compute_dtypes[i] = weft_copies_dtype(&engine->plan, &declared->parameters[i]);
        engine->compute_refs[i] = weft_ref_at(engine->compute.ref, at);
        at += weft_copies_bytes_of(&engine->plan, &declared->parameters[i]);
    }
    return WEFT_OK;
}

static void convert_as_it_comes(void *context, int32_t parameter, int64_t first, int64_t n, const void *values) {
    const weft_fetcher *fetcher = context;
    const weft_engine *engine = fetcher->engine;
    const weft_parameter *p = &engine->plan.declared->parameters[parameter];
    const int32_t dtype = engine->compute_dtypes[parameter];
    const weft_ref to = weft_ref_at(engine->compute_refs[parameter], first * weft_dtype_bytes(dtype));
    if (!weft_copies_has(&engine->plan, p)) return;
    (void)weft_convert(weft_device_view(engine->kernels, engine->device, to), dtype, values, p->dtype, n);
}

bool weft_compute_copy_follow(weft_region *masters, const weft_engine *engine) {
    if (engine->compute.bytes == 0 || weft_device_view(engine->kernels, engine->device, engine->compute.ref) == NULL)
        return false;
    masters->filled = convert_as_it_comes;
    return true;
}

weft_status weft_compute_copy_refresh(const weft_engine *engine, bool trained_only, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        if (!weft_copies_has(&engine->plan, p) || (trained_only && !p->trainable)) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, engine->compute_refs[i],
                         engine->compute_dtypes[i], engine->parameter_refs[i], p->dtype, p->numel);
    }
    return status;
}
