/* host/tools/check/device_tables.c: tests the optional tables of a device, each if present. */
#include "tools/check/device_calls.h"

#include "plugin/enter.h"
#include "tools/check/rule.h"

#include <math.h>
#include <sched.h>
#include <weft/capture.h>
#include <weft/dry_run.h>
#include <weft/native.h>
#include <weft/roofline.h>
#include <weft/team.h>
#include <weft/transfer.h>

enum { BYTES = 5001, WORDS = 300 };

static void fill_bytes(uint8_t *out, uint32_t seed) {
    for (uint32_t i = 0; i < BYTES; i++) out[i] = (uint8_t)((i * 29u + seed) % 241u);
}

static weft_status expect(const uint8_t *got, const uint8_t *want, int64_t n, const char *after, weft_error *err) {
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            return WEFT_BROKEN(err, "byte %lld is %u after %s, and should be %u", (long long)i, got[i], after, want[i]);
    return WEFT_OK;
}

static weft_status put(weft_bench *b, weft_ref to, const uint8_t *bytes, weft_error *err) {
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, to, bytes, BYTES);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, synchronize, err, b->device, NULL);
    return status;
}

static weft_status holds(weft_bench *b, weft_ref at, const uint8_t *want, const char *after, weft_error *err) {
    uint8_t got[BYTES];
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, NULL, got, at, BYTES);
    return status == WEFT_OK ? expect(got, want, BYTES, after, err) : status;
}

/* ---- asynchronous copies ---- */

/* Checks that an instruction at the end of a stream completes, stays complete, and returns from `await`. */
static weft_status reach(weft_bench *b, const weft_device_transfer *t, weft_stream *s, weft_error *err) {
    weft_event *event = NULL;
    int32_t is = 0;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, s, &event);
    while (status == WEFT_OK && is == 0) {
        is = t->reached(b->device, event, err);
        if (is < 0) status = err->code;
        if (is == 0) (void)sched_yield();
    }
    if (status == WEFT_OK && (is != 1 || t->reached(b->device, event, err) != 1))
        return WEFT_BROKEN(err, "reached of an event returns %d at first. Allowed: 0 or 1, and 1 on each later call",
                           is);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, synchronize, err, b->device, s);
    return status == WEFT_OK ? t->await(b->device, event, err) : status;
}

static weft_status send_and_bring(weft_bench *b, const weft_device_transfer *t, uint8_t *up, uint8_t *down,
                                  weft_stream *s, weft_error *err) {
    uint8_t want[BYTES];
    weft_ref at;
    weft_event *event = NULL;
    weft_status status = weft_bench_take(b, &at, BYTES, err);
    fill_bytes(want, 5);
    fill_bytes(up, 5);
    memset(down, 0x11, BYTES);
    if (status == WEFT_OK) status = t->upload(b->device, s, at, up, BYTES, err);
    if (status == WEFT_OK) status = t->upload(b->device, s, at, down, 0, err);
    if (status == WEFT_OK) status = reach(b, t, s, err);
    if (status != WEFT_OK) return status;
    memset(up, 0x77, BYTES); /* the instruction has completed, so the host may write the buffer */
    status = t->download(b->device, s, down, (weft_ref){at.buffer, at.offset + 3}, BYTES - 3, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, s, &event);
    if (status == WEFT_OK) status = t->await(b->device, event, err);
    if (status == WEFT_OK) status = expect(down, want + 3, BYTES - 3, "an upload and a download", err);
    memset(want, 0x11, sizeof want);
    return status == WEFT_OK ? expect(down + BYTES - 3, want, 3, "a download that ends before it", err) : status;
}

static weft_status check_transfer(weft_bench *b, const void *table, weft_error *err) {
    const weft_device_transfer *t = table;
    void *memory[2] = {NULL, NULL};
    weft_stream *other = NULL;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &other);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) {
        status = t->take(b->device, &memory[i], BYTES, err);
        if (status == WEFT_OK && (memory[i] == NULL || (uintptr_t)memory[i] % 4096 != 0))
            status = WEFT_BROKEN(err, "take returns memory that is not aligned to 4 KiB");
    }
    if (status == WEFT_OK) status = send_and_bring(b, t, memory[0], memory[1], NULL, err);
    if (status == WEFT_OK) status = send_and_bring(b, t, memory[1], memory[0], other, err);
    for (int i = 0; i < 2; i++) t->give_back(b->device, memory[i]);
    t->give_back(b->device, NULL);
    if (other != NULL) WEFT_PLUGIN_NOTIFY(b->kernels, stream_destroy, b->device, other);
    return status;
}

/* ---- graph capture and replay ---- */

typedef struct recorded_step {
    weft_ref x, y;
    weft_stream *other;
} recorded_step;

/* Queues y = x and a fill of one range, in two streams that wait for each other. */
static weft_status queue_step(weft_bench *b, const recorded_step *at, weft_error *err) {
    weft_event *event = NULL;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, NULL, at->y, at->x, BYTES);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, NULL, &event);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, wait, err, b->device, at->other, event);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, fill, err, b->device, at->other, at->y, 0x04030201u, WORDS);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, at->other, &event);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, wait, err, b->device, NULL, event);
    return status;
}

static void make_step(uint8_t *out, uint32_t seed) {
    fill_bytes(out, seed);
    for (int i = 0; i < 4 * WORDS; i++) out[i] = (uint8_t)(1 + i % 4);
}

/* Replays a graph. The replay must read current memory and run in order in the given stream. */
static weft_status replay(weft_bench *b, const weft_device_capture *c, weft_captured_graph *captured_graph,
                          const recorded_step *at, weft_stream *s, uint32_t seed, weft_error *err) {
    uint8_t bytes[BYTES];
    weft_status status;
    fill_bytes(bytes, seed);
    status = put(b, at->x, bytes, err);
    memset(bytes, 0, sizeof bytes);
    if (status == WEFT_OK) status = put(b, at->y, bytes, err);
    if (status == WEFT_OK) status = c->replay(b->device, s, captured_graph, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, synchronize, err, b->device, s);
    make_step(bytes, seed);
    return status == WEFT_OK ? holds(b, at->y, bytes, "a replay of a copy and a fill", err) : status;
}

/* Captures a step. *captured graph is NULL if the step cannot be captured. */
static weft_status record(weft_bench *b, const weft_device_capture *c, weft_captured_graph **captured_graph,
                          const recorded_step *at, weft_error *err) {
    uint8_t before[BYTES];
    weft_status status, ended;
    fill_bytes(before, 3);
    status = put(b, at->x, before, err);
    fill_bytes(before, 9);
    if (status == WEFT_OK) status = put(b, at->y, before, err);
    if (status == WEFT_OK) status = c->begin(b->device, NULL, err);
    if (status != WEFT_OK) return status;
    status = queue_step(b, at, err);
    ended = c->end(b->device, NULL, captured_graph, err);
    if (status == WEFT_OK && ended == WEFT_E_UNSUPPORTED) return WEFT_OK;
    if (status == WEFT_OK) status = ended;
    if (status == WEFT_OK && *captured_graph == NULL) status = WEFT_BROKEN(err, "end returns no captured graph");
    return status == WEFT_OK ? holds(b, at->y, before, "a step that was captured and must run only in a replay", err)
                             : status;
}

/* Checks that `end` returns no graph after a rejected call, and that the state is as before. */
static weft_status refuse_read(weft_bench *b, const weft_device_capture *c, const recorded_step *at, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT, unheard = WEFT_ERROR_INIT;
    weft_captured_graph *none = NULL;
    uint8_t before[BYTES], byte = 0;
    weft_status asked, ended, status;
    fill_bytes(before, 21);
    status = put(b, at->y, before, err);
    if (status == WEFT_OK) status = c->begin(b->device, NULL, err);
    if (status != WEFT_OK) return status;
    asked = b->kernels->fill(b->device, NULL, at->y, 0, WORDS, err);
    if (asked == WEFT_OK) asked = b->kernels->read(b->device, NULL, &byte, at->y, 1, &said);
    ended = c->end(b->device, NULL, &none, &unheard);
    if (asked == WEFT_OK || ended == WEFT_OK || none != NULL)
        return WEFT_BROKEN(
            err, "a read during capture is %s, and end then returns %s: it must be rejected, without a captured graph",
            asked == WEFT_OK ? "WEFT_OK" : "refused", none != NULL ? "one" : "none");
    return holds(b, at->y, before, "a captured graph that was discarded", err);
}

static weft_status check_capture(weft_bench *b, const void *table, weft_error *err) {
    const weft_device_capture *c = table;
    recorded_step at = {.other = NULL};
    weft_captured_graph *captured_graph = NULL;
    weft_status status = weft_bench_take(b, &at.x, BYTES, err);
    if (status == WEFT_OK) status = weft_bench_take(b, &at.y, BYTES, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &at.other);
    if (status == WEFT_OK) status = record(b, c, &captured_graph, &at, err);
    if (status == WEFT_OK && captured_graph != NULL) {
        status = replay(b, c, captured_graph, &at, NULL, 33, err);
        if (status == WEFT_OK) status = replay(b, c, captured_graph, &at, at.other, 44, err);
    }
    c->destroy(b->device, captured_graph);
    c->destroy(b->device, NULL);
    if (status == WEFT_OK) status = refuse_read(b, c, &at, err);
    if (at.other != NULL) WEFT_PLUGIN_NOTIFY(b->kernels, stream_destroy, b->device, at.other);
    return status;
}

/* ---- dry run ---- */

static int64_t total(const weft_bench *b, const weft_device_dry_run *d) {
    weft_dry_counts counts = {.struct_size = (uint32_t)sizeof counts};
    d->counts(b->device, &counts);
    return counts.kernels < 0 || counts.products < 0 || counts.copies < 0
               ? -1
               : counts.kernels + counts.products + counts.copies;
}

static weft_status query_dry(weft_bench *b, weft_ref at, uint8_t *untouched, weft_error *err) {
    weft_buffer *buffer = NULL;
    weft_event *event = NULL;
    weft_status status;
    WEFT_PLUGIN_CALL(status, b->kernels, alloc, err, b->device, &buffer, BYTES);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, fill, err, b->device, NULL, at, 0, WORDS);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, copy, err, b->device, NULL, (weft_ref){buffer, 0}, at, BYTES);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, b->kernels, convert, err, b->device, NULL, at, WEFT_BF16, (weft_ref){buffer, 0},
                         WEFT_F32, 64);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, record_event, err, b->device, NULL, &event);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, wait, err, b->device, NULL, event);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, NULL, untouched, at, BYTES);
    if (buffer != NULL) WEFT_PLUGIN_NOTIFY(b->kernels, release, b->device, buffer);
    return status;
}

static weft_status check_dry_run(weft_bench *b, const void *table, weft_error *err) {
    const weft_device_dry_run *d = table;
    uint8_t before[BYTES], pattern[BYTES], to[BYTES];
    int64_t counted[2] = {0, 0};
    weft_ref at;
    weft_status status = weft_bench_take(b, &at, BYTES, err);
    fill_bytes(before, 13);
    memset(pattern, 0x2c, sizeof pattern);
    memcpy(to, pattern, sizeof to);
    if (status == WEFT_OK) status = put(b, at, before, err);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) {
        status = d->begin(b->device, err);
        if (status != WEFT_OK) break;
        if (total(b, d) != 0) status = WEFT_BROKEN(err, "a dry run does not begin with counts of zero");
        if (status == WEFT_OK) status = query_dry(b, at, to, err);
        counted[i] = total(b, d);
        d->end(b->device);
    }
    if (status == WEFT_OK && (counted[0] <= 0 || counted[0] != counted[1]))
        status = WEFT_BROKEN(err,
                             "a dry run counts %lld calls of a fill, a copy and a conversion, and %lld the "
                             "second time",
                             (long long)counted[0], (long long)counted[1]);
    if (status == WEFT_OK)
        status = expect(to, pattern, BYTES, "a read in a dry run, which does not change its `to`", err);
    return status == WEFT_OK ? holds(b, at, before, "a dry run, which changes no memory", err) : status;
}

/* ---- threads, addresses and machine peaks ---- */

static weft_status check_team(weft_bench *b, const void *table, weft_error *err) {
    const weft_device_team *t = table;
    const int32_t all = weft_bench_info(b).threads;
    const int32_t sizes[] = {1, all};
    for (int i = 0; i < 2 && all > 0; i++) {
        const weft_status status = t->resize(b->device, sizes[i], err);
        if (status != WEFT_OK) return status;
        if (weft_bench_info(b).threads != sizes[i])
            return WEFT_BROKEN(err, "after resize to %d of its %d threads info returns %d", sizes[i], all,
                               weft_bench_info(b).threads);
    }
    return WEFT_OK;
}

static weft_status check_addresses(weft_bench *b, const weft_device_native *t, weft_error *err) {
    weft_ref at;
    const char *one = NULL;
    weft_status status = weft_bench_take(b, &at, BYTES, err);
    if (status != WEFT_OK) return status;
    one = t->address(b->device, at, BYTES);
    if (one == NULL || t->address(b->device, (weft_ref){at.buffer, at.offset + 16}, 1) != (const void *)(one + 16))
        return WEFT_BROKEN(err, "address of byte 16 of a buffer is not 16 bytes after the address of byte 0");
    if (t->address(b->device, at, (int64_t)1 << 40) != NULL)
        return WEFT_BROKEN(err, "address returns an address for 2^40 bytes, which exceed the buffer");
    return WEFT_OK;
}

static weft_status check_native(weft_bench *b, const void *table, weft_error *err) {
    const weft_device_native *t = table;
    weft_stream *other = NULL;
    weft_status status;
    if (t->api == NULL || t->api[0] == '\0') return WEFT_BROKEN(err, "its api has no name");
    if (t->index(b->device) < 0) return WEFT_BROKEN(err, "index is %d", t->index(b->device));
    WEFT_PLUGIN_CALL(status, b->kernels, stream_create, err, b->device, &other);
    if (status == WEFT_OK && t->stream(b->device, NULL) == t->stream(b->device, other))
        status = WEFT_BROKEN(err, "stream returns the same handle for the first stream and for another one");
    if (status == WEFT_OK) status = check_addresses(b, t, err);
    if (other != NULL) WEFT_PLUGIN_NOTIFY(b->kernels, stream_destroy, b->device, other);
    return status;
}

static weft_status check_roofline(weft_bench *b, const void *table, weft_error *err) {
    const weft_device_roofline *t = table;
    double peak = 0, bandwidth = 0;
    weft_status status = t->peak(b->device, &peak, WEFT_F32, err);
    if (status == WEFT_OK) status = t->bandwidth(b->device, &bandwidth, err);
    if (status == WEFT_OK && (!(peak > 0) || !isfinite(peak) || !(bandwidth > 0) || !isfinite(bandwidth)))
        status = WEFT_BROKEN(err, "a peak of %g operations and a bandwidth of %g bytes per second are no speeds", peak,
                             bandwidth);
    return status;
}

/* ---- all of them ---- */

typedef weft_status check_fn(weft_bench *b, const void *table, weft_error *err);

/* Checks that a table contains only non-NULL pointers after its size and flags, except at byte `optional`. */
static weft_status is_whole(const void *table, uint32_t bytes, size_t optional, weft_error *err) {
    uint32_t size;
    memcpy(&size, table, sizeof size);
    if (size < bytes) return WEFT_BROKEN(err, "it has %u bytes where SDK 1.0 has %u", size, bytes);
    for (size_t at = 8; at < bytes; at += sizeof(void *)) {
        const void *slot;
        memcpy(&slot, (const char *)table + at, sizeof slot);
        if (slot == NULL && at != optional) return WEFT_BROKEN(err, "a required slot is empty, at byte %zu", at);
    }
    return WEFT_OK;
}

weft_status weft_bench_tables(weft_bench *b, int *n, weft_error *err) {
    static const struct {
        const char *id;
        uint32_t bytes;
        check_fn *judge;
        size_t optional; /* byte of a slot that may be empty */
    } tables[] = {{WEFT_DEVICE_TRANSFER, WEFT_SIZE_1_0(weft_device_transfer), check_transfer, 0},
                  {WEFT_DEVICE_CAPTURE, WEFT_SIZE_1_0(weft_device_capture), check_capture, 0},
                  {WEFT_DEVICE_DRY_RUN, WEFT_SIZE_1_0(weft_device_dry_run), check_dry_run, 0},
                  {WEFT_DEVICE_TEAM, WEFT_SIZE_1_0(weft_device_team), check_team, 0},
                  {WEFT_DEVICE_NATIVE, WEFT_SIZE_1_0(weft_device_native), check_native, 0},
                  {WEFT_DEVICE_ROOFLINE, WEFT_SIZE_1_0(weft_device_roofline), check_roofline,
                   offsetof(weft_device_roofline, product)}};
    weft_status status = WEFT_OK;
    *n = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == WEFT_OK; i++) {
        const void *table = weft_device_find(b->kernels, b->device, tables[i].id);
        weft_call_record before;
        if (table == NULL) continue;
        ++*n;
        before = weft_plugin_enter(b->kernels, tables[i].id);
        status = is_whole(table, tables[i].bytes, tables[i].optional, err);
        if (status == WEFT_OK) status = tables[i].judge(b, table, err);
        status = weft_plugin_leave(before, status, err);
        weft_bench_release(b);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "%s: ", tables[i].id);
    }
    return status;
}
