/* transfer.c: see late.h. An upload fails if the host's memory has changed while it was queued. */
#include <stdlib.h>

#include "late.h"

enum { NAN_BYTE = 0xff, PAGE = 4096 };

typedef struct bytes_in {
    weft_ref to;
    const void *from;
    int64_t bytes;
    uint64_t sum; /* of the content when it was queued */
} bytes_in;

typedef struct bytes_out {
    void *to;
    weft_ref from;
    int64_t bytes;
} bytes_out;

static uint64_t sum_of(const unsigned char *p, int64_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* ---- write and read ---- */

static weft_status run_write(weft_device *device, void *payload, weft_error *err) {
    const bytes_in *what = payload;
    return late_real.write(device->real, NULL, what->to, what + 1, what->bytes, err);
}

weft_status late_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                       weft_error *err) {
    const bytes_in what = {to, NULL, bytes, 0};
    const weft_status status = late_check_runs(device, "write", err);
    if (status != WEFT_OK) return status;
    return late_queue(device, s, run_write, &what, sizeof what, from, (size_t)bytes, err);
}

static weft_status run_download(weft_device *device, void *payload, weft_error *err) {
    const bytes_out *what = payload;
    return late_real.read(device->real, NULL, what->to, what->from, what->bytes, err);
}

weft_status late_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    const bytes_out what = {to, from, bytes};
    weft_status status = late_check_runs(device, "read", err);
    if (status == WEFT_OK) status = late_queue(device, s, run_download, &what, sizeof what, NULL, 0, err);
    return status == WEFT_OK ? late_drain(device, s, err) : status;
}

/* ---- extension ---- */

static weft_status take(weft_device *device, void **out, int64_t bytes, weft_error *err) {
    late_memory *memory = malloc(sizeof *memory);
    void *base = NULL;
    if (late_check_runs(device, "take", err) != WEFT_OK) {
        free(memory);
        return (weft_status)err->code;
    }
    if (memory == NULL || posix_memalign(&base, PAGE, (size_t)bytes + 1) != 0) {
        free(memory);
        return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory to share.");
    }
    *memory = (late_memory){device->memory, base, bytes};
    memset(base, NAN_BYTE, (size_t)bytes);
    device->memory = memory;
    *out = base;
    return WEFT_OK;
}

static void give_back(weft_device *device, void *base) {
    late_memory **at = &device->memory, *memory = NULL;
    if (base == NULL) return;
    while (*at != NULL && (*at)->base != base) at = &(*at)->next;
    memory = *at;
    if (memory == NULL) abort();                   /* foreign memory: a test fails */
    memset(base, NAN_BYTE, (size_t)memory->bytes); /* transfers in flight must not read it any more */
    (void)late_drain_all(device, NULL);
    *at = memory->next;
    free(memory->base);
    free(memory);
}

static weft_status check_memory(const weft_device *device, const void *at, int64_t bytes, const char *what,
                                weft_error *err) {
    const late_memory *memory = device->memory;
    const char *p = at;
    while (memory != NULL && (p < memory->base || p + bytes > memory->base + memory->bytes)) memory = memory->next;
    if (memory != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "%s of %lld bytes does not lie in memory that the device shares.", what,
                          (long long)bytes);
}

static weft_status run_upload(weft_device *device, void *payload, weft_error *err) {
    const bytes_in *what = payload;
    if (sum_of(what->from, what->bytes) != what->sum)
        return weft_error_set(err, WEFT_E_HOST, "An upload of %lld bytes has changed before it was made.",
                              (long long)what->bytes);
    return late_real.write(device->real, NULL, what->to, what->from, what->bytes, err);
}

static void renew_upload(void *payload) {
    bytes_in *what = payload;
    what->sum = sum_of(what->from, what->bytes);
}

static void renew_download(void *payload) {
    const bytes_out *what = payload;
    memset(what->to, NAN_BYTE, (size_t)what->bytes);
}

/* Optionally skips the update at replay: the current content is captured permanently. */
static weft_status record_upload(weft_device *device, weft_stream *s, const bytes_in *what, weft_error *err) {
    if (late_is_dropped("recorded-upload", true))
        return late_record(device, s, run_write, NULL, false, what, sizeof *what, what->from, (size_t)what->bytes, err);
    return late_record(device, s, run_upload, renew_upload, false, what, sizeof *what, NULL, 0, err);
}

static weft_status upload(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                          weft_error *err) {
    const bytes_in what = {to, from, bytes, sum_of(from, bytes)};
    const weft_status status = check_memory(device, from, bytes, "An upload", err);
    if (status == WEFT_OK && device->recording != NULL) return record_upload(device, s, &what, err);
    return status == WEFT_OK ? late_queue(device, s, run_upload, &what, sizeof what, NULL, 0, err) : status;
}

static weft_status download(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                            weft_error *err) {
    const bytes_out what = {to, from, bytes};
    const weft_status status = check_memory(device, to, bytes, "A download", err);
    if (status != WEFT_OK) return status;
    if (device->recording != NULL)
        return late_record(device, s, run_download, renew_download, false, &what, sizeof what, NULL, 0, err);
    memset(to, NAN_BYTE, (size_t)bytes);
    return late_queue(device, s, run_download, &what, sizeof what, NULL, 0, err);
}

const weft_device_transfer late_transfer = {
    (uint32_t)sizeof(weft_device_transfer), 0, take, give_back, upload, download, late_reached, late_await};
