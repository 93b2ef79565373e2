/* anyprecision: AdamW for weights that are trained in bf16 without masters, after AnyPrecisionAdamW of torchdistX.
 *
 *     m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
 *     step = -lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) - lr weight_decay w
 *
 * A step is often too small to change a bf16 number, which has 8 bits. Kahan summation keeps the rounding error:
 *
 *     c = c + step        w' = bf16(w + c)        c = c + (w - w')
 *
 * All values are computed in fp32 and rounded once, to their storage type; the original rounds after every
 * operation. Here the decay is part of the step, so that it is compensated, too. In the original it multiplies the
 * weight, and has no effect if lr weight_decay is below 2^-9. Weights that are stored in fp32 are not rounded, and c
 * remains close to zero. */
#include <weft/optimizer.h>

/* clang-format off */
#define ANYPRECISION_KEYS(K)                                                                                           \
    K(F64,  lr,                        "1e-3",  "[0,1e38]",  "", WEFT_SAME, "Step size, before the schedule.")         \
    K(F64,  beta1,                     "0.9",   "[0,1)",     "", WEFT_SAME, "Decay rate of the mean gradient.")        \
    K(F64,  beta2,                     "0.999", "[0,1)",     "", WEFT_SAME,                                            \
      "Decay rate of the mean squared gradient.")                                                                      \
    K(F64,  eps,                       "1e-8",  "[0,inf)",   "", WEFT_SAME, "Added to the root of the mean square.")   \
    K(F64,  weight_decay,              "0",     "[0,inf)",   "", WEFT_SAME, "Decay of the weight, times step size.")   \
    K(BOOL, use_kahan_summation,       "yes",   "",          "", WEFT_SAME,                                            \
      "Compensate the rounding errors of the weights (Kahan summation).")                                              \
    K(ENUM, momentum_dtype,            "bf16",  "bf16,fp32", "", WEFT_SAME, "Type of the mean gradient.")              \
    K(ENUM, variance_dtype,            "bf16",  "bf16,fp32", "", WEFT_SAME, "Type of the mean square.")                \
    K(ENUM, compensation_buffer_dtype, "bf16",  "bf16,fp32", "", WEFT_SAME, "Type of the compensation.")
/* clang-format on */
WEFT_KEYS(anyprecision_config, ANYPRECISION_KEYS)

WEFT_HP(anyprecision_hp, float step_size; float decay_size; float take1; float take2; float root_scale; float eps;)

/* clang-format off */
WEFT_ELEMENTWISE(anyprecision_kahan, anyprecision_hp, 3,
    s0 += hp->take1 * (g - s0);
    s1 += hp->take2 * (g * g - s1);
    s2 -= range->lr_scale * (hp->step_size * (s0 / (sqrtf(s1) * hp->root_scale + hp->eps))
                             + hp->decay_size * range->decay * w);
    float moved = w + s2;
    if ((range->flags & 1u) != 0) moved = weft_round_bf16(moved);
    s2 += w - moved;
    w = moved;
)
WEFT_ELEMENTWISE(anyprecision_plain, anyprecision_hp, 2,
    s0 += hp->take1 * (g - s0);
    s1 += hp->take2 * (g * g - s1);
    w -= range->lr_scale * (hp->step_size * (s0 / (sqrtf(s1) * hp->root_scale + hp->eps))
                            + hp->decay_size * range->decay * w);
)
/* clang-format on */

struct weft_optimizer {
    const weft_host *host;
    anyprecision_config config;
    weft_state_slot slots[3];
};

static weft_state_slot slot_of(const char *name, uint32_t flags, int64_t choice) {
    const int32_t dtype = choice == 0 ? WEFT_BF16 : WEFT_F32;
    const weft_state_slot out = {(uint32_t)sizeof out, flags, name, dtype, 1, weft_dtype_bytes(dtype)};
    return out;
}

static weft_status anyprecision_create(weft_optimizer **out, const weft_host *host, const void *config,
                                       weft_error *err) {
    weft_optimizer *optimizer = host->alloc(host, sizeof *optimizer, 8);
    const anyprecision_config *c = config;
    if (optimizer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the optimizer anyprecision.");
    optimizer->host = host;
    optimizer->config = *c;
    optimizer->slots[0] = slot_of("exp_avg", 0, c->momentum_dtype);
    optimizer->slots[1] = slot_of("exp_avg_sq", WEFT_STATE_NOT_NEGATIVE, c->variance_dtype);
    optimizer->slots[2] = slot_of("compensation", WEFT_STATE_AS_DECLARED, c->compensation_buffer_dtype);
    *out = optimizer;
    return WEFT_OK;
}

static void anyprecision_destroy(weft_optimizer *optimizer) {
    if (optimizer != NULL) optimizer->host->release(optimizer->host, optimizer);
}

static const weft_state_slot *anyprecision_states(const weft_optimizer *optimizer, int64_t *n_states,
                                                  uint32_t *stride) {
    *n_states = optimizer->config.use_kahan_summation ? 3 : 2;
    *stride = (uint32_t)sizeof optimizer->slots[0];
    return optimizer->slots;
}

static int64_t anyprecision_hp_size(const weft_optimizer *optimizer) {
    (void)optimizer;
    return (int64_t)sizeof(anyprecision_hp);
}

static weft_status anyprecision_prepare(weft_optimizer *optimizer, void *hp, const weft_step_info *step,
                                        weft_error *err) {
    const anyprecision_config *c = &optimizer->config;
    const double t = (double)step->update;
    anyprecision_hp *out = hp;
    (void)err;
    out->step_size = (float)(step->lr / (1 - pow(c->beta1, t)));
    out->decay_size = (float)(step->lr * c->weight_decay);
    out->take1 = (float)(1 - c->beta1);
    out->take2 = (float)(1 - c->beta2);
    out->root_scale = (float)(1 / sqrt(1 - pow(c->beta2, t)));
    out->eps = (float)c->eps;
    return WEFT_OK;
}

static double anyprecision_lr(const weft_optimizer *optimizer) {
    return optimizer->config.lr;
}

static const weft_elementwise *anyprecision_update(const weft_optimizer *optimizer) {
    return optimizer->config.use_kahan_summation ? &anyprecision_kahan : &anyprecision_plain;
}

static const weft_optimizer_plugin anyprecision_table = {(uint32_t)sizeof(weft_optimizer_plugin),
                                                         WEFT_CAPABILITY_DECAY,
                                                         anyprecision_create,
                                                         anyprecision_destroy,
                                                         anyprecision_states,
                                                         anyprecision_hp_size,
                                                         anyprecision_prepare,
                                                         anyprecision_update,
                                                         NULL,
                                                         anyprecision_lr};

WEFT_PLUGIN(optimizer, 1, "anyprecision", "0.1.0", "AdamW for bf16 weights without masters, with Kahan's compensation.",
            anyprecision_config, NULL, anyprecision_table)
