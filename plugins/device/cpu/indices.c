/* indices.c: validates ids and positions before a kernel uses them. */
#include "cpu.h"

void cpu_check_indices(operands *c, const char *name, const int32_t *values, const float *weights, int64_t n,
                       int64_t limit) {
    int64_t i = 0;
    if (c->status != WEFT_OK) return;
    for (i = 0; i < n; i++) {
        const bool inside = values[i] >= 0 && values[i] < limit;
        if (inside || (weights != NULL && !(weights[i] != 0))) continue;
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: %s[%lld] is %d, and the table has rows 0 to %lld.", c->kernel,
                                   name, (long long)i, values[i], (long long)limit - 1);
        return;
    }
}
