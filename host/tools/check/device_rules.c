/* host/tools/check/device_rules.c: rules for devices: transfers, stream order, and results against device/cpu. */
#include "model/convert.h"
#include "plugin/enter.h"
#include "tools/check/device_calls.h"
#include "tools/check/newer_abi.h"
#include "tools/check/rule.h"

#include <math.h>
#include <stdlib.h>
#include <weft/choices.h>
#include <weft/dry_run.h>
#include <weft/roofline.h>

/* ---- transfers and their order ---- */

enum { MOVED = 1000 };

static void fill_pattern(uint8_t *out, uint32_t seed) {
    for (uint32_t i = 0; i < MOVED; i++) out[i] = (uint8_t)((i * 37u + seed) % 251u);
}

static weft_status expect_bytes(weft_bench *b, weft_ref from, const uint8_t *want, const char *after, weft_error *err) {
    uint8_t got[MOVED];
    const weft_status status = b->kernels->read(b->device, NULL, got, from, MOVED, err);
    if (status != WEFT_OK) return status;
    for (int i = 0; i < MOVED; i++)
        if (got[i] != want[i])
            return WEFT_BROKEN(err, "byte %d is %u after %s, and should be %u", i, got[i], after, want[i]);
    return WEFT_OK;
}

/* Checks that calls of zero bytes change no byte. */
static weft_status move_nothing(weft_bench *b, weft_ref at, const uint8_t *holds, weft_error *err) {
    uint8_t untouched = 0x3c;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, at, &untouched, 0);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, NULL, &untouched, at, 0);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, NULL, at, (weft_ref){at.buffer, at.offset + 64}, 0);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, fill, err, b->device, NULL, at, 0x01020304u, 0);
    if (status == WEFT_OK && untouched != 0x3c) return WEFT_BROKEN(err, "a read of 0 bytes writes some");
    WEFT_PLUGIN_NOTIFY(b->kernels, release, b->device, NULL); /* NULL is valid */
    return status == WEFT_OK ? expect_bytes(b, at, holds, "calls for 0 bytes", err) : status;
}

/* Tests a transfer larger than any staging buffer, from and to unaligned bytes, in a stream of its own. */
enum { MANY = 5000001 };

static weft_status move_through(weft_bench *b, weft_stream *s, uint8_t *bytes, weft_error *err) {
    weft_ref x, y;
    weft_status status = weft_bench_take(b, &x, MANY, err);
    if (status == WEFT_OK) status = weft_bench_take(b, &y, MANY, err);
    if (status != WEFT_OK) return status;
    x.offset += 1, y.offset += 3;
    for (int64_t i = 0; i < MANY; i++) bytes[i] = (uint8_t)(i * 7 + i / 251);
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, s, x, bytes, MANY);
    memset(bytes, 0, MANY); /* the caller may reuse the buffer, even if the copy is still queued */
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, s, y, x, MANY);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, s, bytes, y, MANY);
    for (int64_t i = 0; i < MANY && status == WEFT_OK; i++)
        if (bytes[i] != (uint8_t)(i * 7 + i / 251))
            status = WEFT_BROKEN(err, "byte %lld of %d is %u after write, copy and read, and should be %u",
                                 (long long)i, MANY, bytes[i], (unsigned)(uint8_t)(i * 7 + i / 251));
    return status;
}

static weft_status move_many(weft_bench *b, weft_error *err) {
    uint8_t *bytes = weft_alloc(MANY, 1);
    weft_stream *s = NULL;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &s);
    if (status == WEFT_OK) status = move_through(b, s, bytes, err);
    if (s != NULL) WEFT_PLUGIN_NOTIFY(b->kernels, stream_destroy, b->device, s);
    free(bytes);
    return status;
}

/* Checks the host view of a buffer: it equals the result of `read`, starts at the ref, and covers only that buffer. */
static weft_status view(weft_bench *b, weft_ref at, const uint8_t *holds, weft_error *err) {
    const uint8_t *seen = weft_device_view(b->kernels, b->device, at);
    const weft_ref first = {at.buffer, 0}, outside = {at.buffer, (int64_t)1 << 40};
    const uint8_t *whole = weft_device_view(b->kernels, b->device, first);
    weft_status status;
    if (weft_device_view(b->kernels, b->device, outside) != NULL)
        return WEFT_BROKEN(err, "host_view returns an address at 2^40 bytes in a small buffer");
    if (seen == NULL && whole == NULL) return WEFT_OK;
    if (seen == NULL || whole == NULL || seen != whole + at.offset)
        return WEFT_BROKEN(err, "host_view at byte %lld of a buffer is not %lld bytes after host_view at byte 0",
                           (long long)at.offset, (long long)at.offset);
    if ((uintptr_t)whole % 256 != 0) return WEFT_BROKEN(err, "alloc returns memory that is not aligned to 256 bytes");
    WEFT_PLUGIN_CALL(status, b->kernels, synchronize, err, b->device, NULL);
    if (status == WEFT_OK && memcmp(seen, holds, MOVED) != 0)
        return WEFT_BROKEN(err, "host_view and read return different bytes");
    return status;
}

weft_status weft_bench_moves_some(weft_bench *b, weft_error *err) {
    uint8_t one[MOVED], two[MOVED];
    const uint32_t pattern = 0x3f800001u;
    weft_ref x, y, inner;
    weft_status status = weft_bench_take(b, &x, MOVED, err);
    fill_pattern(one, 1);
    fill_pattern(two, 2);
    if (status == WEFT_OK) status = weft_bench_take(b, &y, MOVED, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, x, one, MOVED);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, y, two, MOVED);
    if (status == WEFT_OK) status = expect_bytes(b, x, one, "write", err);
    if (status != WEFT_OK) return status;
    inner = (weft_ref){y.buffer, y.offset + 104};
    WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, NULL, inner, (weft_ref){x.buffer, x.offset + 8}, 332);
    memcpy(two + 104, one + 8, 332);
    if (status == WEFT_OK) status = expect_bytes(b, y, two, "copy", err);
    inner = (weft_ref){x.buffer, x.offset + 40};
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, fill, err, b->device, NULL, inner, pattern, 17);
    for (int i = 0; i < 17; i++) memcpy(one + 40 + 4 * i, &pattern, sizeof pattern);
    if (status == WEFT_OK) status = expect_bytes(b, x, one, "fill", err);
    if (status == WEFT_OK) status = move_nothing(b, x, one, err);
    return status == WEFT_OK ? view(b, x, one, err) : status;
}

weft_status weft_bench_moves(weft_bench *b, weft_error *err) {
    const weft_status status = weft_bench_moves_some(b, err);
    return status == WEFT_OK ? move_many(b, err) : status;
}

/* Copies back and forth sixteen times between two streams, ordered only by stream events. */
static weft_status pass_on(weft_bench *b, weft_stream *const streams[2], const weft_ref at[2], weft_error *err) {
    weft_event *event = NULL;
    weft_status status = WEFT_OK;
    for (int i = 0; i < 16 && status == WEFT_OK; i++) {
        uint8_t bytes[MOVED];
        fill_pattern(bytes, (uint32_t)i);
        WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, streams[0], at[0], bytes, MOVED);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, streams[0], &event);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, wait, err, b->device, streams[1], event);
        if (status == WEFT_OK)
            WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, streams[1], at[1], at[0], MOVED);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, streams[1], &event);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, wait, err, b->device, streams[0], event);
    }
    return status;
}

weft_status weft_bench_orders(weft_bench *b, weft_error *err) {
    weft_stream *streams[2] = {NULL, NULL};
    weft_ref at[2];
    uint8_t last[MOVED];
    weft_status status = b->kernels->stream_create(b->device, &streams[0], err);
    fill_pattern(last, 15);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &streams[1]);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) status = weft_bench_take(b, &at[i], MOVED, err);
    if (status == WEFT_OK) status = pass_on(b, streams, at, err);
    for (int i = 0; i < 2 && status == WEFT_OK; i++)
        WEFT_PLUGIN_CALL(status, b->kernels, synchronize, err, b->device, streams[i]);
    if (status == WEFT_OK) status = expect_bytes(b, at[1], last, "copies between two streams", err);
    for (int i = 0; i < 2; i++)
        if (streams[i] != NULL) b->kernels->stream_destroy(b->device, streams[i]);
    return status;
}

/* ---- conversion between types ----
 *
 * All 16-bit values are converted. 32-bit values cover the rounding boundaries of each exponent and sign. */

enum { PATTERNS = 65536, GUARD = 0x6e, N_TYPES = 3 };

static const int32_t types[N_TYPES] = {WEFT_F32, WEFT_BF16, WEFT_F16};

/* Mantissas at ties and next to them: cuts at 16 bits (bf16), 13 bits (fp16), and more (fp16 subnormals). */
static uint32_t f32_pattern(uint32_t i) {
    static const uint32_t mantissas[] = {0,        1,        0x7fff,   0x8000,   0x8001,   0x17fff,  0x18000,
                                         0x18001,  0x7f7fff, 0x7f8000, 0x7f8001, 0x7fffff, 0x0fff,   0x1000,
                                         0x1001,   0x2fff,   0x3000,   0x3001,   0x7fefff, 0x7ff000, 0x7ff001,
                                         0x3fffff, 0x400000, 0x400001, 0x200000, 0x600000, 0x100000, 0x5fffff,
                                         0x600001, 0x2aaaaa, 0x555555, 0x123456};
    return (i & 1u) << 31 | (i >> 6 & 0xffu) << 23 | mantissas[i >> 1 & 31u];
}

/* Writes element i of a type's list of patterns, which repeats. */
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

/* A pair of types: the input, the expected result, and the device's result. */
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

/* Converts n elements, starting at element `first`, to the start of the target. */
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

/* Uploads the input. Both operands start at an element offset that is not aligned for wider words. */
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
        status = WEFT_BROKEN(err, "convert from %s to %s changes its input", weft_dtype_name(p->from),
                             weft_dtype_name(p->to));
    weft_bench_release(b);
    return status;
}

/* Checks that other types are rejected, because a conversion without effect would go unnoticed. */
static weft_status refuse_type(weft_bench *b, const pair *p, int32_t to, int32_t from, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    const weft_call_record before = weft_plugin_enter(b->kernels, "convert");
    const weft_status status = b->kernels->convert(b->device, NULL, p->target, to, p->source, from, 4, &said);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    if (status == WEFT_OK)
        return WEFT_BROKEN(err, "convert from type %d to type %d is WEFT_OK; it is among fp32, bf16 and fp16", from,
                           to);
    return said.text[0] != '\0' ? WEFT_OK : WEFT_BROKEN(err, "convert rejects another type without an error message");
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

/* Runs all pairs, alternating between the device's first stream and another one. */
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
    char *memory = weft_alloc(PATTERNS, 12);
    weft_stream *other = NULL;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &other);
    if (status == WEFT_OK) status = convert_pairs(b, memory, other, err);
    if (other != NULL) WEFT_PLUGIN_NOTIFY(b->kernels, stream_destroy, b->device, other);
    free(memory);
    return status;
}

static weft_status open_bench(weft_bench *out, const weft_plugin_under_test *tested, uint8_t poison, weft_error *err) {
    return weft_bench_open(out, weft_plugin_under_test_table(tested, device), weft_plugin_under_test_host(poison),
                           tested->config, err);
}

/* Runs a test that needs only the device. */
static weft_status try_alone(const weft_plugin_under_test *tested, weft_status (*trial)(weft_bench *b, weft_error *err),
                             weft_error *err) {
    weft_bench b;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = trial(&b, err);
    weft_bench_close(&b);
    return status;
}

WEFT_RULE_BY(moves_bytes, try_alone, weft_bench_moves)
WEFT_RULE_BY(keeps_order, try_alone, weft_bench_orders)
WEFT_RULE_BY(converts, try_alone, weft_bench_converts)

static weft_status serves_by_tables(weft_plugin_under_test *tested, weft_error *err) {
    weft_bench b;
    int n = 0;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = weft_bench_tables(&b, &n, err);
    weft_bench_close(&b);
    if (status == WEFT_OK && n == 0) return WEFT_MOOT(tested, err, "it has no optional table, and need not");
    return status;
}

/* ---- kernels ---- */

/* Results of a call, as read from the device; owned. */
typedef struct outcome {
    void *results[WEFT_CALL_OPERANDS];
} outcome;

static void free_outcome(outcome *self) {
    for (int i = 0; i < WEFT_CALL_OPERANDS; i++) free(self->results[i]);
}

/* Uploads an operand. Results and workspace without initial content are filled with the poison byte. */
static weft_status put(weft_bench *b, weft_ref *out, const void *data, int64_t bytes, uint8_t poison, weft_error *err) {
    void *filled = NULL;
    weft_status status = weft_bench_take(b, out, bytes, err);
    if (status != WEFT_OK || bytes == 0) return status;
    if (data != NULL) return b->kernels->write(b->device, NULL, *out, data, bytes, err);
    filled = weft_alloc(bytes, 1);
    memset(filled, poison, (size_t)bytes);
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, *out, filled, bytes);
    free(filled);
    return status;
}

static weft_status put_operands(weft_bench *b, weft_device_call *call, weft_ref refs[], uint8_t poison,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < call->n && status == WEFT_OK; i++) {
        const weft_call_operand *o = &call->operands[i];
        status = put(b, &refs[i], o->data, weft_dtype_span(o->dtype, o->n), poison, err);
        memcpy((char *)&call->args + o->field, &refs[i], sizeof refs[i]);
    }
    return status;
}

/* Invokes a kernel. Records the slot and the call, so that a crash report names them. */
static weft_status invoke(const weft_kernel_run *run, weft_device_call *call, const weft_kernel *kernel,
                          weft_error *err) {
    const weft_call_record before = weft_plugin_enter(run->kernels, kernel->name);
    weft_plugin_under_test_asks("%s in %s", call->name, weft_dtype_name(call->dtype));
    return weft_plugin_leave(before, weft_kernel_invoke(kernel, run, &call->args.kernel, err), err);
}

typedef weft_status invoke_fn(const weft_kernel_run *run, weft_device_call *call, const weft_kernel *kernel,
                              weft_error *err);

static weft_status run_kernel(weft_bench *b, weft_device_call *call, const weft_kernel *kernel, uint8_t poison,
                              invoke_fn *how, weft_error *err) {
    const weft_kernel_run run = {.kernels = b->kernels, .device = b->device};
    size_t field = 0;
    const int64_t room = weft_kernel_workspace(kernel, &run, &call->args.kernel, &field);
    weft_ref workspace = {NULL, 0};
    weft_status status = WEFT_OK;
    if (room < 0 || room > (int64_t)1 << 28)
        return WEFT_BROKEN(err, "%s requests %lld bytes of workspace", kernel->name, (long long)room);
    if (weft_kernel_workspace(kernel, &run, &call->args.kernel, &field) != room)
        return WEFT_BROKEN(
            err, "%s requests a different workspace on a second call: a plan calls it once, and the step has that size",
            kernel->name);
    if (room > 0) status = put(b, &workspace, NULL, room, poison, err);
    if (room > 0) workspace.offset = 0; /* aligned like a buffer of its own */
    if (field != 0) memcpy((char *)&call->args + field, &workspace, sizeof workspace);
    if (status == WEFT_OK) status = how(&run, call, kernel, err);
    if (status != WEFT_OK) (void)weft_error_prefix(err, "%s: ", kernel->name);
    return status;
}

static weft_status run_call(weft_bench *b, weft_device_call *call, uint8_t poison, invoke_fn *how, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2 && call->kernels[i] != NULL && status == WEFT_OK; i++)
        status = run_kernel(b, call, call->kernels[i], poison, how, err);
    return status;
}

static weft_status get_results(weft_bench *b, const weft_device_call *call, const weft_ref refs[], outcome *out,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < call->n && status == WEFT_OK; i++) {
        const int64_t bytes = weft_dtype_span(call->operands[i].dtype, call->operands[i].n);
        if (!call->operands[i].is_result) continue;
        out->results[i] = weft_alloc(bytes + 8, 1);
        WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, NULL, out->results[i], refs[i], bytes);
    }
    return status;
}

/* Runs a call. WEFT_E_UNSUPPORTED: the device lacks the kernel. */
static weft_status perform(weft_bench *b, weft_device_call *call, outcome *out, uint8_t poison, invoke_fn *how,
                           weft_error *err) {
    weft_ref refs[WEFT_CALL_OPERANDS];
    weft_status status = put_operands(b, call, refs, poison, err);
    memset(out, 0, sizeof *out);
    if (status == WEFT_OK) status = run_call(b, call, poison, how, err);
    if (status == WEFT_OK) status = get_results(b, call, refs, out, err);
    weft_bench_release(b);
    return status;
}

static double number_at(const void *data, int32_t dtype, int64_t i) {
    float x = 0;
    switch (dtype) {
    case WEFT_F64: return ((const double *)data)[i];
    case WEFT_I32: return ((const int32_t *)data)[i];
    default: break;
    }
    weft_convert(&x, WEFT_F32, (const char *)data + i * weft_dtype_bytes(dtype), dtype, 1);
    return (double)x;
}

/* Returns the relative tolerance for a result type in a pass of a type: three bits of the coarser type. */
static double rounding(int32_t result, int32_t pass) {
    if (result == WEFT_BF16) return 1.0 / 64;
    if (pass == WEFT_BF16) return 1e-2;
    return result == WEFT_F16 || pass == WEFT_F16 ? 1.0 / 256 : 1e-4;
}

/* Returns the largest magnitude among the operands that a call reads. */
static double largest_read(const weft_device_call *call) {
    double largest = 0;
    for (int k = 0; k < call->n; k++) {
        const weft_call_operand *o = &call->operands[k];
        if (o->data == NULL || o->is_result || o->dtype == WEFT_I32 || o->dtype == WEFT_F64) continue;
        for (int64_t i = 0; i < o->n; i++) largest = fmax(largest, fabs(number_at(o->data, o->dtype, i)));
    }
    return largest;
}

/* Compares within rounding of the largest value, because cancellation does not reduce the error. Where only the
 * remainder of a cancellation is left (the gradient of a softmax over one position), the tolerance is relative to the
 * inputs. */
static weft_status compare(const weft_device_call *call, const outcome *got, const outcome *want, weft_error *err) {
    for (int k = 0; k < call->n; k++) {
        const weft_call_operand *o = &call->operands[k];
        double largest = call->exact ? 0 : largest_read(call) / 100;
        const double part = call->exact ? 0 : rounding(o->dtype, call->dtype);
        if (!o->is_result) continue;
        for (int64_t i = 0; i < o->n; i++) largest = fmax(largest, fabs(number_at(want->results[k], o->dtype, i)));
        for (int64_t i = 0; i < o->n; i++) {
            const double a = number_at(got->results[k], o->dtype, i), b = number_at(want->results[k], o->dtype, i);
            if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= part * largest) continue;
            return WEFT_BROKEN(err, "%s in %s: %s[%lld] of %lld is %.9g, and %.9g by the CPU device", call->name,
                               weft_dtype_name(call->dtype), o->name, (long long)i, (long long)o->n, a, b);
        }
    }
    return WEFT_OK;
}

typedef weft_status check_fn(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err);

/* True if the device reports support for activations of the type. */
static bool reports_support(const weft_bench *b, int32_t dtype) {
    const weft_device_info info = weft_bench_info(b);
    return info.types == 0 ? dtype != WEFT_F16 : (info.types >> dtype & 1u) != 0;
}

static weft_status check_in(weft_bench *b, weft_bench *own, int32_t dtype, check_fn *judge, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_device_call call;
    for (int32_t i = 0; status == WEFT_OK && weft_device_call_draw(&call, i, dtype); i++) {
        status = judge(b, own, &call, err);
        if (status == WEFT_E_UNSUPPORTED) {
            err->code = WEFT_E_PLUGIN;
            status = weft_error_prefix(err, "its info lists %s as supported: ", weft_dtype_name(dtype));
        }
        weft_device_call_free(&call);
    }
    return status;
}

static weft_status check_all(weft_bench *b, weft_bench *own, check_fn *judge, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t dtype = WEFT_F32; dtype <= WEFT_F16 && status == WEFT_OK; dtype++)
        if (reports_support(b, dtype)) status = check_in(b, own, dtype, judge, err);
    return status;
}

static weft_status check_numbers(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err) {
    outcome got = {{0}}, want = {{0}};
    weft_status status = perform(b, call, &got, 0xff, invoke, err);
    if (status == WEFT_OK) {
        status = perform(own, call, &want, 0xff, invoke, err);
        if (status == WEFT_OK) status = compare(call, &got, &want, err);
    }
    free_outcome(&got);
    free_outcome(&want);
    return status;
}

static weft_status same_bits(const weft_device_call *call, const outcome *one, const outcome *two, const char *when,
                             weft_error *err) {
    for (int k = 0; k < call->n; k++) {
        const weft_call_operand *o = &call->operands[k];
        if (o->is_result && memcmp(one->results[k], two->results[k], (size_t)weft_dtype_span(o->dtype, o->n)) != 0)
            return WEFT_BROKEN(err, "%s returns different bits in %s %s", call->name, o->name, when);
    }
    return WEFT_OK;
}

/* Runs a call again with other bytes in memory or another way of calling, and compares the bits. */
static weft_status check_accumulate(weft_bench *b, weft_device_call *call, uint8_t poison, invoke_fn *second,
                                    const char *when, weft_error *err) {
    outcome one = {{0}}, two = {{0}};
    weft_status status = perform(b, call, &one, 0xff, invoke, err);
    if (status == WEFT_OK) status = perform(b, call, &two, poison, second, err);
    if (status == WEFT_OK) status = same_bits(call, &one, &two, when, err);
    free_outcome(&one);
    free_outcome(&two);
    return status;
}

static weft_status check_bits(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err) {
    (void)own;
    return check_accumulate(b, call, 0x11, invoke, "with different previous content of its memory", err);
}

static weft_status check_device(weft_plugin_under_test *tested, check_fn *judge, weft_error *err) {
    weft_bench b, own;
    weft_plugin_under_test cpu;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    memset(&own, 0, sizeof own);
    memset(&cpu, 0, sizeof cpu);
    if (status == WEFT_OK) status = weft_plugin_under_test_open_own(&cpu, "device", "cpu", err);
    if (status == WEFT_OK) status = open_bench(&own, &cpu, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = check_all(&b, &own, judge, err);
    weft_bench_close(&own);
    weft_bench_close(&b);
    weft_plugin_under_test_close(&cpu);
    return status;
}

WEFT_RULE_BY(computes, check_device, check_numbers)
WEFT_RULE_BY(repeats, check_device, check_bits)

/* ---- newer-ABI host ---- */

/* Invokes a kernel with arguments that extend beyond its struct, filled with `filler`. */
static weft_status invoke_longer(const weft_kernel_run *run, const weft_device_call *call, const weft_kernel *kernel,
                                 uint8_t filler, weft_error *err) {
    uint32_t size;
    void *longer = NULL;
    weft_status status;
    memcpy(&size, &call->args, sizeof size);
    longer = weft_newer_abi_copy(&call->args, 1, size, filler);
    status = weft_kernel_invoke(kernel, run, longer, err);
    free(longer);
    return status;
}

/* Checks that zeros after the known arguments change no result. */
static weft_status asks_nothing_more(const weft_kernel_run *run, const weft_device_call *call,
                                     const weft_kernel *kernel, weft_error *err) {
    const weft_call_record before = weft_plugin_enter(run->kernels, kernel->name);
    const weft_status status = weft_plugin_leave(before, invoke_longer(run, call, kernel, 0, err), err);
    if (status == WEFT_OK || status == WEFT_E_UNSUPPORTED) return status;
    err->code = WEFT_E_PLUGIN;
    return weft_error_prefix(err, "a newer host's %s, with longer arguments that are zero there, is rejected: ",
                             kernel->name);
}

/* Checks that unknown non-zero arguments are rejected, because ignoring them would lose a request. */
static weft_status asks_something_more(const weft_kernel_run *run, const weft_device_call *call,
                                       const weft_kernel *kernel, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    const weft_call_record before = weft_plugin_enter(run->kernels, kernel->name);
    const weft_status status = invoke_longer(run, call, kernel, WEFT_NEWER_ABI_PATTERN, &said);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    return weft_rejected_check(status, &said, kernel->name,
                               "arguments that request a feature beyond the end of SDK 1.0",
                               ", and ignores it. Fix: reject them with weft_struct_known", err);
}

/* Checks that a struct shorter than in SDK 1.0 is rejected, because its fields would be read out of bounds. */
static weft_status asks_less(const weft_kernel_run *run, const weft_device_call *call, const weft_kernel *kernel,
                             weft_error *err) {
    const uint32_t shorter = WEFT_SHORTER_BYTES;
    weft_device_call asked = *call;
    weft_error said = WEFT_ERROR_INIT;
    const weft_call_record before = weft_plugin_enter(run->kernels, kernel->name);
    weft_status status = WEFT_OK;
    memcpy(&asked.args, &shorter, sizeof shorter);
    status = weft_kernel_invoke(kernel, run, &asked.args.kernel, &said);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    return weft_rejected_check(status, &said, kernel->name, "arguments shorter than SDK 1.0",
                               ". Fix: reject them with WEFT_WHOLE", err);
}

static weft_status invoke_later(const weft_kernel_run *run, weft_device_call *call, const weft_kernel *kernel,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    weft_plugin_under_test_asks("%s in %s with longer arguments", call->name, weft_dtype_name(call->dtype));
    status = asks_something_more(run, call, kernel, err);
    if (status == WEFT_OK) status = asks_less(run, call, kernel, err);
    return status == WEFT_OK ? asks_nothing_more(run, call, kernel, err) : status;
}

static weft_status check_longer(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err) {
    (void)own;
    return check_accumulate(b, call, 0xff, invoke_later, "in a newer host, with longer structs", err);
}

static weft_status check_info(const weft_bench *b, weft_error *err) {
    const weft_device_info empty = {.struct_size = (uint32_t)sizeof empty};
    weft_device_info plain = empty, answered = empty;
    weft_device_info *longer = weft_newer_abi_copy(&empty, 1, sizeof empty, WEFT_NEWER_ABI_PATTERN);
    WEFT_PLUGIN_NOTIFY(b->kernels, info, b->device, &plain);
    WEFT_PLUGIN_NOTIFY(b->kernels, info, b->device, longer);
    weft_newer_abi_read(&answered, 1, sizeof answered, longer, "weft_device_info");
    return weft_newer_abi_check(WEFT_OK, memcmp(&plain, &answered, sizeof plain) == 0, "facts in info", err);
}

/* ---- optional tables of a device in a newer-ABI host ---- */

static weft_status query_roofline(const weft_bench *b, const weft_device_roofline *roofline, uint32_t bytes,
                                  uint8_t filler, weft_error *err) {
    const weft_roofline_product asked = {
        .struct_size = (uint32_t)sizeof asked, .m = 8, .n = 8, .k = 8, .dtype = WEFT_F32};
    weft_roofline_product *longer = weft_newer_abi_copy(&asked, 1, sizeof asked, filler);
    double seconds = 0;
    weft_status status = WEFT_OK;
    if (bytes != 0) longer->struct_size = bytes;
    status = roofline->product(b->device, &seconds, longer, err);
    free(longer);
    return status;
}

static weft_status check_roofline(const weft_bench *b, weft_error *err) {
    const weft_device_roofline *roofline = weft_device_find(b->kernels, b->device, WEFT_DEVICE_ROOFLINE);
    weft_error said = WEFT_ERROR_INIT, short_said = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (roofline == NULL || roofline->product == NULL) return WEFT_OK;
    status = query_roofline(b, roofline, 0, WEFT_NEWER_ABI_PATTERN, &said);
    status = weft_rejected_check(status, &said, WEFT_DEVICE_ROOFLINE,
                                 "a weft_roofline_product that requests an unknown feature", "", err);
    if (status != WEFT_OK) return status;
    status = query_roofline(b, roofline, WEFT_SHORTER_BYTES, 0, &short_said);
    status = weft_rejected_check(status, &short_said, WEFT_DEVICE_ROOFLINE,
                                 "a weft_roofline_product that is shorter than SDK 1.0 has it", "", err);
    return status == WEFT_OK ? query_roofline(b, roofline, 0, 0, err) : status;
}

/* Validates the kernel choices recorded by all previous calls. */
static weft_status check_choices(const weft_bench *b, weft_error *err) {
    const weft_device_choices *choices = weft_device_find(b->kernels, b->device, WEFT_DEVICE_CHOICES);
    const int64_t n = choices == NULL ? 0 : choices->count(b->device);
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        const weft_device_choice empty = {.struct_size = (uint32_t)sizeof empty};
        weft_device_choice plain = empty, answered = empty;
        weft_device_choice *longer = weft_newer_abi_structs(&empty, 1, sizeof empty);
        choices->get(b->device, i, &plain);
        choices->get(b->device, i, longer);
        weft_newer_abi_read(&answered, 1, sizeof answered, longer, "weft_device_choice");
        status = weft_newer_abi_check(WEFT_OK, memcmp(&plain, &answered, sizeof plain) == 0, "choices", err);
    }
    return status;
}

static weft_status check_counts(const weft_bench *b, weft_error *err) {
    const weft_dry_counts empty = {.struct_size = (uint32_t)sizeof empty};
    const weft_device_dry_run *table = NULL;
    weft_dry_counts plain = empty, answered = empty, *longer = NULL;
    weft_status status = weft_device_dry_run_find(&table, b->kernels, b->device, err);
    if (status != WEFT_OK || table == NULL) return status;
    status = table->begin(b->device, err);
    if (status != WEFT_OK) return status;
    longer = weft_newer_abi_structs(&empty, 1, sizeof empty);
    table->counts(b->device, &plain);
    table->counts(b->device, longer);
    table->end(b->device);
    weft_newer_abi_read(&answered, 1, sizeof answered, longer, "weft_dry_counts");
    return weft_newer_abi_check(WEFT_OK, memcmp(&plain, &answered, sizeof plain) == 0, "counts", err);
}

static weft_status check_tables(const weft_bench *b, weft_error *err) {
    weft_status status = check_roofline(b, err);
    if (status == WEFT_OK) status = check_choices(b, err);
    return status == WEFT_OK ? check_counts(b, err) : status;
}

static weft_status works_later(weft_plugin_under_test *tested, weft_error *err) {
    weft_bench b;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = check_info(&b, err);
    if (status == WEFT_OK) status = check_all(&b, &b, check_longer, err);
    if (status == WEFT_OK) status = check_tables(&b, err);
    weft_bench_close(&b);
    return status;
}

/* True if device memory is host memory. Heap usage is then meaningful; a GPU's libraries allocate in the background. */
static bool shares_machine(const weft_bench *b) {
    return (weft_bench_info(b).flags & WEFT_DEVICE_SHARES_MACHINE) != 0;
}

static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    weft_bench b;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = weft_bench_moves_some(&b, err);
    if (status == WEFT_OK && shares_machine(&b)) status = weft_bench_orders(&b, err);
    weft_bench_close(&b);
    return status;
}

static weft_bench open_device; /* device of the rule while its kernels are called */

/* Calls each kernel with its smallest call. */
static weft_status call_kernels(weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_device_call call;
    (void)tested;
    for (int32_t i = 0; status == WEFT_OK && weft_device_call_draw(&call, i, WEFT_F32); i += WEFT_CALL_SHAPES) {
        outcome none = {{0}};
        status = perform(&open_device, &call, &none, 0xff, invoke, err);
        free_outcome(&none);
        weft_device_call_free(&call);
    }
    return status;
}

/* Checks memory for a device that is created and destroyed, and for one whose kernels run repeatedly. */
static weft_status releases(weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = weft_plugin_under_test_releases(tested, create_and_destroy, err);
    if (status == WEFT_OK) status = open_bench(&open_device, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && shares_machine(&open_device) && reports_support(&open_device, WEFT_F32))
        status = weft_plugin_under_test_releases(tested, call_kernels, err);
    weft_bench_close(&open_device);
    return status;
}

const weft_rule weft_rules_device[] = {
    {"R100", "copies the requested bytes, and no others", moves_bytes, false},
    {"R101", "keeps the order of streams that events define", keeps_order, false},
    {"R102", "computes the results of this project's CPU device, over odd shapes", computes, false},
    {"R103", "gives the same bits for any previous content of its memory", repeats, false},
    {"R104", "frees its memory", releases, false},
    {"R105", "computes the same with a host that has longer structs, and rejects unknown arguments", works_later,
     false},
    {"R106", "converts between element types, to nearest, ties to even", converts, false},
    {"R107", "implements its optional tables", serves_by_tables, false},
    {NULL, NULL, NULL, false}};
