/* host/report/rate_elements.c: measures adding, copying, rounding, squaring and updating flat regions. */
#include "base/sizes.h"
#include "report/rater.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* Regions of n fp32 elements each. */
enum { REGION_WEIGHT, REGION_GRADIENT, REGION_OTHER, REGION_STATES, N_REGIONS = REGION_STATES + WEFT_MAX_STATES };

typedef struct flat {
    const weft_engine *engine;
    weft_buffer *buffer;
    int64_t n;
    weft_ref small, workspace; /* hp, coefficient, skip, a row of ranges; scratch */
    int32_t kind;              /* weft_rate_kind being timed */
} flat;

enum { AT_RESULT = 0, AT_COEFFICIENT = 64, AT_SKIP = 128, AT_HP = 192, AT_RANGE = AT_HP + WEFT_MAX_HP };

static weft_ref region_at(const flat *self, int32_t index) {
    const weft_ref out = {self->buffer, weft_f32_bytes(self->n) * index};
    return out;
}

static weft_status run_update(const flat *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_update_region region = {.struct_size = (uint32_t)sizeof region,
                                 .weight = region_at(self, REGION_WEIGHT),
                                 .gradient = region_at(self, REGION_GRADIENT),
                                 .ranges = weft_ref_at(self->small, AT_RANGE),
                                 .n = self->n,
                                 .n_ranges = 1,
                                 .range_stride = (uint32_t)sizeof(weft_range)};
    weft_update args = {.struct_size = (uint32_t)sizeof args,
                        .hp = weft_ref_at(self->small, AT_HP),
                        .coefficient = weft_ref_at(self->small, AT_COEFFICIENT),
                        .skip = weft_ref_at(self->small, AT_SKIP),
                        .regions = &region,
                        .n_regions = 1,
                        .region_stride = (uint32_t)sizeof region};
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < engine->plan.n_states; i++) {
        region.states[i] = region_at(self, REGION_STATES + (int32_t)i);
        region.state_dtypes[i] = engine->plan.states[i].dtype;
    }
    WEFT_PLUGIN_ASK(args.kernel, engine->optimizer_plugin, update, engine->optimizer);
    WEFT_PLUGIN_CALL(status, engine->kernels, update, err, engine->device, NULL, &args);
    return status;
}

static weft_square_sum make_square_sum(const flat *self) {
    const weft_square_sum args = {.struct_size = (uint32_t)sizeof args,
                                  .x = region_at(self, REGION_GRADIENT),
                                  .out = weft_ref_at(self->small, AT_RESULT),
                                  .n = self->n,
                                  .workspace = self->workspace,
                                  .dtype = WEFT_F32};
    return args;
}

static weft_status run_elements(void *context, weft_error *err) {
    const flat *self = context;
    const weft_engine *engine = self->engine;
    const weft_ref a = region_at(self, REGION_WEIGHT), b = region_at(self, REGION_OTHER);
    const weft_add sum = {.struct_size = (uint32_t)sizeof sum, .a = a, .b = b, .y = a, .n = self->n, .dtype = WEFT_F32};
    const weft_square_sum square = make_square_sum(self);
    weft_status status = WEFT_OK;
    switch (self->kind) {
    case WEFT_RATE_ADD: WEFT_PLUGIN_CALL(status, engine->kernels, add, err, engine->device, NULL, &sum); break;
    case WEFT_RATE_COPY:
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, a, b, weft_f32_bytes(self->n));
        break;
    case WEFT_RATE_CONVERT:
        WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, a, WEFT_BF16, b, WEFT_F32,
                         self->n);
        break;
    case WEFT_RATE_SQUARES:
        WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &square);
        break;
    default: status = run_update(self, err); break;
    }
    return status;
}

static weft_status write_piece(const flat *self, int64_t at, const void *from, int64_t bytes, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, weft_ref_at(self->small, at), from,
                     bytes);
    return status;
}

/* Prepares the optimizer's first step with zeroed states. */
static weft_status set_up_update(const flat *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_range range = {(uint32_t)sizeof range, 0, 0, self->n, 1.0f, 1.0f};
    const weft_step_info info = {(uint32_t)sizeof info, 0, 1, 1e-6};
    const float coefficient = 1e-3f;
    const int32_t skip = 0;
    const int64_t bytes = engine->plan.hp_bytes;
    void *hp = calloc(1, (size_t)bytes + 1);
    weft_status status = WEFT_OK;
    if (hp == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the %lld bytes of the optimizer's numbers",
                                (long long)bytes);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->optimizer_plugin, prepare, err, engine->optimizer, hp, &info);
    if (status == WEFT_OK) status = write_piece(self, AT_HP, hp, bytes, err);
    free(hp);
    if (status == WEFT_OK) status = write_piece(self, AT_RANGE, &range, (int64_t)sizeof range, err);
    if (status == WEFT_OK) status = write_piece(self, AT_COEFFICIENT, &coefficient, (int64_t)sizeof coefficient, err);
    if (status == WEFT_OK) status = write_piece(self, AT_SKIP, &skip, (int64_t)sizeof skip, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, region_at(self, REGION_STATES), 0,
                         self->n * WEFT_MAX_STATES);
    return status;
}

/* Returns the region's length: the largest group, limited to a length that shows the memory speed. */
static int64_t length_of(const weft_engine *engine) {
    enum { MOST = 1 << 22, GRAIN = 256 }; /* whole blocks of any state */
    int64_t n = 1024;
    for (int32_t g = 0; g < engine->plan.layout->n_trainable_groups; g++)
        if (engine->plan.layout->groups[g].numel > n) n = engine->plan.layout->groups[g].numel;
    return n > MOST ? MOST : n / GRAIN * GRAIN;
}

weft_status weft_rate_elements(weft_rates *out, weft_engine *engine, weft_error *err) {
    flat self = {.engine = engine, .n = length_of(engine)};
    const int64_t regions = weft_f32_bytes(self.n) * N_REGIONS;
    const int64_t small = weft_cache_lines(AT_RANGE + (int64_t)sizeof(weft_range));
    const weft_square_sum square = make_square_sum(&self);
    const int64_t scratch = engine->kernels->square_sum_workspace(engine->device, &square);
    weft_status status = weft_rater_take(engine, &self.buffer, regions + small + scratch, err);
    self.small.buffer = self.workspace.buffer = self.buffer;
    self.small.offset = regions;
    self.workspace.offset = regions + small;
    if (status == WEFT_OK) status = set_up_update(&self, err);
    for (self.kind = 0; self.kind < WEFT_N_RATES && status == WEFT_OK; self.kind++) {
        weft_work *rate = &out->elements[self.kind];
        status = weft_rater_time(engine, rate, run_elements, &self, err);
        rate->alone /= (double)self.n;
        rate->together /= (double)self.n;
    }
    weft_rater_give(engine, self.buffer);
    return status;
}
