/* Updates with weights and states stored in bf16 or 8-bit blocks: the code tables against bitsandbytes' (golden
 * dynamic8.json), and the device's update against the body's formula between stored values. */
#include "device/fixture.h"

#include <jansson.h>
#include <weft/dynamic8.h>

static weft_dynamic8 maps[2]; /* signed, unsigned */

static const weft_dynamic8 *map_of(int32_t dtype) {
    return &maps[dtype == WEFT_UDYN8X256];
}

/* ---- code tables ---- */

/* The formula of make_dynamic8.py. */
static float golden_number(uint64_t i, bool is_signed) {
    uint32_t x = (uint32_t)((i * 2654435761u + 12345u) & 0xFFFFFFFFu);
    double size;
    x ^= x >> 15;
    size = ldexp((double)(x % 65521u + 1u), -16 - (int)(x / 65536u % 29u));
    return (float)(is_signed && (x & 1u) != 0 ? -size : size);
}

/* bitsandbytes numbers codes in ascending order of value. */
static int golden_code(uint8_t code, bool is_signed) {
    return !is_signed ? code : code == 128 ? 255 : 127 + (int8_t)code;
}

static void hold_against_golden(json_t *golden, int32_t dtype) {
    const bool is_signed = dtype == WEFT_DYN8X256;
    json_t *one = json_object_get(golden, is_signed ? "signed" : "unsigned");
    const weft_dynamic8 *map = map_of(dtype);
    for (int code = 0; code < 256; code++) {
        const double wanted =
            json_real_value(json_array_get(json_object_get(one, "map"), (size_t)golden_code((uint8_t)code, is_signed)));
        HOLDS((double)map->value[code] == wanted);
    }
    for (size_t b = 0; b < 2; b++) {
        weft_dyn8x256 block;
        float x[256], back[256];
        for (size_t i = 0; i < 256; i++) x[i] = golden_number(b * 256 + i, is_signed);
        weft_dynamic8_pack(&block, map, x, 256);
        weft_dynamic8_unpack(back, map, &block, 256);
        HOLDS(block.scale == (float)json_real_value(json_array_get(json_object_get(one, "scales"), b)));
        for (size_t i = 0; i < 256; i++) {
            const double wanted = json_real_value(json_array_get(json_object_get(one, "back"), b * 256 + i));
            const json_int_t code = json_integer_value(json_array_get(json_object_get(one, "codes"), b * 256 + i));
            EXPECT(golden_code(block.code[i], is_signed) == code, "number %zu has code %d, not %lld", i,
                   golden_code(block.code[i], is_signed), (long long)code);
            HOLDS(fabs((double)back[i] - wanted) <= 2e-7 * fabs(wanted));
        }
    }
}

TEST(maps_and_codes_are_those_of_bitsandbytes) {
    char path[4096];
    json_t *golden = NULL;
    (void)snprintf(path, sizeof path, "%s/tests/golden/dynamic8.json", getenv("WEFT_SOURCE"));
    golden = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(golden);
    hold_against_golden(golden, WEFT_DYN8X256);
    hold_against_golden(golden, WEFT_UDYN8X256);
    json_decref(golden);
}

/* Checks all edges, with sizes of all exponents and next to each edge. */
TEST(a_code_is_the_nearest_one) {
    for (int k = 0; k < 2; k++) {
        const int n = weft_dynamic8_sizes(&maps[k]);
        for (uint32_t bits = 0; bits <= 0x3F800000u; bits += 40961u) {
            float x;
            int m = 0;
            memcpy(&x, &bits, sizeof x);
            while (x > maps[k].edge[m]) m++;
            HOLDS(weft_dynamic8_code(&maps[k], x) == m);
        }
        for (int m = 0; m + 1 < n; m++) {
            const float edge = maps[k].edge[m];
            HOLDS(weft_dynamic8_code(&maps[k], edge) == m);
            HOLDS(weft_dynamic8_code(&maps[k], nextafterf(edge, 2.0f)) == m + 1);
        }
        HOLDS(weft_dynamic8_code(&maps[k], -1.0f) == (k == 0 ? 256 - 127 : 0));
    }
}

/* ---- the update ---- */

WEFT_HP(stored_hp, float lr;)
WEFT_ELEMENTWISE(stored, stored_hp, 3, s0 = 0.9f * s0 + g; s1 = 0.75f * s1 + g * g; s2 -= g;
                 w -= hp->lr * range->lr_scale * s0;)

enum { N = 2048, ROWS = 3, STATES = 3, BLOCK = 256 };
static const int64_t offsets[ROWS] = {0, 512, 1536}, lengths[ROWS] = {301, 1024, 1}; /* 1 in a separate block */

typedef struct stored_case {
    int32_t weight, states[STATES];
} stored_case;

static float start_of(int which, int64_t i) {
    const float x = golden_number((uint64_t)(i * 7 + which * 4099), which != 2);
    return which == 4 ? x * 16.0f : x;
}

/* Convert n numbers to and from their stored type. */
static void to_memory(void *out, int32_t dtype, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == WEFT_F32) ((float *)out)[i] = x[i];
        if (dtype == WEFT_BF16) ((uint16_t *)out)[i] = bf16_of(bf16_near(x[i]));
        if (weft_dtype_is_packed(dtype) && i % BLOCK == 0)
            weft_dynamic8_pack((weft_dyn8x256 *)out + i / BLOCK, map_of(dtype), x + i,
                               (int)(n - i < BLOCK ? n - i : BLOCK));
    }
}
static void from_memory(float *out, int32_t dtype, const void *in, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == WEFT_F32) out[i] = ((const float *)in)[i];
        if (dtype == WEFT_BF16) out[i] = float_of_bf16(((const uint16_t *)in)[i]);
        if (weft_dtype_is_packed(dtype) && i % BLOCK == 0)
            weft_dynamic8_unpack(out + i, map_of(dtype), (const weft_dyn8x256 *)in + i / BLOCK,
                                 (int)(n - i < BLOCK ? n - i : BLOCK));
    }
}

static int32_t dtype_of(const stored_case *t, int which) {
    return which == 0 ? t->weight : t->states[which - 1];
}

/* The memory before the update: array 0 is the weight, then the states, then the gradient. */
static char *make_memory(const stored_case *t, int which) {
    float x[N];
    char *memory = calloc(N, 4);
    for (int64_t i = 0; i < N; i++) x[i] = start_of(which, i);
    to_memory(memory, dtype_of(t, which), x, N);
    return memory;
}

static weft_ref put_stored(run *r, const stored_case *t, int which) {
    char *memory = make_memory(t, which);
    const weft_ref ref = put_at(r, memory, weft_dtype_span(dtype_of(t, which), N), r->shift);
    free(memory);
    return ref;
}

typedef struct stored_call {
    weft_update args; /* of `region` */
    weft_update_region region;
} stored_call;

/* The copy of a stored weight has another type. */
static int32_t copy_dtype(const stored_case *t) {
    return t->weight == WEFT_BF16 ? WEFT_F32 : WEFT_BF16;
}

static weft_update_region stored_region(run *r, const stored_case *t) {
    float gradient[N];
    weft_range ranges[ROWS];
    weft_update_region region = {.struct_size = sizeof region,
                                 .n = N,
                                 .n_ranges = ROWS,
                                 .range_stride = sizeof *ranges,
                                 .weight_dtype = t->weight};
    for (int i = 0; i < ROWS; i++)
        ranges[i] = (weft_range){sizeof *ranges, 0, offsets[i], lengths[i], 1.0f + (float)i, 1.0f};
    for (int64_t i = 0; i < N; i++) gradient[i] = start_of(4, i);
    region.weight = put_stored(r, t, 0);
    for (int i = 0; i < STATES; i++) {
        region.states[i] = put_stored(r, t, 1 + i);
        region.state_dtypes[i] = t->states[i];
    }
    region.copy_dtype = copy_dtype(t);
    region.copy = put_cells(r, NULL, N, region.copy_dtype);
    region.gradient = put_floats(r, gradient, N);
    region.ranges = put_at(r, ranges, sizeof ranges, r->shift / 8 * 8);
    return region;
}

static void stored_args(stored_call *out, run *r, const stored_case *t) {
    const stored_hp hp = {0.1f};
    const float coefficient = 0.25f;
    const int32_t skip = 0;
    const weft_update args = {.struct_size = sizeof args,
                              .kernel = &stored,
                              .hp = put(r, &hp, sizeof hp),
                              .coefficient = put_floats(r, &coefficient, 1),
                              .skip = put(r, &skip, 4),
                              .regions = &out->region,
                              .n_regions = 1,
                              .region_stride = sizeof out->region};
    out->args = args;
    out->region = stored_region(r, t);
}

static void stored_run(run *r, const void *data) {
    const stored_case *t = data;
    stored_call u;
    stored_args(&u, r, t);
    RUN(r, update, &u.args);
    get_bytes(r, u.region.weight, weft_dtype_span(t->weight, N));
    for (int i = 0; i < STATES; i++) get_bytes(r, u.region.states[i], weft_dtype_span(t->states[i], N));
    get_bytes(r, u.region.copy, weft_dtype_span(u.region.copy_dtype, N));
}

/* Checks a copy of updated weights; elements outside the ranges keep their bytes. */
static void expect_copy(const char *copy, const char *weights, const stored_case *t) {
    const int64_t bytes = weft_dtype_bytes(copy_dtype(t));
    char want[4 * N];
    float x[N];
    memset(want, 0xFF, sizeof want);
    for (int row = 0; row < ROWS; row++) {
        from_memory(x, t->weight, weights + weft_dtype_span(t->weight, offsets[row]), lengths[row]);
        to_memory(want + bytes * offsets[row], copy_dtype(t), x, lengths[row]);
    }
    ck_assert_mem_eq(copy, want, (size_t)(bytes * N));
}

/* Applies one range of the update by definition: blocks outside the range are unchanged. */
static void update_by_hand(char *const memory[1 + STATES], const stored_case *t, int row) {
    const int64_t at = offsets[row], n = lengths[row];
    float x[1 + STATES][N];
    for (int k = 0; k <= STATES; k++)
        from_memory(x[k], dtype_of(t, k), memory[k] + weft_dtype_span(dtype_of(t, k), at), n);
    for (int64_t i = 0; i < n; i++) {
        const float g = start_of(4, at + i) * 0.25f;
        x[1][i] = 0.9f * x[1][i] + g;
        x[2][i] = 0.75f * x[2][i] + g * g;
        x[3][i] -= g;
        x[0][i] -= 0.1f * (1.0f + (float)row) * x[1][i];
    }
    for (int k = 0; k <= STATES; k++)
        to_memory(memory[k] + weft_dtype_span(dtype_of(t, k), at), dtype_of(t, k), x[k], n);
}

static const stored_case cases[] = {
    {WEFT_F32, {WEFT_BF16, WEFT_BF16, WEFT_BF16}},
    {WEFT_BF16, {WEFT_BF16, WEFT_F32, WEFT_BF16}},
    {WEFT_F32, {WEFT_DYN8X256, WEFT_UDYN8X256, WEFT_DYN8X256}},
    {WEFT_BF16, {WEFT_F32, WEFT_UDYN8X256, WEFT_BF16}},
};

TESTS(stored_numbers_go_through_the_body_in_fp32, LENGTH(cases)) {
    const stored_case *t = &cases[_i];
    float *got = every_way(stored_run, t, "update of what is stored narrow");
    const char *at = (const char *)got;
    char *memory[1 + STATES];
    for (int k = 0; k <= STATES; k++) memory[k] = make_memory(t, k);
    for (int row = 0; row < ROWS; row++) update_by_hand(memory, t, row);
    for (int k = 0; k <= STATES; k++) {
        const int64_t bytes = weft_dtype_span(dtype_of(t, k), N);
        for (int64_t i = 0; i < bytes; i++)
            EXPECT(at[i] == memory[k][i], "array %d in %s differs at byte %lld", k, weft_dtype_name(dtype_of(t, k)),
                   (long long)i);
        at += (bytes + 3) / 4 * 4;
    }
    expect_copy(at, memory[0], t);
    for (int k = 0; k <= STATES; k++) free(memory[k]);
    free(got);
}

static void poisoned_run(run *r, const void *data) {
    const stored_case *t = data;
    const float bad = INFINITY;
    weft_error err = WEFT_ERROR_INIT;
    stored_call u;
    stored_args(&u, r, t);
    const weft_ref at = {u.region.gradient.buffer, u.region.gradient.offset + 4 * 700};
    ck_assert_int_eq(table->write(r->device, NULL, at, &bad, 4, &err), WEFT_OK);
    RUN(r, update, &u.args);
    get_bytes(r, u.region.states[0], weft_dtype_span(t->states[0], N));
}

TEST(a_number_that_is_not_finite_spoils_its_block_and_no_other) {
    float *got = every_way(poisoned_run, &cases[2], "update with an infinite gradient");
    const weft_dyn8x256 *blocks = (const weft_dyn8x256 *)(const void *)got;
    for (int b = 0; b < N / BLOCK; b++) HOLDS(isnan(blocks[b].scale) == (b == 700 / BLOCK));
    free(got);
}

static void refuses(const stored_call *u, run *r, weft_status status, const char *text) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(table->update(r->device, NULL, &u->args, &err), status);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

TEST(what_cannot_be_stored_so_is_refused) {
    run r = {.device = devices[0], .shift = 0};
    stored_call u;
    stored_args(&u, &r, &cases[2]);
    u.region.weight_dtype = WEFT_DYN8X256;
    refuses(&u, &r, WEFT_E_UNSUPPORTED, "weight is dyn8x256; a weight is fp32 or bf16");
    u.region.weight_dtype = 0;
    u.region.state_dtypes[1] = WEFT_I8X64;
    refuses(&u, &r, WEFT_E_UNSUPPORTED, "states[1] is int8x64");
    u.region.state_dtypes[1] = WEFT_UDYN8X256;
    u.region.n = N - 1;
    refuses(&u, &r, WEFT_E_HOST, "no multiple of the blocks of 256");
    end_run(&r);
}

int main(void) {
    weft_dynamic8_fill(&maps[0], WEFT_DYN8X256);
    weft_dynamic8_fill(&maps[1], WEFT_UDYN8X256);
    return run_device_suite("states");
}
