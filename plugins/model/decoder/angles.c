/* angles.c: tables of cosines and sines of rotary positions, plain or scaled for longer texts. The scalings are linear
 * (Chen et al., arXiv 2306.15595), dynamic (the base grows with the text), YaRN (Peng et al., arXiv 2309.00071),
 * LongRoPE (Ding et al., arXiv 2402.13753) and Llama 3.1 (Grattafiori et al., arXiv 2407.21783).
 *
 * Frequencies and angles are rounded to fp32 at the same points as in transformers. Otherwise the angle of a high
 * position differs in its fourth digit. */
#include "decoder.h"

#include <math.h>
#include <stdlib.h>

static const double TWO_PI = 6.283185307179586;

/* base^(2i/dim) */
static float power(double base, int64_t i, int64_t dim) {
    return (float)pow((double)(float)base, (double)((float)(2 * i) / (float)dim));
}

/* Returns the base of `dynamic` for a text of this length; up to the context it is the plain base. */
static double dynamic_base(const decoder_rope *r, int64_t places) {
    const double ratio = (double)(places > r->context ? places : r->context) / (double)r->context;
    return r->theta * pow(r->factor * ratio - (r->factor - 1), (double)r->dim / (double)(r->dim - 2));
}

/* Interpolates between short wavelengths, which stay unchanged, and long ones, which are multiplied by the factor. */
static float llama3_frequency(const decoder_rope *r, float plain) {
    const float original = (float)r->original, wave = (float)TWO_PI / plain, factor = (float)r->factor;
    const double longest = (double)r->original / r->low, shortest = (double)r->original / r->high;
    const float smooth = (original / wave - (float)r->low) / (float)(r->high - r->low);
    if ((double)wave > longest) return plain / factor;
    if ((double)wave < shortest) return plain;
    return (1.0F - smooth) * plain / factor + smooth * plain;
}

/* Returns the (fractional) pair with this number of turns over the original context. */
static double yarn_pair(const decoder_rope *r, double turns) {
    return (double)r->dim * log((double)r->original / (turns * TWO_PI)) / (2 * log(r->theta));
}

static float yarn_frequency(const decoder_rope *r, int64_t i) {
    const float plain = power(r->theta, i, r->dim);
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    float ramp = 0, kept = 0;
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(r->dim - 1));
    if (low == high) high += 0.001;
    ramp = ((float)i - (float)low) / (float)(high - low);
    kept = 1.0F - fminf(fmaxf(ramp, 0.0F), 1.0F);
    return 1.0F / ((float)r->factor * plain) * (1.0F - kept) + 1.0F / plain * kept;
}

static float frequency(const decoder_rope *r, int64_t places, int64_t i) {
    const double *factors = places > r->original ? r->long_factor : r->short_factor;
    const float plain = 1.0F / power(r->theta, i, r->dim);
    switch (r->kind) {
    case ROPE_LINEAR: return plain / (float)r->factor;
    case ROPE_DYNAMIC: return 1.0F / power(dynamic_base(r, places), i, r->dim);
    case ROPE_YARN: return yarn_frequency(r, i);
    case ROPE_LLAMA3: return llama3_frequency(r, plain);
    case ROPE_LONG: return 1.0F / ((float)factors[i] * power(r->theta, i, r->dim));
    case ROPE_PLAIN:
    case ROPE_ANY: break;
    }
    return plain;
}

static double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Returns the factor of cosines and sines. */
static float magnitude(const decoder_rope *r) {
    if (r->attention_factor != 0) return (float)r->attention_factor;
    if (r->kind == ROPE_LONG && r->factor > 1) return (float)sqrt(1 + log(r->factor) / log((double)r->original));
    if (r->kind != ROPE_YARN) return 1.0F;
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return (float)(yarn_magnitude(r->factor, r->mscale) / yarn_magnitude(r->factor, r->mscale_all_dim));
    return (float)yarn_magnitude(r->factor, 1);
}

weft_status decoder_rope_fill(const decoder_rope *r, int64_t rows, float *out, weft_error *err) {
    const float amount = magnitude(r);
    (void)err;
    for (int64_t i = 0; i < r->dim / 2; i++) {
        const float turn = frequency(r, rows, i);
        for (int64_t row = 0; row < rows; row++) {
            const float angle = (float)row * turn;
            out[row * r->dim + i] = (float)cos((double)angle) * amount;
            out[row * r->dim + r->dim / 2 + i] = (float)sin((double)angle) * amount;
        }
    }
    return WEFT_OK;
}
