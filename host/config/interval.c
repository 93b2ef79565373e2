/* host/config/interval.c: intervals of evaluations and saves, and the length of the warm-up. */
#include <math.h>
#include <stdlib.h>

#include "config/number.h"
#include "config/settings.h"

weft_status weft_interval_parse(weft_interval *out, const char *text, weft_error *err) {
    const size_t n = strlen(text);
    weft_interval interval = {0, 0};
    char number[40];
    if (strcmp(text, "none") == 0) {
        *out = interval;
        return WEFT_OK;
    }
    if (n > 1 && n < sizeof number && text[n - 1] == '%') {
        memcpy(number, text, n - 1);
        number[n - 1] = '\0';
        if (weft_number_f64(&interval.percent, number) && interval.percent > 0 && interval.percent <= 100) {
            *out = interval;
            return WEFT_OK;
        }
    } else if (weft_number_i64(&interval.steps, text) && interval.steps >= 1) {
        *out = interval;
        return WEFT_OK;
    }
    return weft_error_set(err, WEFT_E_USER,
                          "is no interval: give a whole number of steps (50), a percentage of all "
                          "steps above 0%% and up to 100%% (5%%), or none");
}

int64_t weft_interval_resolve(const weft_interval *self, int64_t total_steps) {
    if (self->percent > 0) return (int64_t)ceil((double)total_steps * self->percent / 100);
    return self->steps;
}

int64_t weft_warmup_resolve(double warmup, int64_t total_steps) {
    return (int64_t)ceil(warmup < 1 ? warmup * (double)total_steps : warmup);
}
