/* memory.c: buffers, streams, events and copies.
 *
 * Each buffer is an anonymous mapping. Large ones start on a huge page and request huge pages: a step walks through
 * hundreds of megabytes, and with 4 KiB pages the time goes into page tables. */
#include <errno.h>
#include <sys/mman.h>

#include "cpu.h"

#define HUGE_PAGE  ((int64_t)2 << 20)
#define DROP_BYTES ((int64_t)8 << 20) /* below this, clearing is cheaper than faulting the pages in again */

/* Maps memory with a base aligned to `alignment`, and unmaps the excess on both sides. */
static bool map_aligned(weft_buffer *b, int64_t bytes, int64_t alignment) {
    const int64_t slack = alignment > CPU_PAGE ? alignment : 0;
    const int64_t all = bytes + slack;
    uintptr_t from = 0, base = 0;
    void *map = mmap(NULL, (size_t)all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return false;
    from = (uintptr_t)map;
    base = (from + (uintptr_t)alignment - 1) / (uintptr_t)alignment * (uintptr_t)alignment;
    if (base > from) (void)munmap(map, base - from);
    if ((uintptr_t)all > base - from + (uintptr_t)bytes) {
        (void)munmap((void *)(base + (uintptr_t)bytes), (uintptr_t)all - (base - from) - (uintptr_t)bytes);
    }
    b->base = (char *)base;
    b->mapped = (size_t)bytes;
    return true;
}

weft_status cpu_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err) {
    const int64_t rounded = bytes > 0 && bytes < INT64_MAX / 2 ? size_round_up(bytes, CPU_PAGE) : CPU_PAGE;
    const bool huge = rounded >= 2 * HUGE_PAGE;
    weft_buffer *b = NULL;
    if (bytes < 0 || bytes >= INT64_MAX / 2) {
        return weft_error_set(err, WEFT_E_HOST, "The call requests a buffer of %lld bytes on device cpu.",
                              (long long)bytes);
    }
    b = device->host->alloc(device->host, sizeof *b, _Alignof(max_align_t));
    if (b == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cpu has no memory left for the note of a buffer.");
    if (!map_aligned(b, rounded, huge ? HUGE_PAGE : CPU_PAGE)) {
        const char *why = strerror(errno);
        device->host->release(device->host, b);
        return weft_error_set(err, WEFT_E_MEMORY,
                              "Device cpu could not map a buffer of %lld bytes (%s); %lld bytes in %lld buffers are "
                              "already in use.",
                              (long long)bytes, why, (long long)device->live_bytes, (long long)device->live_buffers);
    }
    if (huge) (void)madvise(b->base, b->mapped, MADV_HUGEPAGE);
    b->size = bytes;
    device->live_bytes += bytes;
    device->live_buffers++;
    *out = b;
    return WEFT_OK;
}

void cpu_release(weft_device *device, weft_buffer *buffer) {
    if (buffer == NULL) return;
    device->live_bytes -= buffer->size;
    device->live_buffers--;
    (void)munmap(buffer->base, buffer->mapped);
    device->host->release(device->host, buffer);
}

void *cpu_host_view(weft_device *device, weft_ref ref) {
    (void)device;
    if (ref.buffer == NULL || ref.offset < 0 || ref.offset > ref.buffer->size) return NULL;
    return ref.buffer->base + ref.offset;
}

weft_status cpu_stream_create(weft_device *device, weft_stream **out, weft_error *err) {
    weft_stream *s = device->host->alloc(device->host, sizeof *s, _Alignof(max_align_t));
    if (s == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cpu has no memory left for a stream.");
    *out = s;
    return WEFT_OK;
}

void cpu_stream_destroy(weft_device *device, weft_stream *stream) {
    device->host->release(device->host, stream);
}

weft_status cpu_synchronize(weft_device *device, weft_stream *stream, weft_error *err) {
    (void)device, (void)stream, (void)err; /* a kernel is complete when its call returns */
    return WEFT_OK;
}

weft_status cpu_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err) {
    weft_event *m = device->host->alloc(device->host, sizeof *m, _Alignof(max_align_t));
    (void)stream;
    if (m == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cpu has no memory left for an event.");
    *out = m;
    return WEFT_OK;
}

weft_status cpu_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err) {
    (void)stream, (void)err;
    device->host->release(device->host, event);
    return WEFT_OK;
}

weft_status cpu_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                      weft_error *err) {
    operands c = operands_plain("write", err);
    void *at = operands_need(&c, to, "to", bytes, 1, 1);
    (void)device, (void)s;
    if (c.status == WEFT_OK && bytes > 0) memcpy(at, from, (size_t)bytes);
    return c.status;
}

weft_status cpu_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    operands c = operands_plain("read", err);
    const void *at = operands_need(&c, from, "from", bytes, 1, 1);
    (void)device, (void)s;
    if (c.status == WEFT_OK && bytes > 0) memcpy(to, at, (size_t)bytes);
    return c.status;
}

weft_status cpu_copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes, weft_error *err) {
    operands c = operands_plain("copy", err);
    char *dst = operands_need(&c, to, "to", bytes, 1, 1);
    const char *src = operands_need(&c, from, "from", bytes, 1, 1);
    const int64_t piece = CPU_GRAIN * 4, pieces = size_ceil_div(size_max(bytes, 0), piece);
    (void)s;
    if (c.status != WEFT_OK || dst == src) return c.status;
    if (dst < src + bytes && src < dst + bytes) { /* overlap: a single copy in the safe direction */
        memmove(dst, src, (size_t)bytes);
        return WEFT_OK;
    }
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < pieces; i++) {
        memcpy(dst + i * piece, src + i * piece, (size_t)size_min(piece, bytes - i * piece));
    }
    return WEFT_OK;
}

/* Zeroes the complete huge pages of a large range by dropping them: the kernel supplies zero pages at the next access.
 * For untouched pages, as in a new buffer, this costs nothing. Every buffer is private anonymous memory (map_aligned).
 * The rest is stored word by word, or the complete range if the kernel refuses, as for locked pages. Returns the number
 * of zeroed words, a range that starts at *from. */
static int64_t drop_pages(uint32_t *dst, int64_t words, int64_t *from) {
    const uintptr_t at = (uintptr_t)dst, end = at + (uintptr_t)words * sizeof *dst;
    const uintptr_t first = (at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, last = end / HUGE_PAGE * HUGE_PAGE;
    if (last <= first || last - first < DROP_BYTES) return 0;
    if (madvise((void *)first, last - first, MADV_DONTNEED) != 0) return 0;
    *from = (int64_t)((first - at) / sizeof *dst);
    return (int64_t)((last - first) / sizeof *dst);
}

static void store_pattern(const weft_device *device, uint32_t *dst, uint32_t pattern, int64_t words) {
    const int64_t pieces = size_ceil_div(words, CPU_GRAIN);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t end = size_min(words, (i + 1) * CPU_GRAIN);
        for (int64_t j = i * CPU_GRAIN; j < end; j++) dst[j] = pattern;
    }
}

weft_status cpu_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                     weft_error *err) {
    operands c = operands_plain("fill", err);
    uint32_t *dst = operands_need(&c, to, "to", words, 1, 4);
    int64_t from = 0, dropped = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    if (pattern == 0) dropped = drop_pages(dst, words, &from);
    store_pattern(device, dst, pattern, from);
    store_pattern(device, dst + from + dropped, pattern, words - from - dropped);
    return WEFT_OK;
}
