/* curves.cuh: scalar functions of kernels: activations with their slopes, and the soft cap. */
#ifndef WEFT_DEVICE_CUDA_CURVES_CUH
#define WEFT_DEVICE_CUDA_CURVES_CUH

#include <math.h>

#include <cuda_runtime.h>

static __device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* Computes the normal CDF at x, and the density without the factor 1 / sqrt(2 pi). The tail below -|x| is exp(-x^2 / 2)
 * t P(t) with t = 1 / (1 + 0.3 |x|) and the CPU device's polynomial P. This keeps the digits of small tail values,
 * which 1 + erf(x) would lose. */
static __device__ __forceinline__ void normal_distribution(float x, float *below, float *density) {
    const float e = expf(x * x * -0.5f), t = 1.0f / fmaf(fabsf(x), 0.3f, 1.0f);
    float p = 0.0360362061f;
    p = fmaf(p, t, -0.158713241f);
    p = fmaf(p, t, 0.208964001f);
    p = fmaf(p, t, -0.0560953793f);
    p = fmaf(p, t, 0.129843171f);
    p = fmaf(p, t, 0.0995231328f);
    p = fmaf(p, t, 0.120816882f);
    p = fmaf(p, t, 0.119625166f);
    p = e * (t * p);
    *below = x < 0.0f ? p : 1.0f - p;
    *density = e;
}

/* f(x) and f'(x) of a weft_activation_form, a constant:
 *     silu:      x s,          s + x s (1 - s)                with s = sigmoid(x)
 *     gelu:      x Phi(x),     Phi(x) + x phi(x)
 *     gelu tanh: x s,          s + x s (1 - s) (a + 3 b x^2)  with s = sigmoid(x (a + b x^2)): (1 + tanh(u)) / 2 is
 *                              sigmoid(2 u), so a = 2 sqrt(2 / pi) and b = 0.044715 a */
template <int Form> static __device__ __forceinline__ void activate(float x, float *value, float *slope);

template <> __device__ __forceinline__ void activate<0>(float x, float *value, float *slope) {
    const float s = sigmoid(x);
    *value = x * s;
    *slope = fmaf(*value, 1.0f - s, s);
}
template <> __device__ __forceinline__ void activate<1>(float x, float *value, float *slope) {
    float s, density;
    normal_distribution(x, &s, &density);
    *value = x * s;
    *slope = fmaf(x * density, 0.398942280f, s);
}
template <> __device__ __forceinline__ void activate<2>(float x, float *value, float *slope) {
    const float s = sigmoid(x * fmaf(x * x, 0.0713548163f, 1.59576912f));
    *value = x * s;
    *slope = fmaf(*value * fmaf(x * x, 0.214064449f, 1.59576912f), 1.0f - s, s);
}

/* Returns cap tanh(x / cap), and its slope. */
static __device__ __forceinline__ float soft_cap(float x, float cap, float *slope) {
    const float t = tanhf(x / cap);
    *slope = 1.0f - t * t;
    return cap * t;
}

#endif
