/* host/tools/check/device_moves.c: what a device moves, and in which order. */
#include "tools/check/device_bench.h"

#include "plugin/device_queries.h"
#include "plugin/enter.h"
#include "tools/check/rule.h"

#include <stdlib.h>

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

/* What a call with nothing to do leaves. */
static weft_status move_nothing(weft_bench *b, weft_ref at, const uint8_t *holds, weft_error *err) {
    uint8_t untouched = 0x3c;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, at, &untouched, 0);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, NULL, &untouched, at, 0);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, NULL, at, (weft_ref){at.buffer, at.offset + 64}, 0);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, fill, err, b->device, NULL, at, 0x01020304u, 0);
    if (status == WEFT_OK && untouched != 0x3c) return WEFT_BROKEN(err, "a read of 0 bytes writes some");
    WEFT_PLUGIN_TELL(b->kernels, release, b->device, NULL); /* which is fine */
    return status == WEFT_OK ? expect_bytes(b, at, holds, "calls for 0 bytes", err) : status;
}

/* More than what a copy may go through in pieces, from and to any byte, in a stream of its own. */
enum { MANY = 5000001 };

static weft_status move_through(weft_bench *b, weft_stream *s, uint8_t *bytes, weft_error *err) {
    weft_ref x, y;
    weft_status status = weft_bench_take(b, &x, MANY, err);
    if (status == WEFT_OK) status = weft_bench_take(b, &y, MANY, err);
    if (status != WEFT_OK) return status;
    x.offset += 1, y.offset += 3;
    for (int64_t i = 0; i < MANY; i++) bytes[i] = (uint8_t)(i * 7 + i / 251);
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, s, x, bytes, MANY);
    memset(bytes, 0, MANY); /* it is free again, though the copy may still be queued */
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, s, y, x, MANY);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, s, bytes, y, MANY);
    for (int64_t i = 0; i < MANY && status == WEFT_OK; i++)
        if (bytes[i] != (uint8_t)(i * 7 + i / 251))
            status = WEFT_BROKEN(err, "byte %lld of %d is %u after write, copy and read, and should be %u",
                                 (long long)i, MANY, bytes[i], (unsigned)(uint8_t)(i * 7 + i / 251));
    return status;
}

static weft_status move_many(weft_bench *b, weft_error *err) {
    uint8_t *bytes = malloc(MANY);
    weft_stream *s = NULL;
    weft_status status = bytes != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for bytes");
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &s);
    if (status == WEFT_OK) status = move_through(b, s, bytes, err);
    if (s != NULL) WEFT_PLUGIN_TELL(b->kernels, stream_destroy, b->device, s);
    free(bytes);
    return status;
}

/* The host's own view of a buffer shows what `read` gives, begins where the ref does, and is of that buffer alone. */
static weft_status view(weft_bench *b, weft_ref at, const uint8_t *holds, weft_error *err) {
    const uint8_t *seen = weft_device_view(b->kernels, b->device, at);
    const weft_ref first = {at.buffer, 0}, outside = {at.buffer, (int64_t)1 << 40};
    const uint8_t *whole = weft_device_view(b->kernels, b->device, first);
    weft_status status;
    if (weft_device_view(b->kernels, b->device, outside) != NULL)
        return WEFT_BROKEN(err, "host_view shows something 2^40 bytes behind the beginning of a small buffer");
    if (seen == NULL && whole == NULL) return WEFT_OK;
    if (seen == NULL || whole == NULL || seen != whole + at.offset)
        return WEFT_BROKEN(err, "host_view at byte %lld of a buffer is not %lld bytes behind that at 0",
                           (long long)at.offset, (long long)at.offset);
    if ((uintptr_t)whole % 256 != 0) return WEFT_BROKEN(err, "alloc gives memory that is not aligned to 256 bytes");
    WEFT_PLUGIN_CALL(status, b->kernels, synchronize, err, b->device, NULL);
    if (status == WEFT_OK && memcmp(seen, holds, MOVED) != 0)
        return WEFT_BROKEN(err, "host_view shows other bytes than read gives");
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

/* Sixteen times to and fro between two streams, each waiting for the other by events alone. */
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
