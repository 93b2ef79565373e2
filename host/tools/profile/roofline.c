/* host/tools/profile/roofline.c: see roofline.h. The device's extension does the measuring. */
#include "tools/profile/roofline.h"

#include "plugin/device_queries.h"
#include "plugin/enter.h"

#include <weft/roofline.h>

static weft_status find_roofline(const weft_device_roofline **out, const weft_engine *engine, weft_error *err) {
    *out = weft_device_find(engine->kernels, engine->device, WEFT_DEVICE_ROOFLINE);
    if (*out != NULL && WEFT_WHOLE(*out, weft_device_roofline) && (*out)->peak != NULL && (*out)->product != NULL &&
        (*out)->bandwidth != NULL)
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "device %s has no extension %s, with which it would measure its roofline: leave --roofline out",
        engine->plan.run->parts[WEFT_PART_DEVICE].loaded->plugin->id, WEFT_DEVICE_ROOFLINE);
}

static weft_status measure_row(weft_roofline_row *row, const weft_engine *engine, const weft_device_roofline *device,
                               const weft_profile_product *product, weft_error *err) {
    const weft_product_shape *shape = &product->shape;
    const weft_roofline_product args = {.struct_size = (uint32_t)sizeof args,
                                        .m = shape->m,
                                        .n = shape->n,
                                        .k = shape->k,
                                        .transpose_a = shape->transpose_a,
                                        .transpose_b = shape->transpose_b,
                                        .dtype = engine->plan.dtype};
    row->operation = product->operation;
    row->part = product->part;
    row->shape = *shape;
    row->calls = product->calls;
    row->flops = 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
    return device->product(engine->device, &row->seconds, &args, err);
}

static weft_status measure_products(weft_roofline *out, const weft_engine *engine, const weft_device_roofline *device,
                                    const weft_profile *profile, weft_error *err) {
    const weft_profile_product *products = weft_profile_products(profile, &out->n_rows);
    double flops = 0.0, seconds = 0.0;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < out->n_rows && status == WEFT_OK; i++) {
        status = measure_row(&out->rows[i], engine, device, &products[i], err);
        flops += (double)out->rows[i].calls * out->rows[i].flops;
        seconds += (double)out->rows[i].calls * out->rows[i].seconds;
    }
    out->products = seconds > 0.0 ? flops / seconds : 0.0;
    return status;
}

weft_status weft_roofline_measure(weft_roofline *out, const weft_engine *engine, const weft_profile *profile,
                                  weft_error *err) {
    const weft_device_roofline *device = NULL;
    weft_doing before;
    weft_status status = find_roofline(&device, engine, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    before = weft_plugin_enter(engine->kernels, WEFT_DEVICE_ROOFLINE);
    status = device->peak(engine->device, &out->peak, engine->plan.dtype, err);
    if (status == WEFT_OK) status = device->bandwidth(engine->device, &out->bandwidth, err);
    if (status == WEFT_OK) status = measure_products(out, engine, device, profile, err);
    return weft_plugin_leave(before, status, err);
}

double weft_roofline_of(const weft_roofline *roofline, const weft_profile_row *row) {
    double flops = 0.0, seconds = 0.0;
    if (row->flops <= 0.0) return roofline->bandwidth;
    for (int32_t i = 0; i < roofline->n_rows; i++) {
        const weft_roofline_row *product = &roofline->rows[i];
        if (product->operation != row->operation || product->part != row->part) continue;
        flops += (double)product->calls * product->flops;
        seconds += (double)product->calls * product->seconds;
    }
    return seconds > 0.0 ? flops / seconds : roofline->products;
}
