/* host/run/engine_hash.c: the run's bits as one SHA-256: of the parameters, and of each optimizer state of the
 * trained ones, parameter after parameter in the order of declaration, names and shapes included. Numbers count in
 * fp32, whatever holds them, and what is packed by its bytes. Padding does not count, so that the hash is the same
 * however the layout cuts. In fp16 the loss scale is one of the bits. */
#include "run/checkpoint.h"

#include "base/hash.h"
#include "model/convert.h"
#include "model/region.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* What is hashed, and room for a piece of it. */
typedef struct hashing {
    const weft_engine *engine;
    weft_hash hash;
    void *staging;
    float *wide;
} hashing;

static void put_name(hashing *self, const char *what, const weft_parameter *p) {
    char text[1024];
    const int n = snprintf(text, sizeof text, "%s %s (%lld, %lld)\n", what, p->name, (long long)p->dims[0],
                           (long long)(p->rank > 1 ? p->dims[1] : 1));
    weft_hash_put(&self->hash, text, n > 0 && (size_t)n < sizeof text ? (size_t)n : strlen(text));
}

static weft_status put_piece(hashing *self, const weft_region *region, int32_t parameter, int64_t first, int64_t n,
                             weft_error *err) {
    const int32_t dtype = weft_region_dtype(region, parameter);
    const void *values = NULL;
    const weft_status status = weft_region_read(region, parameter, first, n, self->staging, &values, err);
    if (status != WEFT_OK) return status;
    if (weft_convert(self->wide, WEFT_F32, values, dtype, n))
        weft_hash_put(&self->hash, self->wide, (size_t)weft_f32_bytes(n));
    else weft_hash_put(&self->hash, values, (size_t)weft_dtype_span(dtype, n));
    return WEFT_OK;
}

static weft_status put_region(hashing *self, const char *what, const weft_region *region, bool trainable_only,
                              weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        if (trainable_only && !p->trainable) continue;
        put_name(self, what, p);
        for (int64_t first = 0; first < p->numel && status == WEFT_OK; first += WEFT_REGION_PIECE) {
            const int64_t n = p->numel - first < WEFT_REGION_PIECE ? p->numel - first : WEFT_REGION_PIECE;
            status = put_piece(self, region, i, first, n, err);
        }
    }
    return status;
}

static void put_scale(hashing *self) {
    const weft_loss_scale *scale = &self->engine->scale;
    char text[120];
    const int n = snprintf(text, sizeof text, "loss scale %a, %lld good, %lld skipped\n", (double)scale->scale,
                           (long long)scale->good, (long long)scale->skipped);
    weft_hash_put(&self->hash, text, (size_t)n);
}

weft_status weft_engine_hash(char hex[65], const weft_engine *engine, weft_error *err) {
    const weft_region parameters = weft_engine_parameters(engine);
    hashing self = {.engine = engine};
    unsigned char digest[WEFT_HASH_BYTES];
    weft_status status = weft_hash_start(&self.hash, err);
    self.staging = malloc((size_t)weft_f32_bytes(WEFT_REGION_PIECE));
    self.wide = malloc((size_t)weft_f32_bytes(WEFT_REGION_PIECE));
    if (self.staging == NULL || self.wide == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory to hash the run");
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    if (status == WEFT_OK) status = put_region(&self, "parameter", &parameters, false, err);
    for (int64_t i = 0; engine->plan.spec.training && i < engine->plan.n_states && status == WEFT_OK; i++) {
        const weft_region region = weft_engine_state(engine, i);
        status = put_region(&self, engine->plan.states[i].name, &region, true, err);
    }
    if (status == WEFT_OK && engine->plan.spec.training && weft_plan_scales(&engine->plan)) put_scale(&self);
    if (status == WEFT_OK) status = weft_hash_finish(&self.hash, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    free(self.wide);
    free(self.staging);
    weft_hash_free(&self.hash);
    return status;
}
