/* host/program/copies.c: see copies.h. */
#include "program/copies.h"

#include "base/sizes.h"
#include "program/gathered.h"

/* Placements are the same in all stages. */
static bool is_gathered(const weft_plan *plan, int32_t unit) {
    const weft_job *jobs[] = {plan->train.job, plan->evaluate.job, plan->generate.job};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (jobs[i] != NULL) return weft_gathered_is_due(&jobs[i]->spec, unit);
    return false;
}

/* A matrix is rounded to what is computed in, a gain or bias that is stored in bf16 is widened. */
static bool is_read_otherwise(const weft_plan *plan, const weft_parameter *parameter) {
    if (!weft_parameter_is_matrix(parameter)) return parameter->dtype != WEFT_F32;
    return plan->dtype != WEFT_F32 && parameter->dtype == WEFT_F32 &&
           plan->in_products[parameter - plan->declared->parameters];
}

int32_t weft_copies_dtype(const weft_plan *plan, const weft_parameter *parameter) {
    return weft_parameter_is_matrix(parameter) ? plan->dtype : WEFT_F32;
}

/* Not of one that is gathered, which is rounded on its way, nor of one that another rank computes with, nor of one that
 * is looked up and nothing else: a look-up rounds the rows that it takes. */
bool weft_copies_has(const weft_plan *plan, const weft_parameter *parameter) {
    const weft_span *span = &plan->holds[WEFT_HOLD_PARAMETERS]->spans[parameter->group];
    return is_read_otherwise(plan, parameter) && span->n == plan->layout->groups[parameter->group].numel &&
           !is_gathered(plan, parameter->unit);
}

int64_t weft_copies_bytes_of(const weft_plan *plan, const weft_parameter *parameter) {
    return weft_dtype_span(weft_copies_dtype(plan, parameter), weft_round_up(parameter->numel, plan->layout->grid));
}

int64_t weft_copies_bytes(const weft_plan *plan) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (weft_copies_has(plan, p)) bytes += weft_copies_bytes_of(plan, p);
    }
    return bytes;
}

int64_t weft_copies_traffic(const weft_plan *plan) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (weft_copies_has(plan, p) && p->trainable)
            bytes += p->numel * (weft_dtype_bytes(p->dtype) + weft_dtype_bytes(weft_copies_dtype(plan, p)));
    }
    return bytes;
}
