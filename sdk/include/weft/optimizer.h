/* weft/optimizer.h: how owned weights are updated (optimizer/1).
 *
 * An optimizer is written once and runs on every device, over any shard: it declares state slots and one
 * element-wise update. The host owns all memory; parameters lie flat, and `weft_range` rows say which part of the
 * flat region belongs to which parameter, with that parameter's own learning-rate scale and decay. What changes from
 * step to step sits in a small struct of fp32 numbers in device memory (`hp`), which `prepare` computes in fp64, so
 * that a replayed graph sees new values. Clip factor and skip live on the device as well; the body receives its
 * gradient already scaled.
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
 * with take = 1 - beta, which `prepare` forms in fp64: a beta near one loses digits in fp32 at every step.
 *
 * A body sees: w (the weight, assigned), g (the gradient, scaled), s0..s3 (state elements, assigned), range (const
 * weft_range *), hp (const NAME's struct *). Only fp32 arithmetic, sqrtf, fabsf, fminf, fmaxf, expf and
 * weft_round_bf16. It is compiled into a loop here and kept as text (at most 4,095 characters), which a CUDA device
 * compiles at run time. Commas are fine.
 *
 * [optimizer] decay (all, matrices) is the host's key: `matrices` makes it give parameters of fewer than two dimensions
 * a range whose decay is 0. An optimizer whose body multiplies by range->decay offers it, by a flag of its table, and
 * declares no key of that name. Its step size, `lr`, is a key of its own; the host asks for it by that slot.
 *
 * A body computes in fp32 whatever weight and states are stored in. [optimizer] states is the host's key: in bf16 or in
 * 8-bit blocks a state is made fp32 before the body sees it and rounded once behind it, by the device; so a plugin has
 * nothing to do for it but to say what its states are like (WEFT_STATE_...). It may declare a state in bf16 itself.
 *
 * Later users this serves: fp16 loss scaling (skip), fused or non-element-wise optimizers (extension
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
#define WEFT_MAX_HP     256 /* bytes of hp */

typedef struct weft_optimizer weft_optimizer; /* the plugin's own */

/* Of a range. */
#define WEFT_RANGE_BF16 1u /* its weights are stored in bf16: what the body leaves in w is rounded to that */

/* A row of the table that cuts the flat region by parameter. */
typedef struct weft_range {
    uint32_t struct_size;
    uint32_t flags;         /* WEFT_RANGE_... */
    int64_t offset, length; /* elements of the flat region that the device call covers */
    float lr_scale;         /* multiplies the learning rate: 0.5 moves as half of lr does; 1 by default */
    float decay;            /* multiplies the weight decay: 0.5 is half of it, 0 exempts the parameter */
} weft_range;

/* What a state is like. */
#define WEFT_STATE_NOT_NEGATIVE 1u /* never below zero: 8 bits have no sign to spend on it */
#define WEFT_STATE_AS_DECLARED  2u /* stays in its own type whatever [optimizer] states says */

/* State that the optimizer keeps per weight. */
typedef struct weft_state_slot {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;    /* as in checkpoints: "exp_avg" */
    int32_t dtype;       /* weft_dtype: WEFT_F32 or WEFT_BF16 */
    int32_t block;       /* elements per block of a block format; 1 for plain types */
    int64_t block_bytes; /* bytes per block; the dtype's size for plain types */
} weft_state_slot;       /* states start at zero */

/* What the CPU loop of a body receives: elements [begin, end) of the flat region. */
typedef struct weft_elementwise_call {
    uint32_t struct_size;
    uint32_t flags;
    float *weight;
    const float *gradient;
    float *states[WEFT_MAX_STATES];
    const void *hp;
    const weft_range *range; /* the one row that holds [begin, end) */
    int64_t begin, end;
    float coefficient;
    int32_t reserved;
} weft_elementwise_call;

typedef struct weft_elementwise {
    uint32_t struct_size;
    uint32_t flags;
    const char *name;
    const char *hp_name;   /* of the hp struct, as the body uses it */
    const char *hp_fields; /* its members, as text */
    const char *body;      /* the text */
    int64_t n_states;
    void (*cpu)(const weft_elementwise_call *call); /* [worker] [hot] */
} weft_elementwise;

/* x as bf16 has it, to the nearest, ties to even, for bodies that reckon with what will be stored. x: no NaN. */
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

/* Declares the hp struct, whose members are 4-byte numbers, and keeps them as text for the same reason as the body. */
#define WEFT_HP(NAME, ...)                                                                                             \
    typedef struct NAME {                                                                                              \
        __VA_ARGS__                                                                                                    \
    } NAME;                                                                                                            \
    static const char NAME##_fields[] = #__VA_ARGS__;

/* On x86-64 a body's loop is compiled twice, in the instruction set of the rest of the plugin and in AVX2, and a call
 * takes the wider one where the processor has it: four lanes of SSE2 do not keep up with the memory that an update
 * waits for. Both give the same bits, as neither joins a product with a sum: the flags of weft.pc forbid it, and AVX2
 * by itself has no instruction for it. */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__AVX2__)
#define WEFT_CPU_LOOP_WIDE __attribute__((target("avx2")))
#define WEFT_CPU_HAS_WIDE  __builtin_cpu_supports("avx2")
#else
#define WEFT_CPU_LOOP_WIDE
#define WEFT_CPU_HAS_WIDE 1
#endif

/* Elements between two fetches, and how far ahead of the loop these are: the processor's own fetching stops at each
 * page, and an update reads several arrays at once. On one core of a Cascade Lake AdamW's update of 64 M weights moves
 * 20.5 GB/s so, in SSE2 and without fetching 16.4. An address past the end is a number that is fetched in vain. */
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

/* HP: a struct of WEFT_HP. State elements that a body does not have are zero and thrown away. */
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
    uint64_t
        update; /* which one this is, from 1. A step that was skipped made none, so this may be less than the step */
    double lr;  /* what the slot `lr` gives times the schedule, with a key `lr` in it once and for all; the schedule
                   alone for a plugin without that slot */
} weft_step_info;

/* What an optimizer offers. */
#define WEFT_OFFERS_DECAY 1u /* its body multiplies weight decay by range->decay */

typedef struct weft_optimizer_plugin {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_OFFERS_... */

    weft_status (*create)(weft_optimizer **out, const weft_host *host, const void *config,
                          weft_error *err);     /* [main] [required] */
    void (*destroy)(weft_optimizer *optimizer); /* [main] [required] */

    /* The slots, as an array that lives as long as the optimizer; their names differ. stride: sizeof(weft_state_slot).
     * [any-thread] [required] */
    const weft_state_slot *(*states)(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride);

    /* Bytes of hp: at most WEFT_MAX_HP. [any-thread] [required] */
    int64_t (*hp_size)(const weft_optimizer *optimizer);

    /* Fills hp for one optimizer step. Computed in fp64, rounded once. [main] [hot] [required] */
    weft_status (*prepare)(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err);

    /* The update. [any-thread] [required] */
    const weft_elementwise *(*update)(const weft_optimizer *optimizer);

    const void *(*extension)(const weft_optimizer *optimizer, const char *id); /* [any-thread] [optional: none] */

    /* The step size before the schedule, as its keys say: of a key `lr` its value. [any-thread] [optional: 1] */
    double (*lr)(const weft_optimizer *optimizer);
} weft_optimizer_plugin;

#ifdef __cplusplus
}
#endif
#endif
