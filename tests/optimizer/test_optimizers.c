/* sgd and adamw against PyTorch's results in double (golden/optim). The element-wise kernels are called directly, as a
 * device does, without a device. */
#include "suite.h"

#include <jansson.h>
#include <math.h>

#include "common/instruction_set.h"
#include "config/config.h"
#include "base/safetensors.h"
#include "plugin/plugin.h"
#include "plugin/services.h"
#include <weft/optimizer.h>

#define BOUND 2e-6 /* relative norm */
#define MOST  256  /* elements of a golden tensor */

/* ---- golden file ---- */

static json_t *golden; /* optim.json */
static weft_safetensors *tensors;

static const char *golden_path(const char *name) {
    static char path[4096];
    const char *source = getenv("WEFT_SOURCE");
    ck_assert_msg(source != NULL, "WEFT_SOURCE must name the source directory; ctest sets it");
    (void)snprintf(path, sizeof path, "%s/tests/golden/optim/%s", source, name);
    return path;
}

static void open_golden(void) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_safetensors_open(&tensors, golden_path("optim.safetensors"), &err), err);
    golden = json_load_file(golden_path("optim.json"), 0, NULL);
    ck_assert_ptr_nonnull(golden);
}

static void close_golden(void) {
    weft_safetensors_close(tensors);
    json_decref(golden);
}

/* Reads a tensor of the file as doubles; returns the number of elements. */
static size_t read_tensor(double *out, size_t most, const char *format, ...) {
    char name[256];
    const weft_tensor *tensor = NULL;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    tensor = weft_safetensors_find(tensors, name);
    ck_assert_msg(tensor != NULL, "no tensor %s", name);
    ck_assert_uint_le((size_t)tensor->numel, most);
    for (int64_t i = 0; i < tensor->numel; i++) {
        float value = 0;
        if (tensor->dtype == WEFT_F64) memcpy(&out[i], tensor->data + 8 * i, 8);
        else memcpy(&value, tensor->data + 4 * i, 4);
        if (tensor->dtype != WEFT_F64) out[i] = (double)value;
    }
    return (size_t)tensor->numel;
}

/* The formula of optim.json. */
static int32_t golden_number(uint32_t k, uint32_t i, uint32_t s) {
    uint32_t x = k * 0x9E3779B1u + i * 0x85EBCA77u + s * 0xC2B2AE3Du;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return (int32_t)(x >> 9) - 4194304;
}

static float golden_gradient(uint32_t k, uint32_t i, uint32_t step, double scale, int holes) {
    const double exact = ((double)golden_number(k, i, 0) + (double)golden_number(k, i, step)) * 0x1p-22 * scale;
    return holes && i % 13 == 5 ? 0.0f : (float)exact;
}

/* ---- an optimizer, created as by the host ---- */

typedef struct made {
    weft_plugins *plugins;
    weft_config *config;
    const weft_optimizer_plugin *table;
    weft_optimizer *optimizer;
    unsigned char filled[512]; /* the config struct */
} made;

static weft_status make(made *out, const char *id, const char *const *overrides, size_t n, weft_error *err) {
    const weft_plugins_settings options = {.path = NULL};
    const weft_loaded *loaded = NULL;
    const weft_plugin *plugin = NULL;
    weft_status status;
    memset(out, 0, sizeof *out);
    ck_assert_msg(weft_plugins_create(&out->plugins, &options, err) == WEFT_OK, "%s", err->text);
    ck_assert_msg(weft_plugins_get(out->plugins, &loaded, "optimizer", id, err) == WEFT_OK, "%s", err->text);
    plugin = loaded->plugin;
    out->table = weft_loaded_table(loaded, optimizer);
    ck_assert_uint_le(plugin->config_size, sizeof out->filled);
    ck_assert_msg(weft_config_load(&out->config, NULL, overrides, n, err) == WEFT_OK, "%s", err->text);
    status =
        weft_config_fill(out->config, out->filled, "optimizer", plugin->keys, plugin->n_keys, plugin->key_stride, err);
    if (status == WEFT_OK && plugin->validate != NULL) status = plugin->validate(out->filled, err);
    if (status == WEFT_OK) status = out->table->create(&out->optimizer, weft_services(), out->filled, err);
    return status;
}

static void unmake(made *self) {
    if (self->optimizer != NULL) self->table->destroy(self->optimizer);
    weft_config_free(self->config);
    weft_plugins_destroy(self->plugins);
}

/* One update over [0, n), in chunks of `piece` elements. */
static void update(made *self, float *w, const float *g, float *states[WEFT_MAX_STATES], int64_t n, int64_t piece,
                   uint64_t step, double lr, const weft_range *range) {
    const weft_step_info info = {(uint32_t)sizeof(weft_step_info), 0, step, lr};
    const weft_elementwise *kernel = self->table->update(self->optimizer);
    float hp[64]; /* 256 bytes, the maximum */
    int64_t at;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_le(self->table->hp_size(self->optimizer), (int64_t)sizeof hp);
    ck_assert_int_eq(self->table->prepare(self->optimizer, hp, &info, &err), WEFT_OK);
    for (at = 0; at < n; at += piece) {
        weft_elementwise_call call = {(uint32_t)sizeof call, 0, w, g, {NULL}, hp, range, at, at + piece, 1.0f, 0};
        if (call.end > n) call.end = n;
        memcpy(call.states, states, sizeof call.states);
        kernel->cpu(&call);
    }
}

/* ---- comparison to PyTorch ---- */

static double relative(const float *ours, const double *exact, size_t n) {
    double difference = 0, size = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const double d = (double)ours[i] - exact[i];
        difference += d * d;
        size += exact[i] * exact[i];
    }
    return sqrt(difference) / (size > 0 ? sqrt(size) : 1);
}

static int is_exempt(const json_t *one, const char *name) {
    const json_t *list = json_object_get(one, "no_decay");
    size_t i;
    for (i = 0; i < json_array_size(list); i++) {
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0) return 1;
    }
    return 0;
}

/* Returns the number of overrides with the case's values. */
static size_t overrides_of(char texts[8][128], const char *pointers[8], json_t *one) {
    const char *key = NULL;
    json_t *value = NULL;
    size_t n = 0;
    json_object_foreach(one, key, value) {
        if (strcmp(key, "name") == 0 || strcmp(key, "optimizer") == 0 || strcmp(key, "no_decay") == 0) continue;
        ck_assert_uint_lt(n, 8);
        if (json_is_boolean(value)) {
            (void)snprintf(texts[n], 128, "optimizer.%s=%s", key, json_is_true(value) ? "yes" : "no");
        } else {
            (void)snprintf(texts[n], 128, "optimizer.%s=%.17g", key, json_number_value(value));
        }
        pointers[n] = texts[n];
        n++;
    }
    return n;
}

/* Runs all steps for one tensor of a case, then compares the weights and states to the file. */
static void run_tensor(made *self, json_t *one, uint32_t k, const double *rates, size_t steps, int64_t piece) {
    json_t *tensor = json_array_get(json_object_get(golden, "tensors"), k);
    const char *name = json_string_value(json_object_get(tensor, "name"));
    const char *label = json_string_value(json_object_get(one, "name"));
    const double scale = json_number_value(json_object_get(tensor, "scale"));
    const int holes = json_is_true(json_object_get(tensor, "holes"));
    double exact[MOST];
    float w[MOST], g[MOST], s[WEFT_MAX_STATES][MOST] = {{0}}, *states[WEFT_MAX_STATES] = {s[0], s[1], s[2], s[3]};
    const size_t n = read_tensor(exact, MOST, "start.%s", name);
    const weft_range range = {(uint32_t)sizeof range, 0, 0, (int64_t)n, 1.0f, is_exempt(one, name) ? 0.0f : 1.0f};
    int64_t n_states = 0, slot;
    uint32_t stride = 0;
    const weft_state_slot *slots = self->table->states(self->optimizer, &n_states, &stride);
    size_t i, step;
    for (i = 0; i < n; i++) w[i] = (float)exact[i];
    for (step = 1; step <= steps; step++) {
        for (i = 0; i < n; i++) g[i] = golden_gradient(k, (uint32_t)i, (uint32_t)step, scale, holes);
        update(self, w, g, states, (int64_t)n, piece, step, rates[step - 1], &range);
    }
    ck_assert_uint_eq(read_tensor(exact, MOST, "%s.final.%s", label, name), n);
    ck_assert_msg(relative(w, exact, n) < BOUND, "%s %s: weights off by %.2e", label, name, relative(w, exact, n));
    for (slot = 0; slot < n_states; slot++) {
        ck_assert_uint_eq(read_tensor(exact, MOST, "%s.%s.%s", label, slots[slot].name, name), n);
        ck_assert_msg(relative(s[slot], exact, n) < BOUND, "%s %s: %s off by %.2e", label, name, slots[slot].name,
                      relative(s[slot], exact, n));
    }
}

#define N_CASES 9
TESTS(a_hundred_steps_are_those_of_pytorch, N_CASES) {
    json_t *cases = json_object_get(golden, "cases"), *one = json_array_get(cases, (size_t)_i);
    char texts[8][128];
    const char *overrides[8];
    double rates[1000];
    made self;
    weft_error err = WEFT_ERROR_INIT;
    const size_t n = overrides_of(texts, overrides, one);
    size_t steps;
    uint32_t k;
    ck_assert_uint_eq(json_array_size(cases), N_CASES);
    ck_assert_ok(make(&self, json_string_value(json_object_get(one, "optimizer")), overrides, n, &err), err);
    steps = read_tensor(rates, 1000, "%s.lr", json_string_value(json_object_get(one, "name")));
    ck_assert_uint_eq(steps, 100);
    for (k = 0; k < json_array_size(json_object_get(golden, "tensors")); k++)
        run_tensor(&self, one, k, rates, steps, 1000);
    unmake(&self);
}

/* ---- anyprecision: the published formula, and the effect of compensation ---- */

enum { WEIGHTS = 64, UPDATES = 200 };

/* Results of a script with the same formulas (make_anyprecision.py): same bits. */
static const struct golden_any {
    const char *label;
    const char *keys[8];
    size_t n_keys;
    int stored[4]; /* in bf16: weights, then states */
} any_cases[] = {
    {"kahan", {"optimizer.weight_decay=0.1", "optimizer.lr=1e-2"}, 2, {1, 1, 1, 1}},
    {"mixed",
     {"optimizer.weight_decay=0.1", "optimizer.lr=1e-3", "optimizer.beta1=0.8", "optimizer.beta2=0.95",
      "optimizer.eps=1e-6", "optimizer.momentum_dtype=fp32", "optimizer.compensation_buffer_dtype=fp32"},
     7,
     {1, 0, 1, 0}},
    {"plain", {"optimizer.weight_decay=0.1", "optimizer.lr=1e-2", "optimizer.use_kahan_summation=no"}, 3, {1, 1, 1, 0}},
    {"wide",
     {"optimizer.weight_decay=0.1", "optimizer.lr=1e-2", "optimizer.momentum_dtype=fp32",
      "optimizer.variance_dtype=fp32", "optimizer.compensation_buffer_dtype=fp32"},
     5,
     {0, 0, 0, 0}}};

static const void *any_tensor(const weft_safetensors *file, const char *label, const char *what, const char *name) {
    char path[256];
    const weft_tensor *tensor = NULL;
    (void)snprintf(path, sizeof path, "%s.%s%s%s", label, what, name[0] == 0 ? "" : ".", name);
    tensor = weft_safetensors_find(file, path);
    ck_assert_msg(tensor != NULL, "no tensor %s", path);
    return tensor->data;
}

static void run_any(made *self, const struct golden_any *one, const weft_safetensors *file, uint32_t k) {
    static const char *const states_of[] = {"exp_avg", "exp_avg_sq", "compensation"};
    json_t *tensor = json_array_get(json_object_get(golden, "tensors"), k);
    const char *name = json_string_value(json_object_get(tensor, "name"));
    const double scale = json_number_value(json_object_get(tensor, "scale"));
    const int holes = json_is_true(json_object_get(tensor, "holes"));
    float w[MOST], g[MOST], s[3][MOST] = {{0}}, *states[WEFT_MAX_STATES] = {s[0], s[1], s[2], NULL};
    double rates[100], exact[MOST];
    const size_t n = read_tensor(exact, MOST, "start.%s", name);
    const weft_range range = {(uint32_t)sizeof range, one->stored[0] ? WEFT_RANGE_BF16 : 0, 0, (int64_t)n, 1.0f, 1.0f};
    memcpy(rates, any_tensor(file, one->label, "lr", ""), sizeof rates);
    memcpy(w, any_tensor(file, one->label, "start", name), n * sizeof *w);
    for (uint32_t step = 1; step <= 100; step++) {
        for (size_t i = 0; i < n; i++) g[i] = golden_gradient(k, (uint32_t)i, step, scale, holes);
        update(self, w, g, states, (int64_t)n, 1000, step, rates[step - 1], &range);
        for (size_t i = 0; i < n && one->stored[0]; i++) w[i] = weft_round_bf16(w[i]); /* as stored by the device */
        for (int slot = 0; slot < 3; slot++)
            for (size_t i = 0; i < n && one->stored[1 + slot]; i++) s[slot][i] = weft_round_bf16(s[slot][i]);
    }
    ck_assert_msg(memcmp(w, any_tensor(file, one->label, "final", name), n * sizeof *w) == 0, "%s: %s", one->label,
                  name);
    for (int slot = 0; slot < 3; slot++)
        ck_assert_msg(memcmp(s[slot], any_tensor(file, one->label, states_of[slot], name), n * sizeof *w) == 0,
                      "%s: %s of %s", one->label, states_of[slot], name);
}

TESTS(anyprecision_has_the_bits_of_a_script, 4) {
    const struct golden_any *one = &any_cases[_i];
    weft_safetensors *file = NULL;
    made self;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_safetensors_open(&file, golden_path("../anyprecision.safetensors"), &err), err);
    ck_assert_ok(make(&self, "anyprecision", one->keys, one->n_keys, &err), err);
    for (uint32_t k = 0; k < json_array_size(json_object_get(golden, "tensors")); k++) run_any(&self, one, file, k);
    unmake(&self);
    weft_safetensors_close(file);
}

/* Weights and states of one optimizer; all optimizers receive the same gradients. */
typedef struct driven {
    made self;
    float w[WEIGHTS], states[WEFT_MAX_STATES][WEIGHTS];
} driven;

static void drive(driven *out, const char *id, const char *const *overrides, size_t n, uint32_t flags) {
    const weft_range range = {(uint32_t)sizeof range, flags, 0, WEIGHTS, 1.0f, 1.0f};
    float *states[WEFT_MAX_STATES] = {out->states[0], out->states[1], out->states[2], out->states[3]};
    float g[WEIGHTS];
    weft_error err = WEFT_ERROR_INIT;
    memset(out, 0, sizeof *out);
    ck_assert_ok(make(&out->self, id, overrides, n, &err), err);
    for (uint32_t i = 0; i < WEIGHTS; i++) out->w[i] = weft_round_bf16(1.0f + golden_gradient(9, i, 0, 0.25, 0));
    for (uint32_t step = 1; step <= UPDATES; step++) {
        for (uint32_t i = 0; i < WEIGHTS; i++) g[i] = 0.5f + golden_gradient(9, i, step, 1.0, 0);
        update(&out->self, out->w, g, states, WEIGHTS, 1000, step, 1e-5, &range);
    }
    unmake(&out->self);
}

TEST(anyprecision_of_fp32_weights_is_adamw) {
    const char *overrides[] = {"optimizer.weight_decay=0.1"};
    driven adamw, any;
    double exact[WEIGHTS];
    drive(&adamw, "adamw", overrides, 1, 0);
    drive(&any, "anyprecision", overrides, 1, 0);
    for (int i = 0; i < WEIGHTS; i++) exact[i] = (double)adamw.w[i];
    ck_assert_double_lt(relative(any.w, exact, WEIGHTS), 1e-6);
    for (int k = 0; k < 2; k++) ck_assert_mem_eq(any.states[k], adamw.states[k], sizeof adamw.states[k]);
}

TEST(compensation_keeps_what_rounding_takes_away) {
    const char *off[] = {"optimizer.use_kahan_summation=no"}, *none[] = {"optimizer.weight_decay=0"};
    driven adamw, kahan, plain;
    double exact[WEIGHTS];
    float together[WEIGHTS];
    drive(&adamw, "adamw", none, 1, 0);
    drive(&kahan, "anyprecision", NULL, 0, WEFT_RANGE_BF16);
    drive(&plain, "anyprecision", off, 1, WEFT_RANGE_BF16);
    for (int i = 0; i < WEIGHTS; i++) {
        exact[i] = (double)adamw.w[i];
        together[i] = kahan.w[i] + kahan.states[2][i];
        ck_assert(kahan.w[i] == weft_round_bf16(kahan.w[i]));
        ck_assert(fabsf(kahan.states[2][i]) <=
                  ldexpf(fabsf(kahan.w[i]), -8)); /* the compensation is at most half a step */
        ck_assert(plain.states[2][i] == 0);
    }
    ck_assert_double_lt(relative(together, exact, WEIGHTS), 1e-6);
    ck_assert_double_gt(relative(kahan.w, exact, WEIGHTS), 1e-6);
}

TEST(the_gradients_are_those_of_the_file) {
    json_t *list = json_object_get(golden, "tensors"), *steps = json_object_get(golden, "gradient_steps");
    size_t k, row, i;
    for (k = 0; k < json_array_size(list); k++) {
        json_t *tensor = json_array_get(list, k);
        double stored[4 * MOST];
        const size_t n =
            read_tensor(stored, 4 * MOST, "gradient.%s", json_string_value(json_object_get(tensor, "name"))) /
            json_array_size(steps);
        for (row = 0; row < json_array_size(steps); row++) {
            for (i = 0; i < n; i++) {
                const float made_here = golden_gradient((uint32_t)k, (uint32_t)i,
                                                        (uint32_t)json_integer_value(json_array_get(steps, row)),
                                                        json_number_value(json_object_get(tensor, "scale")),
                                                        json_is_true(json_object_get(tensor, "holes")));
                ck_assert_double_eq((double)made_here, stored[row * n + i]);
            }
        }
    }
}

/* ---- without a golden file ---- */

static const char *const kinds_of_update[][4] = {
    {"sgd", "optimizer.momentum=0", "optimizer.weight_decay=0.1", "optimizer.lr=0.1"},
    {"sgd", "optimizer.momentum=0.9", "optimizer.nesterov=yes", "optimizer.weight_decay=0.1"},
    {"adamw", "optimizer.beta1=0.9", "optimizer.weight_decay=0.1", "optimizer.lr=0.1"},
};

/* A shard sees only its own elements: the bits do not depend on the sharding. */
TESTS(cuts_do_not_change_bits, 3) {
    static const int64_t pieces[] = {1, 3, 7, 8, 33, 100};
    float whole_w[2][MOST], w[MOST], g[MOST];
    made self;
    weft_error err = WEFT_ERROR_INIT;
    size_t cut, i;
    uint64_t step;
    const weft_range range = {(uint32_t)sizeof range, 0, 0, MOST, 0.5f, 1.0f};
    ck_assert_ok(make(&self, kinds_of_update[_i][0], &kinds_of_update[_i][1], 3, &err), err);
    for (cut = 0; cut <= LENGTH(pieces); cut++) {
        float s[WEFT_MAX_STATES][MOST] = {{0}}, *states[WEFT_MAX_STATES] = {s[0], s[1], s[2], s[3]};
        for (i = 0; i < MOST; i++) w[i] = golden_gradient(9, (uint32_t)i, 1, 1, 0);
        for (step = 1; step <= 5; step++) {
            for (i = 0; i < MOST; i++) g[i] = golden_gradient(7, (uint32_t)i, (uint32_t)step, 1, 1);
            update(&self, w, g, states, MOST, cut == 0 ? MOST : pieces[cut - 1], step, 0.05, &range);
        }
        if (cut == 0) {
            memcpy(whole_w[0], w, sizeof w);
            memcpy(whole_w[1], s[0], sizeof w);
        }
        ck_assert_mem_eq(whole_w[0], w, sizeof w);
        ck_assert_mem_eq(whole_w[1], s[0], sizeof w);
    }
    unmake(&self);
}

WEFT_HP(bits_hp, float take1; float take2; float size; float eps;)
WEFT_ELEMENTWISE(bits, bits_hp, 2, s0 += hp->take1 * (g - s0); s1 += hp->take2 * (g * g - s1);
                 w -= range->lr_scale * (hp->size * (s0 / (sqrtf(s1) + hp->eps)) + 0.1f * w);)

/* Both loops of a body, and the dispatcher, against the same operations one by one: the choice changes no bit. */
TESTS(instruction_sets_do_not_change_bits, 3) {
    static const bits_hp hp = {0.1f, 0.001f, 0.3f, 1e-8f};
    void (*const loops[])(const weft_elementwise_call *) = {bits_cpu_narrow, bits.cpu, bits_cpu_wide};
    float exact[3][MOST], w[MOST], g[MOST], s[2][MOST];
    const weft_range range = {(uint32_t)sizeof range, 0, 0, MOST, 0.7f, 1.0f};
    weft_elementwise_call call = {(uint32_t)sizeof call, 0, w, g, {s[0], s[1]}, &hp, &range, 3, MOST - 6, 0.37f, 0};
    int i;
    if (loops[_i] == bits_cpu_wide && !instruction_set_is_here("avx2")) return;
    for (i = 0; i < MOST; i++) {
        w[i] = exact[0][i] = golden_gradient(9, (uint32_t)i, 1, 1, 0);
        g[i] = golden_gradient(7, (uint32_t)i, 2, 1, 1);
        s[0][i] = exact[1][i] = golden_gradient(5, (uint32_t)i, 3, 1, 0);
        s[1][i] = exact[2][i] = fabsf(golden_gradient(3, (uint32_t)i, 4, 1, 1));
    }
    for (i = (int)call.begin; i < (int)call.end; i++) {
        const volatile float scaled = g[i] * call.coefficient, square = scaled * scaled;
        const volatile float part0 = hp.take1 * (scaled - exact[1][i]), part1 = hp.take2 * (square - exact[2][i]);
        volatile float change, decay;
        exact[1][i] += part0;
        exact[2][i] += part1;
        change = hp.size * (exact[1][i] / (sqrtf(exact[2][i]) + hp.eps));
        decay = 0.1f * exact[0][i];
        change = range.lr_scale * (change + decay);
        exact[0][i] -= change;
    }
    loops[_i](&call);
    ck_assert_mem_eq(w, exact[0], sizeof w);
    ck_assert_mem_eq(s[0], exact[1], sizeof w);
    ck_assert_mem_eq(s[1], exact[2], sizeof w);
}

TEST(dampening_spares_the_first_step) {
    static const char *const overrides[] = {"optimizer.momentum=0.75", "optimizer.dampening=0.5", "optimizer.lr=1"};
    made self;
    weft_error err = WEFT_ERROR_INIT;
    const weft_range range = {(uint32_t)sizeof range, 0, 0, 1, 1.0f, 1.0f};
    float w = 0, b = 0, g, *states[WEFT_MAX_STATES] = {&b, NULL, NULL, NULL};
    ck_assert_ok(make(&self, "sgd", overrides, 3, &err), err);
    g = 8;
    update(&self, &w, &g, states, 1, 1, 1, 1, &range);
    ck_assert_float_eq(b, 8); /* complete */
    ck_assert_float_eq(w, -8);
    g = 4;
    update(&self, &w, &g, states, 1, 1, 2, 1, &range);
    ck_assert_float_eq(b, 8); /* 0.75 8 + 0.5 4 */
    ck_assert_float_eq(w, -16);
    unmake(&self);
}

/* lr_scale multiplies the step and the decay's step; decay 0 exempts; the coefficient multiplies the gradient. */
TEST(a_range_scales_its_own_parameter) {
    static const char *const overrides[] = {"optimizer.weight_decay=0.5", "optimizer.lr=1"};
    made self;
    weft_error err = WEFT_ERROR_INIT;
    const weft_step_info info = {(uint32_t)sizeof info, 0, 1, 1.0};
    weft_range range = {(uint32_t)sizeof range, 0, 0, 1, 0.25f, 1.0f};
    float hp[64], w, g = 8;
    weft_elementwise_call call = {(uint32_t)sizeof call, 0, &w, &g, {NULL}, hp, &range, 0, 1, 0.5f, 0};
    ck_assert_ok(make(&self, "sgd", overrides, 2, &err), err);
    ck_assert_int_eq(self.table->prepare(self.optimizer, hp, &info, &err), WEFT_OK);
    w = 16;
    self.table->update(self.optimizer)->cpu(&call);
    ck_assert_float_eq(w, 13); /* 16 - 0.25 (0.5 8 + 0.5 16) */
    range.decay = 0;
    w = 16;
    self.table->update(self.optimizer)->cpu(&call);
    ck_assert_float_eq(w, 15); /* 16 - 0.25 (0.5 8) */
    unmake(&self);
}

TEST(nesterov_without_momentum_is_refused) {
    static const char *const overrides[] = {"optimizer.nesterov=yes"};
    made self;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(make(&self, "sgd", overrides, 1, &err), WEFT_E_USER);
    ck_assert_ptr_nonnull(strstr(err.text, "nesterov = yes needs momentum above 0 and dampening = 0"));
    unmake(&self);
}

TEST(defaults_are_pytorchs) {
    made self;
    weft_error err = WEFT_ERROR_INIT;
    const double *numbers = (const double *)(const void *)self.filled;
    ck_assert_ok(make(&self, "adamw", NULL, 0, &err), err);
    ck_assert_double_eq(numbers[0], 1e-3);
    ck_assert_double_eq(numbers[1], 0.9);
    ck_assert_double_eq(numbers[2], 0.999);
    ck_assert_double_eq(numbers[3], 1e-8);
    ck_assert_double_eq(numbers[4], 0.01);
    unmake(&self);
    ck_assert_ok(make(&self, "sgd", NULL, 0, &err), err);
    ck_assert_double_eq(numbers[0], 1e-3);
    ck_assert_double_eq(numbers[1], 0);
    unmake(&self);
}

int main(void) {
    return run_tests(test_case("optimizers", 120, open_golden, close_golden));
}
