/* update_stored.c: see update_stored.h. */
#include "update_stored.h"

enum { RUN = 1024 }; /* elements at a time, complete blocks of any type: all arrays fit the L1 cache */

static bool is_storable(const cpu_stored *self, const cpu_stored_array *array, int32_t dtype) {
    if (dtype == WEFT_F32 || dtype == WEFT_BF16) return true;
    return array != &self->weight && (dtype == WEFT_DYN8X256 || dtype == WEFT_UDYN8X256);
}

void cpu_stored_look_up(operands *c, cpu_stored *self, cpu_stored_array *out, weft_ref ref, const char *name,
                        int32_t dtype, int64_t n) {
    const int32_t stored = dtype == 0 ? WEFT_F32 : dtype;
    const int64_t block = weft_dtype_block(stored);
    int64_t width = 0;
    if (c->status == WEFT_OK && !is_storable(self, out, stored))
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "%s on device %s: %s is %s; a weight is fp32 or bf16, a state also in 8-bit blocks.",
                                   c->kernel, operands_device, name, weft_dtype_name(stored));
    if (c->status == WEFT_OK && n % block != 0)
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device %s: n is %lld, which is no multiple of the blocks of %lld of %s.",
                                   c->kernel, operands_device, (long long)n, (long long)block, name);
    if (c->status != WEFT_OK) return;
    out->dtype = stored;
    width = weft_dtype_is_packed(stored) ? (int64_t)sizeof(float) : weft_dtype_bytes(stored); /* the scale of a block */
    out->at = operands_need(c, ref, name, weft_dtype_span(stored, n) / width, 1, width);
    if (block > self->block) self->block = block;
    if (stored != WEFT_F32) self->is_narrow = true;
}

static const weft_dynamic8 *map_of(const weft_device *device, int32_t dtype) {
    return &device->dynamic8[dtype == WEFT_UDYN8X256];
}

static void widen(const weft_device *device, float *out, const cpu_stored_array *from, int64_t first, int64_t n) {
    const char *at = from->at + weft_dtype_span(from->dtype, first);
    if (!weft_dtype_is_packed(from->dtype)) cpu_cells_of(device, from->dtype)->take(out, at, n, 0);
    else {
        const weft_dyn8x256 *blocks = (const weft_dyn8x256 *)(const void *)at;
        for (int64_t i = 0; i < n; i += 256)
            weft_dynamic8_unpack(out + i, map_of(device, from->dtype), blocks++, (int)size_min(256, n - i));
    }
}

static void narrow(const weft_device *device, const cpu_stored_array *to, int64_t first, const float *from, int64_t n) {
    char *at = to->at + weft_dtype_span(to->dtype, first);
    if (!weft_dtype_is_packed(to->dtype)) cpu_cells_of(device, to->dtype)->put(at, from, n, 0);
    else {
        weft_dyn8x256 *blocks = (weft_dyn8x256 *)(void *)at;
        for (int64_t i = 0; i < n; i += 256)
            weft_dynamic8_pack(blocks++, map_of(device, to->dtype), from + i, (int)size_min(256, n - i));
    }
}

void cpu_stored_copy(const weft_device *device, const cpu_stored *self, const float *weights, int64_t first,
                     int64_t n) {
    char *to = cpu_at(self->copy, first, weft_dtype_bytes(self->copy_dtype));
    if (to != NULL) cpu_cells_of(device, self->copy_dtype)->put(to, weights, n, 0);
}

/* Updates elements [first, first + n), n up to RUN, as a separate region for the loop. */
static void update_run(const weft_device *device, const weft_elementwise *kernel, const cpu_stored *self,
                       const weft_elementwise_call *whole, int64_t first, int64_t n) {
    float weight[RUN], states[WEFT_MAX_STATES][RUN];
    weft_elementwise_call call = *whole;
    call.weight = weight;
    call.gradient = whole->gradient + first;
    call.begin = 0;
    call.end = n;
    widen(device, weight, &self->weight, first, n);
    for (int64_t i = 0; i < kernel->n_states; i++) {
        call.states[i] = states[i];
        widen(device, states[i], &self->states[i], first, n);
    }
    kernel->cpu(&call);
    narrow(device, &self->weight, first, weight, n);
    if (self->copy != NULL) widen(device, weight, &self->weight, first, n); /* as stored */
    cpu_stored_copy(device, self, weight, first, n);
    for (int64_t i = 0; i < kernel->n_states; i++) narrow(device, &self->states[i], first, states[i], n);
}

void cpu_stored_update(const weft_device *device, const weft_elementwise *kernel, const cpu_stored *self,
                       const weft_elementwise_call *call) {
    for (int64_t at = call->begin; at < call->end; at += RUN)
        update_run(device, kernel, self, call, at, size_min(RUN, call->end - at));
}
