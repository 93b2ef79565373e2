/* update.c: an optimizer's element-wise update over flat regions, each divided by its table of ranges and then into
 * chunks. All regions are validated before any is updated. */
#include "update_stored.h"

typedef struct update_operands {
    const char *ranges; /* rows `stride` bytes apart: a host with a later SDK may have longer ones */
    int64_t stride;
    const float *coefficient;
    const int32_t *skip;
    cpu_stored stored;
    weft_elementwise_call call; /* except range and bounds; weight and states only in fp32 */
} update_operands;

static const weft_range *range_at(const update_operands *o, int64_t i) {
    return (const weft_range *)(const void *)(o->ranges + i * o->stride);
}

static void look_up_ranges(operands *c, update_operands *o, const weft_update_region *region) {
    if (region->n_ranges == 0) return;
    o->stride = region->range_stride;
    o->ranges = operands_need_rows(c, region->ranges, "ranges", region->n_ranges, region->range_stride,
                                   WEFT_SIZE_1_0(weft_range));
}

/* Fails unless the ranges are in [0, n), ascending and disjoint; elements between them are padding. */
static void check_ranges(operands *c, const update_operands *o, int64_t n_ranges, int64_t n) {
    int64_t i = 0, at = 0;
    for (i = 0; i < n_ranges && c->status == WEFT_OK; i++) {
        const weft_range *r = range_at(o, i);
        const bool whole = WEFT_WHOLE(r, weft_range) && r->struct_size <= o->stride;
        if (whole && r->offset >= at && r->length >= 0 && r->length <= n - r->offset &&
            r->offset % o->stored.block == 0) {
            at = r->offset + r->length;
            continue;
        }
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "update on device cpu: ranges[%lld] has struct_size %u, offset %lld and length "
                                   "%lld. Allowed: a struct_size of %u to %lld, and a range within %lld to %lld that "
                                   "begins at a multiple of the block of %lld.",
                                   (long long)i, r->struct_size, (long long)r->offset, (long long)r->length,
                                   WEFT_SIZE_1_0(weft_range), (long long)o->stride, (long long)at, (long long)n,
                                   (long long)o->stored.block);
    }
}

static void look_up_shared(operands *c, update_operands *o, const weft_update *args) {
    const weft_elementwise *kernel = args->kernel;
    if (c->status == WEFT_OK &&
        (kernel == NULL || kernel->cpu == NULL || kernel->n_states < 0 || kernel->n_states > WEFT_MAX_STATES)) {
        c->status =
            weft_error_set(c->err, WEFT_E_PLUGIN,
                           "update on device cpu: the optimizer's kernel has no CPU loop or not 0 to %d states.",
                           WEFT_MAX_STATES);
    }
    o->call.struct_size = (uint32_t)sizeof o->call;
    o->call.hp = operands_need(c, args->hp, "hp", 1, 1, 4);
    o->coefficient = operands_need(c, args->coefficient, "coefficient", 1, 1, 4);
    o->skip = operands_need(c, args->skip, "skip", 1, 1, 4);
    operands_regions(c, args);
}

/* shared: result of look_up_shared. */
static update_operands look_up_region(operands *c, const update_operands *shared, const weft_elementwise *kernel,
                                      const weft_update_region *region) {
    static const char *const names[WEFT_MAX_STATES] = {"states[0]", "states[1]", "states[2]", "states[3]"};
    update_operands o = *shared;
    int64_t i = 0;
    operands_region(c, region);
    if (c->status != WEFT_OK) return o;
    cpu_stored_look_up(c, &o.stored, &o.stored.weight, region->weight, "weight", region->weight_dtype, region->n);
    o.call.gradient = operands_need(c, region->gradient, "gradient", region->n, 1, 4);
    for (i = 0; i < kernel->n_states; i++)
        cpu_stored_look_up(c, &o.stored, &o.stored.states[i], region->states[i], names[i], region->state_dtypes[i],
                           region->n);
    o.stored.copy = operands_copy(c, region, &o.stored.copy_dtype);
    if (!o.stored.is_narrow) {
        o.call.weight = (float *)(void *)o.stored.weight.at;
        for (i = 0; i < kernel->n_states; i++) o.call.states[i] = (float *)(void *)o.stored.states[i].at;
    }
    look_up_ranges(c, &o, region);
    if (c->status == WEFT_OK) check_ranges(c, &o, region->n_ranges, region->n);
    return o;
}

/* Writes without a change: replaces a first byte of zero by zero. */
static void touch_line(float *at) {
    unsigned char zero = 0;
    (void)__atomic_compare_exchange_n((unsigned char *)at, &zero, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* A cleared state has no pages yet (memory.c). Its first access must be a write: a read maps the kernel's zero page,
 * and older kernels then assign small pages instead of a huge one. A chunk spans at most two huge pages. */
static void touch_states(const weft_elementwise *kernel, const weft_elementwise_call *call) {
    for (int32_t i = 0; i < kernel->n_states; i++) {
        touch_line(call->states[i] + call->begin);
        touch_line(call->states[i] + call->end - 1);
    }
}

static void update_range(const weft_device *device, const weft_elementwise *kernel, const update_operands *o,
                         const weft_range *range) {
    const int64_t pieces = size_ceil_div(range->length, CPU_GRAIN);
#pragma omp parallel for schedule(static) num_threads(device->threads) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++) {
        weft_elementwise_call call = o->call;
        call.range = range;
        call.begin = range->offset + i * CPU_GRAIN;
        call.end = size_min(call.begin + CPU_GRAIN, range->offset + range->length);
        if (o->stored.is_narrow) {
            cpu_stored_update(device, kernel, &o->stored, &call);
            continue;
        }
        touch_states(kernel, &call);
        kernel->cpu(&call);
        cpu_stored_copy(device, &o->stored, call.weight + call.begin, call.begin, call.end - call.begin);
    }
}

static void update_region(operands *c, const weft_device *device, const weft_update *args,
                          const update_operands *shared, const weft_update_region *region) {
    const update_operands o = look_up_region(c, shared, args->kernel, region);
    for (int64_t i = 0; i < region->n_ranges; i++) update_range(device, args->kernel, &o, range_at(&o, i));
}

CPU_KERNEL(update, weft_update) {
    operands c = OPERANDS("update", weft_update, args, err);
    update_operands shared = {.stored.block = 1};
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    look_up_shared(&c, &shared, args);
    for (int32_t i = 0; c.status == WEFT_OK && i < args->n_regions; i++)
        (void)look_up_region(&c, &shared, args->kernel, weft_update_region_at(args, i));
    if (c.status != WEFT_OK || *shared.skip != 0) return c.status;
    shared.call.coefficient = *shared.coefficient;
    for (int32_t i = 0; i < args->n_regions; i++)
        update_region(&c, device, args, &shared, weft_update_region_at(args, i));
    return WEFT_OK;
}
