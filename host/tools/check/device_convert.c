/* host/tools/check/device_convert.c: what a device makes of numbers in another type: of each exponent and sign those
 * between which rounding decides, of 16 bits all that there are. */
#include "tools/check/device_bench.h"

#include "model/convert.h"
#include "plugin/enter.h"
#include "tools/check/rule.h"

#include <stdlib.h>

enum { PATTERNS = 65536, GUARD = 0x6e, N_TYPES = 3 };

static const int32_t types[N_TYPES] = {WEFT_F32, WEFT_BF16, WEFT_F16};

/* Ties and their neighbours, where the cut is at 16 bits (bf16), at 13 (fp16), and further up among its subnormals. */
static uint32_t f32_pattern(uint32_t i) {
    static const uint32_t mantissas[] = {0,        1,        0x7fff,   0x8000,   0x8001,   0x17fff,  0x18000,
                                         0x18001,  0x7f7fff, 0x7f8000, 0x7f8001, 0x7fffff, 0x0fff,   0x1000,
                                         0x1001,   0x2fff,   0x3000,   0x3001,   0x7fefff, 0x7ff000, 0x7ff001,
                                         0x3fffff, 0x400000, 0x400001, 0x200000, 0x600000, 0x100000, 0x5fffff,
                                         0x600001, 0x2aaaaa, 0x555555, 0x123456};
    return (i & 1u) << 31 | (i >> 6 & 0xffu) << 23 | mantissas[i >> 1 & 31u];
}

/* Element i of a type's list, which repeats itself. */
static void put_pattern(void *to, int32_t dtype, uint32_t i) {
    const uint32_t word = f32_pattern(i);
    const uint16_t half = (uint16_t)i;
    if (dtype == WEFT_F32) memcpy((char *)to + 4 * (size_t)i, &word, sizeof word);
    else memcpy((char *)to + 2 * (size_t)i, &half, sizeof half);
}

static uint32_t bits_at(const void *data, int32_t dtype, int64_t i) {
    uint32_t word = 0;
    const size_t bytes = (size_t)weft_dtype_bytes(dtype);
    memcpy(&word, (const char *)data + (size_t)i * bytes, bytes);
    return word;
}

static bool is_nan(uint32_t bits, int32_t dtype) {
    switch (dtype) {
    case WEFT_BF16: return (bits & 0x7fffu) > 0x7f80u;
    case WEFT_F16: return (bits & 0x7fffu) > 0x7c00u;
    default: return (bits & 0x7fffffffu) > 0x7f800000u;
    }
}

/* A pair of types: its numbers, what they should become, and what the device holds in their place. */
typedef struct pair {
    int32_t from, to;
    char *numbers, *want, *got; /* [PATTERNS] */
    weft_ref source, target;
    weft_stream *stream;
} pair;

static weft_status judge_numbers(const pair *p, int64_t first, int64_t n, weft_error *err) {
    for (int64_t i = 0; i < PATTERNS; i++) {
        const uint32_t got = bits_at(p->got, p->to, i), given = bits_at(p->numbers, p->from, first + i % PATTERNS);
        const bool is_in = i < n;
        const uint32_t want = is_in ? bits_at(p->want, p->to, first + i)
                                    : GUARD * (p->to == WEFT_F32 ? 0x01010101u : 0x0101u);
        if (got == want || (is_in && is_nan(got, p->to) && is_nan(want, p->to))) continue;
        if (!is_in)
            return WEFT_BROKEN(err, "convert of %lld elements from %s to %s writes element %lld as well", (long long)n,
                               weft_dtype_name(p->from), weft_dtype_name(p->to), (long long)i);
        return WEFT_BROKEN(err,
                           "convert of %lld elements from %s to %s makes 0x%x of 0x%x, in element %lld, and "
                           "should make 0x%x: to the nearest, ties to even",
                           (long long)n, weft_dtype_name(p->from), weft_dtype_name(p->to), (unsigned)got,
                           (unsigned)given, (long long)i, (unsigned)want);
    }
    return WEFT_OK;
}

/* n elements from element `first` on, to the beginning of the target. */
static weft_status convert_some(weft_bench *b, const pair *p, int64_t first, int64_t n, weft_error *err) {
    const int64_t bytes = PATTERNS * weft_dtype_bytes(p->to);
    const weft_ref from = {p->source.buffer, p->source.offset + first * weft_dtype_bytes(p->from)};
    weft_status status;
    memset(p->got, GUARD, (size_t)bytes);
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, p->stream, p->target, p->got, bytes);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, convert, err, b->device, p->stream, p->target, p->to, from, p->from, n);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, p->stream, p->got, p->target, bytes);
    return status == WEFT_OK ? judge_numbers(p, first, n, err) : status;
}

/* Both begin at an element that no wider word begins at. */
static weft_status put_pair(weft_bench *b, pair *p, weft_error *err) {
    const int64_t from_bytes = weft_dtype_bytes(p->from), to_bytes = weft_dtype_bytes(p->to);
    weft_status status = weft_bench_take(b, &p->source, (PATTERNS + 1) * from_bytes, err);
    if (status == WEFT_OK) status = weft_bench_take(b, &p->target, (PATTERNS + 3) * to_bytes, err);
    if (status != WEFT_OK) return status;
    p->source.offset += from_bytes, p->target.offset += 3 * to_bytes;
    for (uint32_t i = 0; i < PATTERNS; i++) put_pattern(p->numbers, p->from, i);
    weft_convert(p->want, p->to, p->numbers, p->from, PATTERNS);
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, p->stream, p->source, p->numbers,
                     PATTERNS * from_bytes);
    return status;
}

static weft_status convert_pair(weft_bench *b, pair *p, weft_error *err) {
    static const struct {
        int64_t first, n;
    } calls[] = {{0, 0}, {0, 1}, {5, 7}, {1023, 1}, {32765, 1027}, {1, PATTERNS - 1}, {0, PATTERNS}};
    weft_status status = put_pair(b, p, err);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0] && status == WEFT_OK; i++)
        status = convert_some(b, p, calls[i].first, calls[i].n, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, p->stream, p->got, p->source,
                         PATTERNS * weft_dtype_bytes(p->from));
    if (status == WEFT_OK && memcmp(p->got, p->numbers, (size_t)(PATTERNS * weft_dtype_bytes(p->from))) != 0)
        status = WEFT_BROKEN(err, "convert from %s to %s changes what it converts", weft_dtype_name(p->from),
                             weft_dtype_name(p->to));
    weft_bench_release(b);
    return status;
}

/* There is no conversion of another type, and one that does nothing would not be noticed. */
static weft_status refuse_type(weft_bench *b, const pair *p, int32_t to, int32_t from, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    const weft_doing before = weft_plugin_enter(b->kernels, "convert");
    const weft_status status = b->kernels->convert(b->device, NULL, p->target, to, p->source, from, 4, &said);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    if (status == WEFT_OK)
        return WEFT_BROKEN(err, "convert from type %d to type %d is WEFT_OK; it is among fp32, bf16 and fp16", from,
                           to);
    return said.text[0] != '\0' ? WEFT_OK : WEFT_BROKEN(err, "convert refuses another type without a sentence");
}

static weft_status refuse_types(weft_bench *b, weft_error *err) {
    static const int32_t others[] = {WEFT_I32, WEFT_I64, WEFT_F64, -1, 1 << 20};
    pair p = {0};
    weft_status status = weft_bench_take(b, &p.source, 64, err);
    if (status == WEFT_OK) status = weft_bench_take(b, &p.target, 64, err);
    for (size_t i = 0; i < sizeof others / sizeof others[0] && status == WEFT_OK; i++) {
        status = refuse_type(b, &p, others[i], WEFT_F32, err);
        if (status == WEFT_OK) status = refuse_type(b, &p, WEFT_F32, others[i], err);
    }
    weft_bench_release(b);
    return status;
}

/* In the device's first stream and in another one by turns. */
static weft_status convert_pairs(weft_bench *b, char *memory, weft_stream *other, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < N_TYPES * N_TYPES && status == WEFT_OK; i++) {
        pair p = {.from = types[i / N_TYPES],
                  .to = types[i % N_TYPES],
                  .numbers = memory,
                  .want = memory + 4 * PATTERNS,
                  .got = memory + 8 * PATTERNS,
                  .stream = i % 2 == 0 ? NULL : other};
        status = convert_pair(b, &p, err);
    }
    return status == WEFT_OK ? refuse_types(b, err) : status;
}

weft_status weft_bench_converts(weft_bench *b, weft_error *err) {
    char *memory = malloc(12 * PATTERNS);
    weft_stream *other = NULL;
    weft_status status = memory != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for numbers");
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &other);
    if (status == WEFT_OK) status = convert_pairs(b, memory, other, err);
    if (other != NULL) WEFT_PLUGIN_TELL(b->kernels, stream_destroy, b->device, other);
    free(memory);
    return status;
}
