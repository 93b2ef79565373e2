/* host/run/checksums.c: see checksums.h. */
#include "run/checksums.h"

#include "plugin/enter.h"

#include <stdlib.h>

enum { PIECE = 1 << 16 };

/* What one rank has of a parameter. */
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

/* Elements [first, first + n); of what is packed, byte by byte. */
static uint64_t sum_elements(const unsigned char *bytes, int32_t dtype, int64_t n, int64_t first) {
    const int64_t width = weft_dtype_bytes(dtype);
    if (weft_dtype_block(dtype) == 1) return weft_checksum_of(bytes, width, n, first);
    return weft_checksum_of(bytes, 1, weft_dtype_span(dtype, n), weft_dtype_span(dtype, first));
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
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, staging,
                         weft_ref_at(ref, place + weft_dtype_span(dtype, at - begin)), weft_dtype_span(dtype, n));
        if (status == WEFT_OK) out->sum += sum_elements(staging, dtype, n, at);
    }
    out->n = end - begin;
    return status;
}

static weft_status read_own(part *own, const weft_engine *engine, weft_error *err) {
    const int32_t n = engine->plan.declared->n_parameters;
    unsigned char *staging = malloc((size_t)weft_f32_bytes(PIECE));
    weft_status status = WEFT_OK;
    if (staging == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to compare parameters");
    WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    for (int32_t i = 0; i < weft_checksums_count(engine) && status == WEFT_OK; i++)
        status = read_part(&own[i], staging, engine, i / n, i % n, err);
    free(staging);
    return status;
}

/* all: [world][count], own row filled. */
static weft_status share_parts(part *all, const weft_engine *engine, weft_error *err) {
    const weft_ranks *ranks = &engine->ranks;
    const int64_t bytes = weft_checksums_count(engine) * (int64_t)sizeof *all;
    weft_transfer transfer = {.group = ranks->everyone, .n = bytes, .dtype = WEFT_U8};
    weft_buffer *buffer = NULL;
    weft_status status = WEFT_OK;
    if (ranks->world == 1) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, alloc, err, engine->device, &buffer, bytes * ranks->world);
    if (status != WEFT_OK) return status;
    transfer.to.buffer = buffer;
    transfer.from = weft_ref_at(transfer.to, bytes * ranks->rank);
    WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, transfer.from,
                     all + (size_t)ranks->rank * (size_t)weft_checksums_count(engine), bytes);
    if (status == WEFT_OK) status = weft_ranks_exchange(ranks, ranks->plugin->all_gather, "all_gather", &transfer, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, all, transfer.to,
                         bytes * ranks->world);
    WEFT_PLUGIN_TELL(engine->kernels, release, engine->device, buffer);
    return status;
}

/* Ranks that hold one copy together: those of a shard group, or each by itself. */
static int32_t copy_ranks(const weft_engine *engine, int32_t checksum) {
    const weft_parameter *p = &engine->plan.declared->parameters[checksum % engine->plan.declared->n_parameters];
    const weft_placement *placement = &engine->plan.train.job->spec.view.placements[p->unit];
    const int32_t holding = checksum < engine->plan.declared->n_parameters ? placement->parameters
                                                                           : placement->optimizer;
    return holding == WEFT_SHARDED ? placement->group : 1;
}

/* One checksum of all ranks' parts. */
static weft_status join_parts(uint64_t *out, weft_checksums_odd *odd, const part *all, const weft_engine *engine,
                              int32_t checksum, weft_error *err) {
    const weft_parameter *p = &engine->plan.declared->parameters[checksum % engine->plan.declared->n_parameters];
    const int32_t count = weft_checksums_count(engine), together = copy_ranks(engine, checksum);
    const bool is_kept = checksum < engine->plan.declared->n_parameters || p->trainable;
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
            return weft_error_set(err, WEFT_E_HOST, "the ranks from %d on hold %lld of the %lld elements of %s",
                                  (int)first, (long long)sum.n, (long long)p->numel, p->name);
        if (copies++ == 0) *out = sum.sum;
        else if (sum.sum != *out && odd->rank < 0) *odd = (weft_checksums_odd){first, checksum};
    }
    if (copies == 0 && is_kept) return weft_error_set(err, WEFT_E_HOST, "no rank holds %s", p->name);
    return WEFT_OK;
}

weft_status weft_checksums_take(uint64_t *out, weft_checksums_odd *odd, const weft_engine *engine, weft_error *err) {
    const size_t count = (size_t)weft_checksums_count(engine);
    weft_status status = WEFT_OK;
    part *all = calloc(count * (size_t)engine->ranks.world, sizeof *all);
    odd->rank = odd->checksum = -1;
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to compare %zu parameters", count);
    status = read_own(all + (size_t)engine->ranks.rank * count, engine, err);
    if (status == WEFT_OK) status = share_parts(all, engine, err);
    for (int32_t i = 0; i < (int32_t)count && status == WEFT_OK; i++)
        status = join_parts(&out[i], odd, all, engine, i, err);
    free(all);
    return status;
}
