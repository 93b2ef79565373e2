/* host/tools/common/checksums.c: see checksums.h. */
#include "tools/common/checksums.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/units.h"
#include "model/convert.h"
#include "model/region.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* Numbers count in fp32 for every type, packed weights by their bytes. staging: two pieces in fp32. */
static weft_status put_region(weft_hash *hash, float *staging, const char *what, const weft_region *region,
                              bool trainable_only, weft_error *err) {
    float *wide = staging + WEFT_REGION_PIECE;
    char text[1024];
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < region->declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &region->declared->parameters[i];
        const int32_t dtype = weft_region_dtype(region, i);
        if (trainable_only && !p->trainable) continue;
        (void)snprintf(text, sizeof text, "%s %s (%lld, %lld)\n", what, p->name, (long long)p->dims[0],
                       (long long)(p->rank > 1 ? p->dims[1] : 1));
        weft_hash_put(hash, text, strlen(text));
        for (int64_t first = 0; first < p->numel && status == WEFT_OK; first += WEFT_REGION_PIECE) {
            const int64_t m = weft_smaller(p->numel - first, WEFT_REGION_PIECE);
            const void *values = NULL;
            status = weft_region_read(region, i, first, m, staging, &values, err);
            if (status != WEFT_OK) break;
            if (weft_convert(wide, WEFT_F32, values, dtype, m)) weft_hash_put(hash, wide, (size_t)weft_f32_bytes(m));
            else weft_hash_put(hash, values, (size_t)weft_dtype_span(dtype, m));
        }
    }
    return status;
}

/* The hash covers the parameters and each optimizer state of the trained ones, in order of declaration, with names and
 * shapes, and in fp16 the loss scale. Padding is excluded, so the hash does not depend on the sharding. */
weft_status weft_engine_hash(char hex[65], const weft_engine *engine, weft_error *err) {
    const weft_plan *plan = &engine->plan;
    const weft_loss_scale *scale = &engine->scale;
    weft_region region = weft_engine_region(engine, WEFT_HOLD_PARAMETERS);
    float *staging = weft_alloc(2 * WEFT_REGION_PIECE, sizeof *staging);
    char text[120];
    unsigned char digest[WEFT_HASH_BYTES];
    weft_hash hash = {0};
    weft_status status = weft_hash_start(&hash, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    if (status == WEFT_OK) status = put_region(&hash, staging, "parameter", &region, false, err);
    for (int64_t i = 0; plan->spec.training && i < plan->n_states && status == WEFT_OK; i++) {
        region = weft_engine_region(engine, WEFT_HOLD_STATES + (int)i);
        status = put_region(&hash, staging, plan->states[i].name, &region, true, err);
    }
    if (status == WEFT_OK && plan->spec.training && weft_plan_scales(plan)) {
        const int n = snprintf(text, sizeof text, "loss scale %a, %lld good, %lld skipped\n", (double)scale->scale,
                               (long long)scale->good, (long long)scale->skipped);
        weft_hash_put(&hash, text, (size_t)n);
    }
    if (status == WEFT_OK) status = weft_hash_finish(&hash, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    free(staging);
    weft_hash_free(&hash);
    return status;
}

enum { PIECE = 1 << 16 };

/* One rank's shard of a parameter. */
typedef struct part {
    uint64_t sum;
    int64_t n; /* elements */
} part;

int32_t weft_checksums_count(const weft_engine *engine) {
    return (1 + (int32_t)engine->plan.n_states) * engine->plan.declared->n_parameters;
}

/* The finaliser of MurmurHash3. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return x ^ (x >> 33);
}

uint64_t weft_checksum_of(const unsigned char *bytes, int64_t width, int64_t n, int64_t first) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        for (int64_t k = 0; k < width; k++) bits |= (uint64_t)bytes[i * width + k] << (8 * k);
        sum += mix(((uint64_t)(first + i) * 0x9E3779B97F4A7C15u) ^ bits);
    }
    return sum;
}

/* Region 0 is the parameters, region 1 + i state i. */
static weft_status read_part(part *out, unsigned char *staging, const weft_engine *engine, int32_t region, int32_t p,
                             weft_error *err) {
    const weft_parameter *parameter = &engine->plan.declared->parameters[p];
    const weft_hold *hold = engine->plan.holds[region == 0 ? WEFT_HOLD_PARAMETERS : WEFT_HOLD_STATES + region - 1];
    const weft_ref ref = region == 0 ? engine->parameters.ref : engine->state[region - 1].ref;
    const int32_t dtype = region == 0 ? parameter->dtype : engine->plan.states[region - 1].dtype;
    int64_t begin = 0, end = 0, place = 0;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (region > 0 && !parameter->trainable) return WEFT_OK;
    if (!weft_hold_find(hold, parameter, 0, parameter->numel, &begin, &end, &place)) return WEFT_OK;
    for (int64_t at = begin; at < end && status == WEFT_OK; at += PIECE) {
        const int64_t n = end - at < PIECE ? end - at : PIECE;
        status = weft_engine_read(engine, staging, weft_ref_at(ref, place + weft_dtype_span(dtype, at - begin)),
                                  weft_dtype_span(dtype, n), err);
        if (status == WEFT_OK && weft_dtype_block(dtype) == 1)
            out->sum += weft_checksum_of(staging, weft_dtype_bytes(dtype), n, at);
        else if (status == WEFT_OK) /* packed weights byte by byte */
            out->sum += weft_checksum_of(staging, 1, weft_dtype_span(dtype, n), weft_dtype_span(dtype, at));
    }
    out->n = end - begin;
    return status;
}

/* Adds up one checksum of all ranks' shards. */
static weft_status join_parts(uint64_t *out, weft_checksums_odd *odd, const part *all, const weft_engine *engine,
                              int32_t checksum, weft_error *err) {
    const weft_parameter *p = &engine->plan.declared->parameters[checksum % engine->plan.declared->n_parameters];
    const weft_placement *placement = &engine->plan.train.job->spec.view.placements[p->unit];
    const bool of_parameters = checksum < engine->plan.declared->n_parameters;
    const int32_t holding = of_parameters ? placement->parameters : placement->optimizer;
    const int32_t together = holding == WEFT_SHARDED ? placement->group : 1; /* ranks of one copy */
    const int32_t count = weft_checksums_count(engine);
    int32_t copies = 0;
    *out = 0;
    for (int32_t first = 0; first < engine->ranks.world; first += together) {
        part sum = {0, 0};
        for (int32_t rank = first; rank < first + together; rank++) {
            sum.sum += all[(size_t)rank * (size_t)count + (size_t)checksum].sum;
            sum.n += all[(size_t)rank * (size_t)count + (size_t)checksum].n;
        }
        if (sum.n == 0) continue; /* another rank owns it */
        if (sum.n != p->numel)
            return weft_error_set(err, WEFT_E_HOST, "the ranks from %d on have %lld of the %lld elements of %s",
                                  (int)first, (long long)sum.n, (long long)p->numel, p->name);
        if (copies++ == 0) *out = sum.sum;
        else if (sum.sum != *out && odd->rank < 0) *odd = (weft_checksums_odd){first, checksum};
    }
    if (copies == 0 && (of_parameters || p->trainable))
        return weft_error_set(err, WEFT_E_HOST, "no rank has %s", p->name);
    return WEFT_OK;
}

weft_status weft_checksums_take(uint64_t *out, weft_checksums_odd *odd, const weft_engine *engine, weft_error *err) {
    const weft_ranks *ranks = &engine->ranks;
    const weft_rank_span span = {ranks->process_context, ranks->base, ranks->rank, ranks->world};
    const int32_t count = weft_checksums_count(engine), n = engine->plan.declared->n_parameters;
    part *mine = weft_alloc(count, sizeof *mine), *all = weft_alloc((int64_t)count * ranks->world, sizeof *all);
    unsigned char *staging = weft_alloc(PIECE, sizeof(float));
    weft_status status = WEFT_OK;
    odd->rank = odd->checksum = -1;
    WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    for (int32_t i = 0; i < count && status == WEFT_OK; i++)
        status = read_part(&mine[i], staging, engine, i / n, i % n, err);
    if (status == WEFT_OK)
        status = weft_process_context_all_gather(ranks->process_context, &span, ranks->everyone, all, mine,
                                                 count * (int64_t)sizeof *mine, err);
    for (int32_t i = 0; i < count && status == WEFT_OK; i++) status = join_parts(&out[i], odd, all, engine, i, err);
    free(staging);
    free(mine);
    free(all);
    return status;
}
