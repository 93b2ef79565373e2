/* weftnew-id: an optimizer: gradient descent with momentum.
 *
 *     m = momentum m + g
 *     w = w - lr (m + weight_decay w)
 *
 * The main thread calls `create`, `states`, `hp_size` and `lr` at start, and `prepare` once per step. The update runs
 * for every element, in several threads of the device. The host owns state and weights, saves them and shards them. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/optimizer.h>

/* The keys of [optimizer]: type, name, default, range, unit, flags, help. They define struct weftnew_config. */
/* clang-format off */
#define WEFTNEW_KEYS(K)                                                                                                \
    K(F64, lr,           "1e-2", "[0,inf)", "", WEFT_SAME, "Step size, before the schedule.")                          \
    K(F64, momentum,     "0.9",  "[0,1)",   "", WEFT_SAME, "Decay rate of the momentum.")                              \
    K(F64, weight_decay, "0",    "[0,inf)", "", WEFT_SAME, "Decay of the weight itself, times the step size.")
/* clang-format on */
WEFT_KEYS(weftnew_config, WEFTNEW_KEYS)

/* Values of the update that depend on the step, in device memory; weftnew_prepare fills them. */
WEFT_HP(weftnew_hp, float lr; float momentum; float weight_decay;)

/* The update of one element, for every device: assigns w and s0, reads g, hp and range. fp32 only. */
/* clang-format off */
WEFT_ELEMENTWISE(weftnew_update, weftnew_hp, 1,
    s0 = hp->momentum * s0 + g;
    w -= hp->lr * range->lr_scale * (s0 + hp->weight_decay * range->decay * w);
)
/* clang-format on */

struct weft_optimizer {
    const weft_host *host;
    weftnew_config config;
};

static weft_status weftnew_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    weft_optimizer *optimizer = (weft_optimizer *)host->alloc(host, sizeof *optimizer, 8);
    if (optimizer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the optimizer weftnew-id");
    optimizer->host = host;
    optimizer->config = *(const weftnew_config *)config;
    *out = optimizer;
    return WEFT_OK;
}

static void weftnew_destroy(weft_optimizer *optimizer) {
    if (optimizer != NULL) optimizer->host->release(optimizer->host, optimizer);
}

/* Returns one state, a number per weight: s0 in the update. */
static const weft_state_slot *weftnew_states(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride) {
    static const weft_state_slot slots[] = {{(uint32_t)sizeof(weft_state_slot), 0, "momentum", WEFT_F32, 1, 4}};
    (void)optimizer;
    *n_states = 1;
    *stride = (uint32_t)sizeof slots[0];
    return slots;
}

static int64_t weftnew_hp_size(const weft_optimizer *optimizer) {
    (void)optimizer;
    return (int64_t)sizeof(weftnew_hp);
}

/* Fills hp once per step, in double. step->lr is the key lr times the schedule. */
static weft_status weftnew_prepare(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err) {
    weftnew_hp *out = (weftnew_hp *)hp;
    (void)err;
    out->lr = (float)step->lr;
    out->momentum = (float)optimizer->config.momentum;
    out->weight_decay = (float)optimizer->config.weight_decay;
    return WEFT_OK;
}

/* Returns the step size that the schedule multiplies and that logs print. */
static double weftnew_lr(const weft_optimizer *optimizer) {
    return optimizer->config.lr;
}

static const weft_elementwise *weftnew_kernel(const weft_optimizer *optimizer) {
    (void)optimizer;
    return &weftnew_update;
}

/* clang-format off */
static const weft_optimizer_plugin weftnew_table = {
    (uint32_t)sizeof(weft_optimizer_plugin), WEFT_CAPABILITY_DECAY, weftnew_create, weftnew_destroy, weftnew_states,
    weftnew_hp_size, weftnew_prepare, weftnew_kernel, NULL, weftnew_lr};
/* clang-format on */

WEFT_PLUGIN(optimizer, 1, "weftnew-id", "0.1.0", "Gradient descent with a momentum.", weftnew_config, NULL,
            weftnew_table)
