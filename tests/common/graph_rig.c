/* tests/common/graph_rig.c: the model, its device and its values. See graph_rig.h; chains are in graph_chain.c. */
#include "graph_rig.h"

#include "config/config.h"
#include "model/convert.h"
#include "plugin/plugin.h"
#include "plugin/services.h"
#include "reference_device.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <weft/blocks.h>

void rig_ok(weft_status status, const weft_error *err) {
    ck_assert_msg(status == WEFT_OK, "status %d: %s", (int)status, err->text);
}

double rig_uniform(rig *r) {
    uint64_t x = r->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) / 4503599627370496.0 - 1.0;
}

int32_t rig_below(rig *r, int32_t n) {
    return (int32_t)((rig_uniform(r) + 1.0) / 2.0 * n);
}

weft_slot_ref rig_slot(rig *r, int64_t bytes) {
    weft_error err = WEFT_ERROR_INIT;
    weft_slot_ref slot = {.bytes = bytes};
    ck_assert_int_lt(r->n_buffers, RIG_BUFFERS);
    if (bytes == 0) return slot;
    rig_ok(r->kernels->alloc(r->device, &r->buffers[r->n_buffers], bytes, &err), &err);
    slot.ref.buffer = r->buffers[r->n_buffers++];
    rig_ok(r->kernels->fill(r->device, NULL, slot.ref, 0x7fc00000u, bytes / 4, &err), &err); /* NaN */
    return slot;
}

void rig_write(const rig *r, weft_ref to, const void *from, int64_t bytes) {
    weft_error err = WEFT_ERROR_INIT;
    rig_ok(r->kernels->write(r->device, NULL, to, from, bytes, &err), &err);
}

void rig_read(const rig *r, void *to, weft_ref from, int64_t bytes) {
    weft_error err = WEFT_ERROR_INIT;
    rig_ok(r->kernels->read(r->device, NULL, to, from, bytes, &err), &err);
}

float *rig_floats(const rig *r, weft_ref from, int64_t n) {
    float *values = malloc((size_t)n * sizeof *values + 1);
    ck_assert_ptr_nonnull(values);
    rig_read(r, values, from, n * (int64_t)sizeof *values);
    return values;
}

float *rig_numbers(const rig *r, weft_ref from, int64_t n) {
    const int64_t bytes = n * weft_dtype_bytes(r->dtype);
    float *values = malloc((size_t)n * sizeof *values + 1);
    void *stored = malloc((size_t)bytes + 1);
    ck_assert(values != NULL && stored != NULL);
    rig_read(r, stored, from, bytes);
    ck_assert(weft_convert(values, WEFT_F32, stored, r->dtype, n));
    free(stored);
    return values;
}

double rig_distance(const float *a, const float *b, int64_t n) {
    double apart = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return size > 0.0 ? sqrt(apart / size) : sqrt(apart);
}

static weft_value forward(const weft_model *model, uint32_t segment, weft_graph *g, const weft_ops *ops,
                          weft_value carry) {
    const rig *r = (const rig *)(const void *)model;
    return r->model->forward(r, segment, g, ops, carry);
}

static const weft_model_plugin rig_plugin = {.struct_size = (uint32_t)sizeof(weft_model_plugin), .forward = forward};

/* A low-rank adapter: site i is weight i. */
static weft_value adapt(const weft_adapter *adapter, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                        weft_weight *weight) {
    const rig *r = (const rig *)(const void *)adapter;
    const weft_value y = ops->linear(g, x, weight);
    const weft_value down = ops->linear(g, x, r->weights[site + 1]);
    return ops->add(g, y, ops->linear(g, ops->scale(g, down, 0.75), r->weights[site + 2]));
}

static const weft_adapter_plugin rig_adapter = {.struct_size = (uint32_t)sizeof(weft_adapter_plugin), .linear = adapt};

static void declare_weight(rig *r, int32_t i) {
    const rig_weight *from = &r->model->weights[i];
    const bool gain = from->role == WEFT_WEIGHT_GAIN;
    const bool packed = (r->model->packed >> i & 1u) != 0, low_rank = (r->model->low_rank >> i & 1u) != 0;
    const bool transposed = (r->model->transposed >> i & 1u) != 0;
    const weft_parameter parameter = {.name = (char *)(uintptr_t)from->name,
                                      .rank = gain ? 1 : 2,
                                      .role = from->role,
                                      .trainable = !packed && (r->model->frozen >> i & 1u) == 0,
                                      .dtype = packed ? WEFT_I8X64 : WEFT_F32,
                                      .dims = {gain || transposed ? from->in : from->out, gain         ? 0
                                                                                          : transposed ? from->out
                                                                                                       : from->in},
                                      .numel = gain ? from->in : from->out * from->in};
    const weft_weight weight = {.owner = &r->declared,
                                .parameter = i,
                                .bias = -1,
                                .role = from->role,
                                .out = from->out,
                                .in = from->in,
                                .gain_from_one = (r->model->from_one >> i & 1u) != 0,
                                .transposed = transposed,
                                .claim = low_rank ? i + 1 : 0};
    r->parameters[i] = parameter;
    r->weight_storage[i] = weight;
    r->weights[i] = &r->weight_storage[i];
    r->sites[i].view.path = from->name;
}

static void declare_bias(rig *r, int32_t i) {
    const rig_weight *of = &r->model->weights[i];
    const int32_t index = r->declared.n_parameters++;
    const int64_t n = of->role == WEFT_WEIGHT_GAIN ? of->in : of->out;
    const weft_parameter parameter = {.name = (char *)(uintptr_t) "a bias",
                                      .rank = 1,
                                      .role = of->role,
                                      .is_bias = true,
                                      .trainable = (r->model->frozen >> index & 1u) == 0,
                                      .dims = {n, 0},
                                      .numel = n};
    ck_assert_int_lt(index, RIG_WEIGHTS);
    r->parameters[index] = parameter;
    r->weight_storage[i].bias = index;
}

static void declare(rig *r) {
    static char names[RIG_SEGMENTS][32];
    for (const rig_weight *w = r->model->weights; w != NULL && w->name != NULL; w++) {
        ck_assert_int_lt(r->declared.n_parameters, RIG_WEIGHTS);
        declare_weight(r, r->declared.n_parameters++);
    }
    r->declared.n_weights = r->declared.n_parameters;
    r->declared.info.vocab_size = r->parameters[0].role == WEFT_WEIGHT_EMBEDDING ? r->parameters[0].dims[0] : 11;
    for (int32_t i = 0; i < r->declared.n_weights; i++)
        if ((r->model->biased >> i & 1u) != 0) declare_bias(r, i);
    for (int32_t s = 0; s < r->model->n_segments; s++) {
        (void)snprintf(names[s], sizeof names[s], "part.%d", s);
        r->segments[s].name = names[s];
    }
    r->table_storage.name = (char *)(uintptr_t) "angles";
    r->table_storage.width = r->model->table_width;
    r->table = r->table_list[0] = &r->table_storage;
    r->declared.plugin = &rig_plugin;
    r->declared.model = (weft_model *)(void *)r;
    r->declared.adapters[0] = (weft_joined_adapter){&rig_adapter, (weft_adapter *)(void *)r};
    r->declared.n_adapters = 1;
    r->declared.sites = r->sites;
    r->declared.n_sites = RIG_WEIGHTS;
    for (int32_t i = 0; i < RIG_WEIGHTS; i++) r->sites[i].claimed = 1;
    r->declared.parameters = r->parameters;
    r->declared.weights = r->weights;
    r->declared.tables = r->table_list;
    r->declared.n_tables = r->model->table_width > 0 ? 1 : 0;
    r->declared.segments = r->segments;
    r->declared.n_segments = r->model->n_segments;
    r->declared.carry_width = r->model->carry_width;
}

static void open_device(rig *r, int device) {
    weft_error err = WEFT_ERROR_INIT;
    const weft_loaded *loaded = NULL;
    void *keys = NULL;
    if (device == RIG_REFERENCE) {
        r->kernels = &weft_reference_device;
        rig_ok(r->kernels->create(&r->device, weft_services(), NULL, 0, &err), &err);
        return;
    }
    rig_ok(weft_plugins_create((weft_plugins **)&r->plugins, &(weft_plugins_settings){.path = NULL}, &err), &err);
    rig_ok(weft_plugins_get(r->plugins, &loaded, "device", "cpu", &err), &err);
    rig_ok(weft_config_load((weft_config **)&r->config, NULL, NULL, 0, &err), &err);
    keys = calloc(1, loaded->plugin->config_size);
    ck_assert_ptr_nonnull(keys);
    rig_ok(weft_config_fill(r->config, keys, "device", loaded->plugin->keys, loaded->plugin->n_keys,
                            loaded->plugin->key_stride, &err),
           &err);
    r->kernels = weft_loaded_table(loaded, device);
    rig_ok(r->kernels->create(&r->device, weft_services(), keys, 0, &err), &err);
    free(keys);
}

static weft_slot_ref random_slot(rig *r, int64_t n, double size, double centre) {
    weft_slot_ref slot = rig_slot(r, n * (int64_t)sizeof(float));
    float *values = calloc((size_t)n + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < n; i++) values[i] = (float)(centre + size * rig_uniform(r));
    rig_write(r, slot.ref, values, slot.bytes);
    free(values);
    return slot;
}

static weft_ref pack(rig *r, weft_ref from, int64_t n) {
    const weft_slot_ref slot = rig_slot(r, weft_dtype_span(WEFT_I8X64, n));
    float *values = rig_floats(r, from, n);
    void *blocks = malloc((size_t)slot.bytes);
    ck_assert_ptr_nonnull(blocks);
    for (int64_t i = 0; i < n; i += weft_dtype_block(WEFT_I8X64))
        weft_i8x64_pack((weft_i8x64 *)blocks + i / weft_dtype_block(WEFT_I8X64), values + i);
    rig_write(r, slot.ref, blocks, slot.bytes);
    free(blocks);
    free(values);
    return slot.ref;
}

/* Matrices preserve the magnitude of activations, gains are around one, biases around zero. */
static void fill_parameters(rig *r) {
    for (int32_t i = 0; i < r->declared.n_parameters; i++) {
        const weft_parameter *p = &r->parameters[i];
        const bool gain = p->role == WEFT_WEIGHT_GAIN && !p->is_bias;
        const double size = p->rank == 1                       ? 0.3
                            : p->role == WEFT_WEIGHT_EMBEDDING ? 1.0
                                                               : 1.7 / sqrt((double)p->dims[1]);
        r->values[i] = random_slot(r, p->numel, size, gain && !r->weight_storage[i].gain_from_one ? 1.0 : 0.0).ref;
        r->reads[i] = weft_parameter_is_packed(p) ? pack(r, r->values[i], p->numel) : r->values[i];
        if (p->trainable) r->gradients[i] = rig_slot(r, p->numel * (int64_t)sizeof(float));
    }
}

static void fill_table(rig *r) {
    const int64_t width = r->model->table_width, rows = 64;
    float *values = NULL;
    if (width == 0) return;
    values = calloc((size_t)(rows * width), sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t p = 0; p < rows; p++)
        for (int64_t i = 0; i < width / 2; i++) {
            const double angle = (double)p / pow(100.0, 2.0 * (double)i / (double)width);
            values[p * width + i] = (float)cos(angle);
            values[p * width + width / 2 + i] = (float)sin(angle);
        }
    r->tables[0] = rig_slot(r, rows * width * (int64_t)sizeof(float));
    rig_write(r, r->tables[0].ref, values, r->tables[0].bytes);
    free(values);
}

static int32_t vocabulary(const rig *r) {
    int64_t least = 16;
    for (int32_t i = 0; i < r->declared.n_parameters; i++)
        if (r->parameters[i].role == WEFT_WEIGHT_EMBEDDING && r->parameters[i].dims[0] < least)
            least = r->parameters[i].dims[0];
    return (int32_t)least;
}

/* Random ids and targets, and documents of random length. Every fifth target has weight zero, others have different
 * weights. */
static void fill_micro_batch(rig *r) {
    const int64_t first = 3;
    const int32_t n = r->rows * r->length, vocab = vocabulary(r);
    int32_t *parts = calloc((size_t)n * 4, sizeof *parts);
    float *weights = calloc((size_t)n, sizeof *weights);
    ck_assert(parts != NULL && weights != NULL);
    for (int32_t i = 0, start = 0; i < n; i++) {
        const int32_t place = i % r->length;
        if (place == 0 || rig_below(r, 5) == 0) start = place;
        parts[i] = rig_below(r, vocab);
        parts[n + i] = rig_below(r, vocab);
        parts[2 * n + i] = start;
        parts[3 * n + i] = place - start;
        weights[i] = i % 5 == 2 ? 0.0f : (float)(0.5 + 0.5 * rig_uniform(r));
    }
    r->ids = rig_slot(r, n * 4);
    r->targets = rig_slot(r, n * 4);
    r->starts = rig_slot(r, n * 4);
    r->positions = rig_slot(r, n * 4);
    r->first = rig_slot(r, (int64_t)sizeof first);
    rig_write(r, r->first.ref, &first, (int64_t)sizeof first);
    r->weights_of_targets = rig_slot(r, n * 4);
    rig_write(r, r->ids.ref, parts, n * 4);
    rig_write(r, r->targets.ref, parts + n, n * 4);
    rig_write(r, r->starts.ref, parts + 2 * n, n * 4);
    rig_write(r, r->positions.ref, parts + 3 * n, n * 4);
    rig_write(r, r->weights_of_targets.ref, weights, n * 4);
    free(parts);
    free(weights);
}

void rig_open(rig *r, int device, const rig_model *model, int32_t rows, int32_t length) {
    memset(r, 0, sizeof *r);
    r->model = model;
    r->rows = rows;
    r->length = length;
    r->dtype = WEFT_F32;
    r->random = 7;
    declare(r);
    open_device(r, device);
    fill_parameters(r);
    fill_table(r);
    fill_micro_batch(r);
}

void rig_round(rig *r) {
    weft_error err = WEFT_ERROR_INIT;
    r->dtype = WEFT_BF16;
    for (int32_t i = 0; i < r->declared.n_parameters; i++) {
        const weft_parameter *p = &r->parameters[i];
        if (!weft_parameter_is_matrix(p) || weft_parameter_is_packed(p)) continue;
        r->reads[i] = rig_slot(r, p->numel * 2).ref;
        rig_ok(r->kernels->convert(r->device, NULL, r->reads[i], WEFT_BF16, r->values[i], WEFT_F32, p->numel, &err),
               &err);
    }
}

void rig_close(rig *r) {
    for (int32_t i = 0; i < r->n_buffers; i++) r->kernels->release(r->device, r->buffers[i]);
    r->kernels->destroy(r->device);
    if (r->plugins != NULL) weft_plugins_destroy(r->plugins);
    if (r->config != NULL) weft_config_free(r->config);
}
