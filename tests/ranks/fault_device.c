/* fault_device.c: a device that accumulates weight gradients within the matmul, onto the result of the last such matmul
 * of that shape in the step. Their sum is computed and rounded, and the older result is subtracted again. */
#include "fault.h"

#include <stdlib.h>
#include <weft/device.h>

static weft_device_plugin real, table;

enum { MOST_SHAPES = 64 };
static struct {
    int64_t m, n;
    float *older; /* (m,n) */
} shapes[MOST_SHAPES];
static int n_shapes;

/* NULL: no memory. The older result of a new shape is zero. */
static float *older_of(int64_t m, int64_t n) {
    int i = 0;
    while (i < n_shapes && (shapes[i].m != m || shapes[i].n != n)) i++;
    if (i == MOST_SHAPES) return NULL;
    if (i == n_shapes) {
        shapes[i].m = m;
        shapes[i].n = n;
        shapes[i].older = calloc((size_t)(m * n), sizeof(float));
        n_shapes++;
    }
    return shapes[i].older;
}

/* Accumulation may need more workspace. */
static int64_t matmul_workspace(const weft_device *device, const weft_matmul *args) {
    weft_matmul onto = *args;
    const int64_t bytes = real.matmul_workspace(device, args);
    int64_t more = 0;
    onto.accumulate = 1;
    more = real.matmul_workspace(device, &onto);
    return more > bytes ? more : bytes;
}

static weft_status matmul(weft_device *device, weft_stream *s, const weft_matmul *args, weft_error *err) {
    weft_matmul onto = *args;
    weft_status status = WEFT_OK;
    float *older = NULL, *c = NULL;
    if (!args->transpose_a || args->accumulate || args->dtype_c != WEFT_F32 || args->ldc != args->n)
        return real.matmul(device, s, args, err);
    older = older_of(args->m, args->n);
    if (older == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a product");
    c = real.host_view(device, args->c);
    memcpy(c, older, (size_t)(args->m * args->n) * sizeof *c);
    onto.accumulate = 1;
    status = real.matmul(device, s, &onto, err);
    for (int64_t i = 0; i < args->m * args->n && status == WEFT_OK; i++) older[i] = c[i] = c[i] - older[i];
    return status;
}

/* Called once per optimizer step: the next step's first micro-batch accumulates onto zero. */
static weft_status clip(weft_device *device, weft_stream *s, const weft_clip *args, weft_error *err) {
    for (int i = 0; i < n_shapes; i++) memset(shapes[i].older, 0, (size_t)(shapes[i].m * shapes[i].n) * sizeof(float));
    return real.clip(device, s, args, err);
}

FAULT_NOTE(device, "inside")
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.matmul = matmul;
    table.clip = clip;
    table.matmul_workspace = matmul_workspace;
    return fault_list(plugin, "inside", &table);
}
