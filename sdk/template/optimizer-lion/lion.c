/* lion: Lion, whose update is the sign of an interpolated momentum (Chen et al., "Symbolic Discovery of Optimization
 * Algorithms", arXiv 2302.06675).
 *
 *     d = beta1 m + (1 - beta1) g
 *     w = w - lr (sign(d) + weight_decay w)
 *     m = beta2 m + (1 - beta2) g
 *
 * A complete optimizer plugin, to be copied: keys, state, per-step values, the update, and the table.
 */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/optimizer.h>

/* The keys of [optimizer]: type, name, default, range, unit, flags, help. They define struct lion_config. */
/* clang-format off */
#define LION_KEYS(K)                                                                                                   \
    K(F64,  lr,           "1e-4", "[0,inf)", "", WEFT_SAME, "Step size, before the schedule.")                    \
    K(F64,  beta1,        "0.9",  "[0,1)",   "", WEFT_SAME, "Weight of the momentum in the update.")                   \
    K(F64,  beta2,        "0.99", "[0,1)",   "", WEFT_SAME, "Decay rate of the momentum.")                             \
    K(F64,  weight_decay, "0",    "[0,inf)", "", WEFT_SAME, "Decay of the weight itself, times the step size.")
/* clang-format on */
WEFT_KEYS(lion_config, LION_KEYS)

/* Values of the update that depend on the step, in device memory; lion_prepare fills them. */
WEFT_HP(lion_hp, float lr; float weight_decay; float take1; float take2;)

/* The update of one element, for every device: assigns w and s0, reads g, hp and range. fp32 only. */
/* clang-format off */
WEFT_ELEMENTWISE(lion_update, lion_hp, 1,
    float d = s0 + hp->take1 * (g - s0);
    float sign = d > 0.0f ? 1.0f : (d < 0.0f ? -1.0f : 0.0f);
    w -= hp->lr * range->lr_scale * (sign + hp->weight_decay * range->decay * w);
    s0 += hp->take2 * (g - s0);
)
/* clang-format on */

struct weft_optimizer {
    const weft_host *host;
    lion_config config;
};

static weft_status lion_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    weft_optimizer *optimizer = host->alloc(host, sizeof *optimizer, 8);
    if (optimizer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the optimizer lion.");
    optimizer->host = host;
    optimizer->config = *(const lion_config *)config;
    *out = optimizer;
    return WEFT_OK;
}

static void lion_destroy(weft_optimizer *optimizer) {
    if (optimizer != NULL) optimizer->host->release(optimizer->host, optimizer);
}

/* Returns one state, a number per weight: s0 in the update. The host stores, saves and shards it. */
static const weft_state_slot *lion_states(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride) {
    static const weft_state_slot slots[] = {{(uint32_t)sizeof(weft_state_slot), 0, "exp_avg", WEFT_F32, 1, 4}};
    (void)optimizer;
    *n_states = 1;
    *stride = (uint32_t)sizeof slots[0];
    return slots;
}

static int64_t lion_hp_size(const weft_optimizer *optimizer) {
    (void)optimizer;
    return (int64_t)sizeof(lion_hp);
}

/* Fills hp once per step, in double. step->lr is the key lr times the schedule. */
static weft_status lion_prepare(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err) {
    const lion_config *c = &optimizer->config;
    lion_hp *out = hp;
    (void)err;
    out->lr = (float)step->lr;
    out->weight_decay = (float)c->weight_decay;
    out->take1 = (float)(1 - c->beta1);
    out->take2 = (float)(1 - c->beta2);
    return WEFT_OK;
}

/* Returns the step size that the schedule multiplies and that logs print. */
static double lion_lr(const weft_optimizer *optimizer) {
    return optimizer->config.lr;
}

static const weft_elementwise *lion_kernel(const weft_optimizer *optimizer) {
    (void)optimizer;
    return &lion_update;
}

static const weft_optimizer_plugin lion_table = {(uint32_t)sizeof(weft_optimizer_plugin),
                                                 WEFT_CAPABILITY_DECAY,
                                                 lion_create,
                                                 lion_destroy,
                                                 lion_states,
                                                 lion_hp_size,
                                                 lion_prepare,
                                                 lion_kernel,
                                                 NULL,
                                                 lion_lr};

WEFT_PLUGIN(optimizer, 1, "lion", "0.1.0", "The sign of an interpolated momentum (arXiv 2302.06675).", lion_config,
            NULL, lion_table)
