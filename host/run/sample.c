/* host/run/sample.c: from logits to an id. Greedy takes the lowest id among equals; sampling draws from the
 * softmax of logits / temperature, cut to the top_k largest and then to the smallest set whose probability reaches
 * top_p (Holtzman et al., arXiv 1904.09751). The random number depends on seed and position alone. */
#include "run/generate.h"

#include <math.h>
#include <stdlib.h>
#include <weft/random.h>

static int32_t pick_greedily(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static int compare_descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The smallest logit that may still be drawn. */
static float find_threshold(const float *logits, int64_t n, const weft_generate_options *options, float *sorted) {
    const double top = (double)logits[pick_greedily(logits, n)];
    double whole = 0.0, sum = 0.0;
    int64_t kept = options->top_k > 0 && options->top_k < n ? options->top_k : n;
    if (kept == n && options->top_p >= 1.0) return -INFINITY;
    memcpy(sorted, logits, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_descending);
    for (int64_t i = 0; i < kept; i++) whole += exp(((double)sorted[i] - top) / options->temperature);
    for (int64_t i = 0; i < kept; i++) {
        sum += exp(((double)sorted[i] - top) / options->temperature);
        if (sum >= options->top_p * whole) return sorted[i];
    }
    return sorted[kept - 1];
}

void weft_penalize(float *out, const float *logits, int64_t n, const int32_t *text, int64_t n_text, double penalty) {
    const float p = (float)penalty;
    memcpy(out, logits, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < n_text; i++)
        if (text[i] >= 0 && text[i] < n)
            out[text[i]] = logits[text[i]] < 0.0f ? logits[text[i]] * p : logits[text[i]] / p;
}

int32_t weft_sample(const float *logits, int64_t n, const weft_generate_options *options, uint64_t position,
                    float *scratch) {
    const weft_random4 r = weft_random(options->seed, WEFT_RANDOM_SAMPLE, 0, position);
    const double u = ((double)r.v[0] + (double)r.v[1] / 4294967296.0) / 4294967296.0;
    const int32_t best = pick_greedily(logits, n);
    double whole = 0.0, at = 0.0;
    float least = 0.0f;
    int32_t last = best;
    if (options->temperature <= 0.0) return best;
    least = find_threshold(logits, n, options, scratch);
    for (int64_t i = 0; i < n; i++)
        if (logits[i] >= least) whole += exp((double)(logits[i] - logits[best]) / options->temperature);
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] < least) continue;
        at += exp((double)(logits[i] - logits[best]) / options->temperature);
        last = (int32_t)i;
        if (at > u * whole) break;
    }
    return last;
}
