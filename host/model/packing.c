/* host/model/packing.c: see region.h. */
#include "model/region.h"

#include <math.h>
#include <stdlib.h>
#include <weft/blocks.h>

#include "base/alloc.h"
#include "base/units.h"
#include "plugin/services.h"

enum {
    SCALED = 64,             /* elements of nf4 that share a scale */
    SHARED = 256 * SCALED,   /* elements with a common scale of scales */
    SOME = SHARED,           /* elements at once: complete blocks of any type */
    LOOKED_THROUGH = 1 << 26 /* elements of matrices that are packed together */
};

/* ---- scan of a matrix ---- */

/* Range of the scales of up to 256 times 64 elements. */
typedef struct scale_range {
    float least, most;
    double sum;
} scale_range;

typedef struct survey {
    weft_region_source *source;
    void *context;
    int32_t parameter;
    int64_t numel;
    weft_packing *out;
    scale_range *ranges; /* nf4 */
    weft_first_failure failure;
} survey;

static void look_at_scales(int64_t i, void *context) {
    survey *self = context;
    const int64_t n = weft_smaller(SHARED, self->numel - i * SHARED);
    float numbers[SHARED];
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    scale_range range = {INFINITY, 0, 0};
    if (atomic_load(&self->failure.is_set)) return;
    status = self->source(self->context, self->parameter, i * SHARED, n, WEFT_F32, numbers, &err);
    for (int64_t at = 0; at < n && status == WEFT_OK; at += SCALED) {
        const float scale = weft_largest(numbers + at, weft_smaller(SCALED, n - at));
        range.least = scale < range.least ? scale : range.least;
        range.most = scale > range.most ? scale : range.most;
        range.sum += (double)scale;
    }
    self->ranges[i] = range;
    weft_first_failure_keep(&self->failure, status, &err);
}

/* Computes the mean of the scales in the order of the matrix, and the maximum distance from it for each group that
 * shares a scale. */
static void settle_scales(survey *self) {
    const int64_t scales = (self->numel + SCALED - 1) / SCALED, n = (self->numel + SHARED - 1) / SHARED;
    double sum = 0;
    float added = 0;
    for (int64_t i = 0; i < n; i++) sum += self->ranges[i].sum;
    added = (float)(sum / (double)scales);
    for (int64_t i = 0; i < n; i++) {
        const float up = fabsf(self->ranges[i].most - added), down = fabsf(self->ranges[i].least - added);
        self->out->scales[i] = up > down ? up : down;
    }
    self->out->added = added;
}

static void look_at_row(int64_t row, void *context) {
    survey *self = context;
    const int64_t width = self->out->width;
    float numbers[SOME], largest = 0;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (atomic_load(&self->failure.is_set)) return;
    for (int64_t at = 0; at < width && status == WEFT_OK; at += SOME) {
        const int64_t n = weft_smaller(SOME, width - at);
        float some = 0;
        status = self->source(self->context, self->parameter, row * width + at, n, WEFT_F32, numbers, &err);
        if (status == WEFT_OK) some = weft_largest(numbers, n);
        if (!(some <= largest)) largest = some; /* also if it is NaN, which no later value replaces */
    }
    self->out->scales[row] = largest;
    weft_first_failure_keep(&self->failure, status, &err);
}

weft_status weft_packing_open(weft_packing *out, const weft_declared *declared, int32_t parameter,
                              weft_region_source *source, void *context, weft_error *err) {
    const weft_parameter *p = &declared->parameters[parameter];
    survey self = {.source = source,
                   .context = context,
                   .parameter = parameter,
                   .numel = p->numel,
                   .out = out,
                   .failure = {.err = err}};
    const bool is_nf4 = p->dtype == WEFT_NF4;
    const int64_t width = is_nf4 ? SHARED : p->scaled_by_rows ? p->dims[1] : 0;
    const int64_t n = width == 0 ? 0 : (p->numel + width - 1) / width;
    *out = (weft_packing){.dtype = p->dtype, .width = width};
    if (n == 0) return WEFT_OK;
    out->scales = weft_alloc(n, sizeof *out->scales);
    if (is_nf4) self.ranges = weft_alloc(n, sizeof *self.ranges);
    weft_services()->parallel_for(weft_services(), n, is_nf4 ? look_at_scales : look_at_row, &self);
    if (self.failure.status == WEFT_OK && is_nf4) settle_scales(&self);
    free(self.ranges);
    return self.failure.status;
}

/* ---- packing ---- */

static void put_block(const weft_packing *self, char *out, const float *x, int64_t first, int64_t n) {
    weft_i8x64 i8;
    weft_nf4 nf4;
    weft_nf4x64 nf4x64;
    weft_f8x128 f8;
    switch (self->dtype) {
    case WEFT_NF4:
        weft_nf4_pack(&nf4, x, (int)n, self->scales[first / self->width], self->added);
        memcpy(out, &nf4, sizeof nf4);
        break;
    case WEFT_NF4X64:
        weft_nf4x64_pack(&nf4x64, x, (int)n);
        memcpy(out, &nf4x64, sizeof nf4x64);
        break;
    case WEFT_F8X128:
        weft_f8x128_pack(&f8, x, (int)n);
        memcpy(out, &f8, sizeof f8);
        break;
    default:
        if (self->width > 0) weft_i8x64_pack_row(&i8, x, self->scales[first / self->width]);
        else weft_i8x64_pack(&i8, x);
        memcpy(out, &i8, sizeof i8);
        break;
    }
}

void weft_packing_put(const weft_packing *self, void *out, const float *numbers, int64_t first, int64_t n) {
    const int64_t block = weft_dtype_block(self->dtype);
    for (int64_t at = 0; at < n; at += block)
        put_block(self, (char *)out + weft_dtype_span(self->dtype, at), numbers + at, first + at,
                  weft_smaller(block, n - at));
}

void weft_packing_take(float *out, int32_t dtype, const void *blocks, int64_t n) {
    const int64_t block = weft_dtype_block(dtype);
    for (int64_t at = 0; at < n; at += block) {
        const char *from = (const char *)blocks + weft_dtype_span(dtype, at);
        float numbers[1024];
        weft_i8x64 i8;
        weft_nf4 nf4;
        weft_nf4x64 nf4x64;
        weft_f8x128 f8;
        if (dtype == WEFT_NF4) memcpy(&nf4, from, sizeof nf4), weft_nf4_unpack(numbers, &nf4);
        else if (dtype == WEFT_NF4X64) memcpy(&nf4x64, from, sizeof nf4x64), weft_nf4x64_unpack(numbers, &nf4x64);
        else if (dtype == WEFT_F8X128) memcpy(&f8, from, sizeof f8), weft_f8x128_unpack(numbers, &f8);
        else memcpy(&i8, from, sizeof i8), weft_i8x64_unpack(numbers, &i8);
        memcpy(out + at, numbers, (size_t)weft_smaller(block, n - at) * sizeof *out);
    }
}

/* ---- filling a region ---- */

typedef struct filling {
    const weft_region *region;
    const bool *is_packed_now;
    weft_region_source *source;
    void *context;
    weft_packing *packings; /* indexed by parameter */
} filling;

static weft_status fill_packed(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype, void *out,
                               weft_error *err) {
    const filling *self = context;
    float numbers[SOME];
    weft_status status = WEFT_OK;
    if (!self->is_packed_now[parameter]) return self->source(self->context, parameter, first, n, dtype, out, err);
    for (int64_t at = 0; at < n && status == WEFT_OK; at += SOME) {
        const int64_t some = weft_smaller(SOME, n - at);
        status = self->source(self->context, parameter, first + at, some, WEFT_F32, numbers, err);
        if (status == WEFT_OK)
            weft_packing_put(&self->packings[parameter], (char *)out + weft_dtype_span(dtype, at), numbers, first + at,
                             some);
    }
    return status;
}

bool weft_packing_is_kept(const weft_region *region, int32_t parameter) {
    const weft_parameter *p = &region->declared->parameters[parameter];
    int64_t begin = 0, end = 0, at = 0;
    return region->hold == NULL || weft_hold_find(region->hold, p, 0, p->numel, &begin, &end, &at);
}

weft_status weft_packing_fill(const weft_region *region, const int32_t *parameters, int32_t n,
                              const bool *is_packed_now, weft_region_source *source, void *context, weft_error *err) {
    filling self = {region, is_packed_now, source, context, NULL};
    weft_status status = WEFT_OK;
    self.packings = weft_alloc(region->declared->n_parameters, sizeof *self.packings);
    for (int32_t first = 0, end = 0; first < n && status == WEFT_OK; first = end) {
        int64_t elements = 0; /* of matrices that are scanned and filled together */
        for (; end < n && elements < LOOKED_THROUGH && status == WEFT_OK; end++) {
            const int32_t p = parameters[end];
            if (is_packed_now[p]) elements += region->declared->parameters[p].numel;
            if (is_packed_now[p] && weft_packing_is_kept(region, p))
                status = weft_packing_open(&self.packings[p], region->declared, p, source, context, err);
        }
        if (status == WEFT_OK)
            status = weft_region_fill(region, parameters + first, end - first, fill_packed, &self, err);
        for (int32_t i = first; i < end; i++) free(self.packings[parameters[i]].scales);
    }
    free(self.packings);
    return status;
}
