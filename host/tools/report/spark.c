/* host/tools/report/spark.c: see spark.h. */
#include "tools/report/spark.h"

#include <math.h>
#include <string.h>

static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
static const char *const signs[] = {"_", ".", "-", "~", "=", "+", "*", "#"};

/* NaN: there is nothing in it. */
static double mean_of(const double *numbers, size_t stride, size_t from, size_t to) {
    double sum = 0.0;
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        const double value = *(const double *)((const char *)numbers + i * stride);
        if (!isfinite(value)) continue;
        sum += value;
        n++;
    }
    return n == 0 ? (double)NAN : sum / (double)n;
}

void weft_spark(char out[3 * WEFT_SPARK_MOST + 1], const double *numbers, size_t n, size_t stride, size_t places,
                double low, double high, bool utf8) {
    if (places > WEFT_SPARK_MOST) places = WEFT_SPARK_MOST;
    if (places > n) places = n;
    out[0] = '\0';
    for (size_t i = 0; i < places; i++) {
        const double mean = mean_of(numbers, stride, i * n / places, (i + 1) * n / places);
        const double share = high > low ? (mean - low) / (high - low) : 0.5;
        const int level = share <= 0.0 ? 0 : share >= 1.0 ? 7 : (int)(share * 8.0);
        (void)strcat(out, isnan(mean) ? " " : utf8 ? blocks[level] : signs[level]);
    }
}
