/* sgd: stochastic gradient descent with momentum, as torch.optim.SGD defines it.
 *
 *     d = g + weight_decay w
 *     b = momentum b + (1 - dampening) d        (the first update takes d undamped)
 *     w = w - lr (nesterov ? d + momentum b : b)
 *
 * Without momentum there is no state and the step is w - lr d. Nesterov's form follows Sutskever et al., "On the
 * importance of initialization and momentum in deep learning", ICML 2013.
 */
#include <weft/optimizer.h>

/* clang-format off */
#define SGD_KEYS(K)                                                                                                    \
    K(F64,  lr,           "1e-3", "[0,1e38]",     "", WEFT_SAME, "Step size, before the schedule.")                    \
    K(F64,  momentum,     "0",    "[0,1)",        "", WEFT_SAME, "Decay rate of the momentum.")                        \
    K(F64,  dampening,    "0",    "[0,1]",        "", WEFT_SAME,                                                       \
      "Dampening: fraction of a new gradient that the momentum ignores.")                                              \
    K(BOOL, nesterov,     "no",   "",             "", WEFT_SAME, "Look ahead along the momentum.")                     \
    K(F64,  weight_decay, "0",    "[0,inf)",      "", WEFT_SAME, "Decay added to the gradient, per unit of weight.")
/* clang-format on */
WEFT_KEYS(sgd_config, SGD_KEYS)

/* forget = 1 - momentum, rather than momentum: otherwise the rounding error of 1 - momentum in fp32 would be multiplied
 * by 1 / (1 - momentum) in the buffer. */
WEFT_HP(sgd_hp, float lr; float weight_decay; float forget; float take; float of_gradient; float of_buffer;)

/* clang-format off */
WEFT_ELEMENTWISE(sgd_plain, sgd_hp, 0,
    w -= hp->lr * range->lr_scale * (g + hp->weight_decay * range->decay * w);
)

WEFT_ELEMENTWISE(sgd_momentum, sgd_hp, 1,
    float d = g + hp->weight_decay * range->decay * w;
    s0 += hp->take * d - hp->forget * s0;
    w -= hp->lr * range->lr_scale * (hp->of_gradient * d + hp->of_buffer * s0);
)
/* clang-format on */

struct weft_optimizer {
    const weft_host *host;
    sgd_config config;
};

static weft_status sgd_validate(const void *config, weft_error *err) {
    const sgd_config *c = config;
    if (c->nesterov && (c->momentum <= 0 || c->dampening > 0)) {
        return weft_error_set(err, WEFT_E_USER,
                              "nesterov = yes needs momentum above 0 and dampening = 0 (they are %g and %g).",
                              c->momentum, c->dampening);
    }
    return WEFT_OK;
}

static weft_status sgd_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    weft_optimizer *optimizer = host->alloc(host, sizeof *optimizer, 8);
    if (optimizer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the optimizer sgd.");
    optimizer->host = host;
    optimizer->config = *(const sgd_config *)config;
    *out = optimizer;
    return WEFT_OK;
}

static void sgd_destroy(weft_optimizer *optimizer) {
    if (optimizer != NULL) optimizer->host->release(optimizer->host, optimizer);
}

static const weft_state_slot *sgd_states(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride) {
    static const weft_state_slot slots[] = {{(uint32_t)sizeof(weft_state_slot), 0, "momentum_buffer", WEFT_F32, 1, 4}};
    *n_states = optimizer->config.momentum > 0 ? 1 : 0;
    *stride = (uint32_t)sizeof slots[0];
    return slots;
}

static int64_t sgd_hp_size(const weft_optimizer *optimizer) {
    (void)optimizer;
    return (int64_t)sizeof(sgd_hp);
}

static weft_status sgd_prepare(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err) {
    const sgd_config *c = &optimizer->config;
    sgd_hp *out = hp;
    (void)err;
    out->lr = (float)step->lr;
    out->weight_decay = (float)c->weight_decay;
    out->forget = (float)(1 - c->momentum);
    out->take = step->update == 1 ? 1.0f : (float)(1 - c->dampening);
    out->of_gradient = c->nesterov ? 1.0f : 0.0f;
    out->of_buffer = c->nesterov ? (float)c->momentum : 1.0f;
    return WEFT_OK;
}

static double sgd_lr(const weft_optimizer *optimizer) {
    return optimizer->config.lr;
}

static const weft_elementwise *sgd_update(const weft_optimizer *optimizer) {
    return optimizer->config.momentum > 0 ? &sgd_momentum : &sgd_plain;
}

static const weft_optimizer_plugin sgd_table = {(uint32_t)sizeof(weft_optimizer_plugin),
                                                WEFT_CAPABILITY_DECAY,
                                                sgd_create,
                                                sgd_destroy,
                                                sgd_states,
                                                sgd_hp_size,
                                                sgd_prepare,
                                                sgd_update,
                                                NULL,
                                                sgd_lr};

WEFT_PLUGIN(optimizer, 1, "sgd", "0.1.0", "Stochastic gradient descent with momentum, as in PyTorch.", sgd_config,
            sgd_validate, sgd_table)
