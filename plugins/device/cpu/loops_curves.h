/* loops_curves.h: vector functions: sigmoid, tanh, and activations with their slopes. Included by loops_body.h over
 * simd.h. */

INLINE vec sigmoid(vec x) {
    return vec_set(1.0f) / (vec_set(1.0f) + vec_exp(vec_set(0.0f) - x));
}

INLINE vec magnitude(vec x) {
    return vec_max(x, vec_set(0.0f) - x);
}

/* Returns tanh(x) with a relative error of 3e-7. Near zero it is x + x^3 P(x^2), because 1 - 2 / (1 + exp(2 |x|)) would
 * lose digits. P is a polynomial fitted to (tanh(x) / x - 1) / x^2 for |x| up to 0.55, with an error of at most 1e-9.
 * NaN stays NaN. */
INLINE vec hyperbolic_tangent(vec x) {
    const vec size = magnitude(x), square = x * x;
    const vec far = vec_set(1.0f) - vec_set(2.0f) / (vec_set(1.0f) + vec_exp(size + size));
    vec p = vec_set(-0.00628247336f);
    p = vec_fma(p, square, vec_set(0.0210777584f));
    p = vec_fma(p, square, vec_set(-0.053853858f));
    p = vec_fma(p, square, vec_set(0.133326017f));
    p = vec_fma(p, square, vec_set(-0.33333318f));
    return vec_less(size, vec_set(0.55f), vec_fma(x * square, p, x),
                    vec_less(x, vec_set(0.0f), vec_set(0.0f) - far, far));
}

/* Computes the normal CDF at x, and the density without the factor 1 / sqrt(2 pi). The tail below -|x| is exp(-x^2 / 2)
 * t P(t) with t = 1 / (1 + 0.3 |x|). P is fitted for |x| up to 13.3, beyond which the exponential is zero; its relative
 * error is at most 1.3e-7. */
INLINE void normal_distribution(vec x, vec *below, vec *density) {
    const vec e = vec_exp(x * x * vec_set(-0.5f));
    const vec t = vec_set(1.0f) / vec_fma(magnitude(x), vec_set(0.3f), vec_set(1.0f));
    vec p = vec_set(0.0360362061f);
    p = vec_fma(p, t, vec_set(-0.158713241f));
    p = vec_fma(p, t, vec_set(0.208964001f));
    p = vec_fma(p, t, vec_set(-0.0560953793f));
    p = vec_fma(p, t, vec_set(0.129843171f));
    p = vec_fma(p, t, vec_set(0.0995231328f));
    p = vec_fma(p, t, vec_set(0.120816882f));
    p = vec_fma(p, t, vec_set(0.119625166f));
    p = e * (t * p);
    *below = vec_less(x, vec_set(0.0f), p, vec_set(1.0f) - p);
    *density = e;
}

/* Computes f(x) and f'(x) of a weft_activation_form, a compile-time constant.
 *     silu:      x s,          s + x s (1 - s)               with s = sigmoid(x)
 *     gelu:      x Phi(x),     Phi(x) + x phi(x)
 *     gelu tanh: x s,          s + x s (1 - s) (a + 3 b x^2)  with s = sigmoid(x (a + b x^2)): (1 + tanh(u)) / 2 is
 *                              sigmoid(2 u), so a = 2 sqrt(2 / pi) and b = 0.044715 a */
INLINE void activate(vec x, const int form, vec *value, vec *slope) {
    vec s, density, inner;
    switch (form) {
    case WEFT_GELU:
        normal_distribution(x, &s, &density);
        *value = x * s;
        *slope = vec_fma(x * density, vec_set(0.398942280f), s);
        break;
    case WEFT_GELU_TANH:
        inner = vec_fma(x * x, vec_set(0.0713548163f), vec_set(1.59576912f));
        s = sigmoid(x * inner);
        *value = x * s;
        inner = vec_fma(x * x, vec_set(0.214064449f), vec_set(1.59576912f));
        *slope = vec_fma(*value * inner, vec_set(1.0f) - s, s);
        break;
    default:
        s = sigmoid(x);
        *value = x * s;
        *slope = vec_fma(*value, vec_set(1.0f) - s, s);
        break;
    }
}
