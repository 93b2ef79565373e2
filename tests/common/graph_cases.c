/* tests/common/graph_cases.c: see graph_cases.h. */
#include "graph_cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

void graph_case_check_gradients(const graph_case *c, int device) {
    rig r;
    rig_chain chain;
    rig_open(&r, device, &c->model, 2, 7);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, c->first, c->last);
    rig_chain_check_gradients(&chain);
    rig_chain_close(&chain);
    rig_close(&r);
}

/* Results of a chain: carry or loss, gradients of parameters, gradient of the carry. */
typedef struct outcome {
    float *parts[RIG_WEIGHTS + 2];
    int64_t n[RIG_WEIGHTS + 2];
    double loss;
} outcome;

static void run_case(outcome *out, const graph_case *c, int device, int32_t dtype) {
    rig r;
    rig_chain chain;
    rig_open(&r, device, &c->model, 3, 21);
    if (dtype == WEFT_BF16) rig_round(&r);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, c->first, c->last);
    memset(out, 0, sizeof *out);
    out->loss = rig_chain_objective(&chain);
    if (chain.runs[c->last].sizes->carry != 0) rig_chain_backward(&chain);
    for (int32_t i = 0; i < r.declared.n_parameters; i++)
        if (rig_chain_reads(&chain, i) && r.parameters[i].trainable) {
            out->n[i] = r.parameters[i].numel;
            out->parts[i] = rig_floats(&r, r.gradients[i].ref, out->n[i]);
        }
    if (c->first > 0) {
        out->n[RIG_WEIGHTS] = (int64_t)r.rows * r.length * c->model.carry_width;
        out->parts[RIG_WEIGHTS] = rig_numbers(&r, chain.runs[c->first].binding.d_carry_in.ref, out->n[RIG_WEIGHTS]);
    }
    out->n[RIG_WEIGHTS + 1] = chain.n_above;
    if (chain.n_above > 0)
        out->parts[RIG_WEIGHTS + 1] = rig_numbers(&r, chain.runs[c->last].binding.carry_out.ref, chain.n_above);
    rig_chain_close(&chain);
    rig_close(&r);
}

/* Frees both. Returns the largest distance of two parts. */
static double compare(outcome *a, outcome *b, const char *name, double tolerance) {
    double most = 0.0;
    ck_assert_msg(fabs(a->loss - b->loss) <= 3.0 * tolerance * fabs(b->loss) + 3.0 * tolerance,
                  "%s: objective %g against %g", name, a->loss, b->loss);
    for (int i = 0; i < RIG_WEIGHTS + 2; i++) {
        const double apart = a->n[i] > 0 ? rig_distance(a->parts[i], b->parts[i], a->n[i]) : 0.0;
        ck_assert_msg(apart <= tolerance, "%s, part %d: apart by %g", name, i, apart);
        if (apart > most) most = apart;
        free(a->parts[i]);
        free(b->parts[i]);
    }
    return most;
}

/* Compares fp32 sums to fp64 sums. In bf16, sums near a rounding boundary differ by a bit, which later operators
 * amplify; the result must still be closer than fp32. */
void graph_case_check_devices(const graph_case *c, int32_t dtype) {
    outcome a, b;
    if (c->model.fp32_alone && dtype != WEFT_F32) return;
    run_case(&a, c, RIG_CPU, dtype);
    run_case(&b, c, RIG_REFERENCE, dtype);
    (void)compare(&a, &b, c->model.name, dtype == WEFT_F32 ? 3e-6 : 1e-3);
}

void graph_case_check_bf16(const graph_case *c) {
    outcome narrow, wide;
    double most = 0.0;
    if (c->model.fp32_alone) return;
    run_case(&narrow, c, RIG_REFERENCE, WEFT_BF16);
    run_case(&wide, c, RIG_REFERENCE, WEFT_F32);
    most = compare(&narrow, &wide, c->model.name, 5e-2);
    ck_assert_msg(most > 1e-3, "%s: only %g from fp32", c->model.name, most);
}
