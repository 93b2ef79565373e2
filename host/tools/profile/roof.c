/* host/tools/profile/roof.c: see roof.h. The device's extension does the measuring. */
#include "tools/profile/roof.h"

#include "plugin/device_asks.h"
#include "plugin/enter.h"

#include <weft/roof.h>

static weft_status find_roof(const weft_device_roof **out, const weft_engine *engine, weft_error *err) {
    *out = weft_device_find(engine->kernels, engine->device, WEFT_DEVICE_ROOF);
    if (*out != NULL && WEFT_WHOLE(*out, weft_device_roof) && (*out)->peak != NULL && (*out)->product != NULL &&
        (*out)->bandwidth != NULL)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "device %s has no extension %s, with which it would measure its roof: leave --roof out",
                          engine->plan.run->parts[WEFT_PART_DEVICE].loaded->plugin->id, WEFT_DEVICE_ROOF);
}

static weft_status measure_row(weft_roof_row *row, const weft_engine *engine, const weft_device_roof *device,
                               const weft_profile_product *product, weft_error *err) {
    const weft_product_shape *shape = &product->shape;
    const weft_roof_product args = {.struct_size = (uint32_t)sizeof args,
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

static weft_status measure_products(weft_roof *out, const weft_engine *engine, const weft_device_roof *device,
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

weft_status weft_roof_measure(weft_roof *out, const weft_engine *engine, const weft_profile *profile, weft_error *err) {
    const weft_device_roof *device = NULL;
    weft_doing before;
    weft_status status = find_roof(&device, engine, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    before = weft_plugin_enter(engine->kernels, WEFT_DEVICE_ROOF);
    status = device->peak(engine->device, &out->peak, engine->plan.dtype, err);
    if (status == WEFT_OK) status = device->bandwidth(engine->device, &out->bandwidth, err);
    if (status == WEFT_OK) status = measure_products(out, engine, device, profile, err);
    return weft_plugin_leave(before, status, err);
}

double weft_roof_of(const weft_roof *roof, const weft_profile_row *row) {
    double flops = 0.0, seconds = 0.0;
    if (row->flops <= 0.0) return roof->bandwidth;
    for (int32_t i = 0; i < roof->n_rows; i++) {
        const weft_roof_row *product = &roof->rows[i];
        if (product->operation != row->operation || product->part != row->part) continue;
        flops += (double)product->calls * product->flops;
        seconds += (double)product->calls * product->seconds;
    }
    return seconds > 0.0 ? flops / seconds : roof->products;
}
