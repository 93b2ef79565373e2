/* adamw: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), as defined by torch.optim.AdamW.
 *
 *     m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
 *     w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) - lr weight_decay w
 *
 * t counts updates, from 1. The powers are computed in fp64; the kernel body receives the derived factors. */
#include <weft/optimizer.h>

/* clang-format off */
#define ADAMW_KEYS(K)                                                                                                  \
    K(F64,  lr,           "1e-3",  "[0,1e38]",     "", WEFT_SAME, "Step size, before the schedule.")                   \
    K(F64,  beta1,        "0.9",   "[0,1)",        "", WEFT_SAME, "Decay rate of the mean gradient.")                  \
    K(F64,  beta2,        "0.999", "[0,1)",        "", WEFT_SAME, "Decay rate of the mean squared gradient.")          \
    K(F64,  eps,          "1e-8",  "[0,inf)",      "", WEFT_SAME, "Added to the root of the mean square.")             \
    K(F64,  weight_decay, "0.01",  "[0,inf)",      "", WEFT_SAME, "Decay of the weight itself, times the step size.")
/* clang-format on */
WEFT_KEYS(adamw_config, ADAMW_KEYS)

WEFT_HP(adamw_hp, float step_size; float decay_size; float take1; float take2; float root_scale; float eps;)

/* The update adds small differences to m, v and w. The forms beta m + (1 - beta) g and w (1 - lr decay) have a factor
 * near one. Its rounding would change the complete value at every step. */
/* clang-format off */
WEFT_ELEMENTWISE(adamw_step, adamw_hp, 2,
    s0 += hp->take1 * (g - s0);
    s1 += hp->take2 * (g * g - s1);
    w -= range->lr_scale * (hp->step_size * (s0 / (sqrtf(s1) * hp->root_scale + hp->eps))
                            + hp->decay_size * range->decay * w);
)
/* clang-format on */

struct weft_optimizer {
    const weft_host *host;
    adamw_config config;
};

static weft_status adamw_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    weft_optimizer *optimizer = host->alloc(host, sizeof *optimizer, 8);
    if (optimizer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the optimizer adamw.");
    optimizer->host = host;
    optimizer->config = *(const adamw_config *)config;
    *out = optimizer;
    return WEFT_OK;
}

static void adamw_destroy(weft_optimizer *optimizer) {
    if (optimizer != NULL) optimizer->host->release(optimizer->host, optimizer);
}

static const weft_state_slot *adamw_states(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride) {
    static const weft_state_slot slots[] = {{(uint32_t)sizeof(weft_state_slot), 0, "exp_avg", WEFT_F32, 1, 4},
                                            {(uint32_t)sizeof(weft_state_slot), WEFT_STATE_NOT_NEGATIVE, "exp_avg_sq",
                                             WEFT_F32, 1, 4}};
    (void)optimizer;
    *n_states = 2;
    *stride = (uint32_t)sizeof slots[0];
    return slots;
}

static int64_t adamw_hp_size(const weft_optimizer *optimizer) {
    (void)optimizer;
    return (int64_t)sizeof(adamw_hp);
}

static weft_status adamw_prepare(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err) {
    const adamw_config *c = &optimizer->config;
    const double t = (double)step->update;
    adamw_hp *out = hp;
    (void)err;
    out->step_size = (float)(step->lr / (1 - pow(c->beta1, t)));
    out->decay_size = (float)(step->lr * c->weight_decay);
    out->take1 = (float)(1 - c->beta1);
    out->take2 = (float)(1 - c->beta2);
    out->root_scale = (float)(1 / sqrt(1 - pow(c->beta2, t)));
    out->eps = (float)c->eps;
    return WEFT_OK;
}

static double adamw_lr(const weft_optimizer *optimizer) {
    return optimizer->config.lr;
}

static const weft_elementwise *adamw_update(const weft_optimizer *optimizer) {
    (void)optimizer;
    return &adamw_step;
}

static const weft_optimizer_plugin adamw_table = {(uint32_t)sizeof(weft_optimizer_plugin),
                                                  WEFT_CAPABILITY_DECAY,
                                                  adamw_create,
                                                  adamw_destroy,
                                                  adamw_states,
                                                  adamw_hp_size,
                                                  adamw_prepare,
                                                  adamw_update,
                                                  NULL,
                                                  adamw_lr};

WEFT_PLUGIN(optimizer, 1, "adamw", "0.1.0", "Adam with decoupled weight decay, as in PyTorch.", adamw_config, NULL,
            adamw_table)
