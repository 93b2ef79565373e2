/* weft/optimizer.h: optimizer updates (optimizer/1).
 *
 * An optimizer is written once and runs on every device, over any shard. It declares state slots and one element-wise
 * update. The host owns all memory. Parameters are stored in a flat region, and `weft_range` rows map its extents to
 * parameters, with each parameter's learning-rate scale and decay. Values that change from step to step are in a small
 * struct of fp32 numbers, `hp`, which `prepare` computes in fp64. It is in device memory, so that a replayed graph
 * reads new values. Clip factor and skip flag are also in device memory; the body receives its gradient already scaled.
 *
 *     WEFT_HP(lion_hp, float lr; float decay; float take1; float take2;)
 *
 *     WEFT_ELEMENTWISE(lion_update, lion_hp, 1,
 *         float d = s0 + hp->take1 * (g - s0);
 *         float sign = d > 0.0f ? 1.0f : (d < 0.0f ? -1.0f : 0.0f);
 *         w -= hp->lr * range->lr_scale * (sign + range->decay * hp->decay * w);
 *         s0 += hp->take2 * (g - s0);
 *     )
 *
 * with take = 1 - beta, which `prepare` computes in fp64: a beta near one loses digits in fp32 at every step.
 *
 * A body sees: w (the weight, assigned), g (the gradient, scaled), s0..s3 (state elements, assigned), range (const
 * weft_range *), hp (const NAME's struct *). It may use only fp32 arithmetic, sqrtf, fabsf, fminf, fmaxf, expf and
 * weft_round_bf16. It is compiled into a loop here and also stored as text (at most 4,095 characters), which a CUDA
 * device compiles at run time. Commas are allowed.
 *
 * The host defines the key [optimizer] decay (all, matrices). With `matrices`, parameters of fewer than two dimensions
 * get a range with decay 0. An optimizer whose body multiplies by range->decay declares this with a flag of its table,
 * and declares no key of that name. Its step size, `lr`, is a key of the plugin; the host reads it through the slot
 * `lr`.
 *
 * A body computes in fp32 for every storage type of weight and states. The host defines the key [optimizer] states.
 * With bf16 or 8-bit blocks, the device converts a state to fp32 before the body and rounds it once after the body. A
 * plugin only declares the properties of its states (WEFT_STATE_...). It may also declare a state as bf16.
 *
 * Intended users: fp16 loss scaling (skip), fused or non-element-wise optimizers (extension
 * "weft.optimizer.whole/1").
 */
#ifndef WEFT_OPTIMIZER_H
#define WEFT_OPTIMIZER_H

#include <math.h>
#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MAX_STATES 4
#define WEFT_MAX_HP     256 /* maximum bytes of hp */

typedef struct weft_optimizer weft_optimizer; /* defined by the plugin */

/* Flags of a range. */
#define WEFT_RANGE_BF16 1u /* weights are stored in bf16: w is rounded to bf16 after the body */

/* A row of the table that maps extents of the flat region to parameters. */
typedef struct weft_range {
    uint32_t struct_size;
    uint32_t flags;         /* WEFT_RANGE_... */
    int64_t offset, length; /* elements of the flat region of the device call */
    float lr_scale;         /* multiplies the learning rate: 0.5 halves it; default 1 */
    float decay;            /* multiplies the weight decay: 0.5 halves it, 0 disables it */
} weft_range;

/* Properties of a state. */
#define WEFT_STATE_NOT_NEGATIVE 1u /* never negative: the 8-bit type needs no sign */
#define WEFT_STATE_AS_DECLARED  2u /* stays in its declared type, independent of [optimizer] states */

/* Per-weight state of the optimizer. */
typedef struct weft_state_slot {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;    /* name in checkpoints: "exp_avg" */
    int32_t dtype;       /* weft_dtype: WEFT_F32 or WEFT_BF16 */
    int32_t block;       /* elements per block of a block format; 1 for plain types */
    int64_t block_bytes; /* bytes per block; the dtype's size for plain types */
} weft_state_slot;       /* states are initialized to zero */

/* Arguments of a body's CPU loop: elements [begin, end) of the flat region. */
typedef struct weft_elementwise_call {
    uint32_t struct_size;
    uint32_t flags;
    float *weight;
    const float *gradient;
    float *states[WEFT_MAX_STATES];
    const void *hp;
    const weft_range *range; /* the range that contains [begin, end) */
    int64_t begin, end;
    float coefficient;
    int32_t reserved;
} weft_elementwise_call;

typedef struct weft_elementwise {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;
    const char *hp_name;   /* name of the hp struct in the body */
    const char *hp_fields; /* its members, as text */
    const char *body;      /* source text */
    int64_t n_states;
    void (*cpu)(const weft_elementwise_call *call); /* [worker] [hot] */
} weft_elementwise;

/* Rounds x to bf16, ties to even, for bodies that compute with the stored value. x must not be NaN. */
static inline float weft_round_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#if defined(__GNUC__)
#define WEFT_RESTRICT __restrict__
#else
#define WEFT_RESTRICT
#endif

/* Declares the hp struct, whose members are 4-byte numbers, and stores its members as text for runtime compilation. */
#define WEFT_HP(NAME, ...)                                                                                             \
    typedef struct NAME {                                                                                              \
        __VA_ARGS__                                                                                                    \
    } NAME;                                                                                                            \
    static const char NAME##_fields[] = #__VA_ARGS__;

/* On x86-64 a body's loop is compiled for the plugin's instruction set and for AVX2, and a call uses AVX2 if the
 * processor has it: four SSE2 lanes are slower than the memory bandwidth that limits an update. Both versions return
 * the same bits, because neither uses fused multiply-add: the flags of weft.pc disable it, and AVX2 does not include
 * it. */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__AVX2__)
#define WEFT_CPU_LOOP_WIDE __attribute__((target("avx2")))
#define WEFT_CPU_HAS_WIDE  __builtin_cpu_supports("avx2")
#else
#define WEFT_CPU_LOOP_WIDE
#define WEFT_CPU_HAS_WIDE 1
#endif

/* Elements between two prefetches, and the prefetch distance. The hardware prefetcher stops at each page, and an update
 * reads several arrays at once. On one core of a Cascade Lake, AdamW's update of 64 M weights reaches 20.5 GB/s; with
 * SSE2 and without prefetching, 16.4 GB/s. Prefetching an address past the end has no effect. */
#define WEFT_CPU_LOOP_RUN   64
#define WEFT_CPU_LOOP_AHEAD 256
#if defined(__GNUC__)
#define WEFT_CPU_FETCH(ARRAY, INDEX, WRITE)                                                                            \
    __builtin_prefetch((const void *)((uintptr_t)(ARRAY) + (uintptr_t)(INDEX) * sizeof(float)), (WRITE))
#else
#define WEFT_CPU_FETCH(ARRAY, INDEX, WRITE) (void)(INDEX)
#endif

#define WEFT_ELEMENTWISE_LOOP(ATTRIBUTE, NAME, HP, N_STATES, ...)                                                      \
    ATTRIBUTE static void NAME(const weft_elementwise_call *call) {                                                    \
        float *WEFT_RESTRICT weft_w = call->weight;                                                                    \
        const float *WEFT_RESTRICT weft_g = call->gradient;                                                            \
        float *WEFT_RESTRICT weft_s0 = call->states[0];                                                                \
        float *WEFT_RESTRICT weft_s1 = call->states[1];                                                                \
        float *WEFT_RESTRICT weft_s2 = call->states[2];                                                                \
        float *WEFT_RESTRICT weft_s3 = call->states[3];                                                                \
        const HP hp_copy = *(const HP *)call->hp;                                                                      \
        weft_range range_copy;                                                                                         \
        const HP *const hp = &hp_copy;                                                                                 \
        const weft_range *const range = &range_copy;                                                                   \
        const float coefficient = call->coefficient;                                                                   \
        const int64_t end = call->end;                                                                                 \
        int64_t weft_i, weft_j, weft_stop;                                                                             \
        (void)weft_struct_take(&range_copy, sizeof range_copy, call->range);                                           \
        (void)range;                                                                                                   \
        for (weft_i = call->begin; weft_i < end; weft_i = weft_stop) {                                                 \
            weft_stop = end - weft_i < WEFT_CPU_LOOP_RUN ? end : weft_i + WEFT_CPU_LOOP_RUN;                           \
            for (weft_j = weft_i + WEFT_CPU_LOOP_AHEAD; weft_j < weft_i + WEFT_CPU_LOOP_AHEAD + WEFT_CPU_LOOP_RUN;     \
                 weft_j += 16) {                                                                                       \
                WEFT_CPU_FETCH(weft_w, weft_j, 1);                                                                     \
                WEFT_CPU_FETCH(weft_g, weft_j, 0);                                                                     \
                if ((N_STATES) > 0) WEFT_CPU_FETCH(weft_s0, weft_j, 1);                                                \
                if ((N_STATES) > 1) WEFT_CPU_FETCH(weft_s1, weft_j, 1);                                                \
                if ((N_STATES) > 2) WEFT_CPU_FETCH(weft_s2, weft_j, 1);                                                \
                if ((N_STATES) > 3) WEFT_CPU_FETCH(weft_s3, weft_j, 1);                                                \
            }                                                                                                          \
            for (weft_j = weft_i; weft_j < weft_stop; weft_j++) {                                                      \
                float w = weft_w[weft_j];                                                                              \
                const float g = weft_g[weft_j] * coefficient;                                                          \
                float s0 = (N_STATES) > 0 ? weft_s0[weft_j] : 0.0f;                                                    \
                float s1 = (N_STATES) > 1 ? weft_s1[weft_j] : 0.0f;                                                    \
                float s2 = (N_STATES) > 2 ? weft_s2[weft_j] : 0.0f;                                                    \
                float s3 = (N_STATES) > 3 ? weft_s3[weft_j] : 0.0f;                                                    \
                __VA_ARGS__                                                                                            \
                weft_w[weft_j] = w;                                                                                    \
                if ((N_STATES) > 0) weft_s0[weft_j] = s0;                                                              \
                if ((N_STATES) > 1) weft_s1[weft_j] = s1;                                                              \
                if ((N_STATES) > 2) weft_s2[weft_j] = s2;                                                              \
                if ((N_STATES) > 3) weft_s3[weft_j] = s3;                                                              \
                (void)s0, (void)s1, (void)s2, (void)s3;                                                                \
            }                                                                                                          \
        }                                                                                                              \
    }

/* HP: a struct of WEFT_HP. State elements of unused slots are zero and are discarded. */
#define WEFT_ELEMENTWISE(NAME, HP, N_STATES, ...)                                                                      \
    WEFT_ELEMENTWISE_LOOP(, NAME##_cpu_narrow, HP, N_STATES, __VA_ARGS__)                                              \
    WEFT_ELEMENTWISE_LOOP(WEFT_CPU_LOOP_WIDE, NAME##_cpu_wide, HP, N_STATES, __VA_ARGS__)                              \
    static void NAME##_cpu(const weft_elementwise_call *call) {                                                        \
        if (WEFT_CPU_HAS_WIDE) NAME##_cpu_wide(call);                                                                  \
        else NAME##_cpu_narrow(call);                                                                                  \
    }                                                                                                                  \
    static const weft_elementwise NAME = {                                                                             \
        (uint32_t)sizeof(weft_elementwise), 0, #NAME, #HP, HP##_fields, #__VA_ARGS__, (N_STATES), NAME##_cpu};

typedef struct weft_step_info {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t update; /* number of the update, from 1; skipped steps are not counted */
    double lr;       /* result of slot `lr` times the schedule; only the schedule if the slot is NULL */
} weft_step_info;

/* Capabilities of an optimizer. */
#define WEFT_CAPABILITY_DECAY 1u /* the body multiplies weight decay by range->decay */

typedef struct weft_optimizer_plugin {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_OFFERS_... */

    weft_status (*create)(weft_optimizer **out, const weft_host *host, const void *config,
                          weft_error *err);     /* [main] [required] */
    void (*destroy)(weft_optimizer *optimizer); /* [main] [required] */

    /* Returns the state slots, an array valid for the lifetime of the optimizer, with distinct names. stride:
     * sizeof(weft_state_slot). [any-thread] [required] */
    const weft_state_slot *(*states)(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride);

    /* Returns the size of hp in bytes: at most WEFT_MAX_HP. [any-thread] [required] */
    int64_t (*hp_size)(const weft_optimizer *optimizer);

    /* Fills hp for one optimizer step; computes in fp64 and rounds once. [main] [hot] [required] */
    weft_status (*prepare)(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err);

    /* Returns the update. [any-thread] [required] */
    const weft_elementwise *(*update)(const weft_optimizer *optimizer);

    const void *(*extension)(const weft_optimizer *optimizer, const char *id); /* [any-thread] [optional: none] */

    /* Returns the configured step size before the schedule: the value of key `lr`. [any-thread] [optional: 1] */
    double (*lr)(const weft_optimizer *optimizer);
} weft_optimizer_plugin;

#ifdef __cplusplus
}
#endif
#endif
