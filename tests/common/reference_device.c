/* tests/common/reference_device.c: memory, copies and the table. See reference_device.h. */
#include "reference_device.h"

#include "reference_kernels.h"

#include <stdlib.h>

struct weft_device {
    int32_t index;
};
struct weft_stream {
    int32_t unused;
};
struct weft_event {
    int32_t unused;
};

static weft_status device_create(weft_device **out, const weft_host *host, const void *config, int32_t index,
                                 weft_error *err) {
    weft_device *device = calloc(1, sizeof *device);
    if (device == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the reference device");
    device->index = index;
    *out = device;
    return WEFT_OK;
}

static void device_destroy(weft_device *device) {
    free(device);
}

static void device_info(const weft_device *device, weft_device_info *out) {
    (void)snprintf(out->name, sizeof out->name, "reference");
    (void)snprintf(out->isa, sizeof out->isa, "c11");
    (void)snprintf(out->backend, sizeof out->backend, "none");
    out->memory = (int64_t)1 << 40;
    out->threads = 1;
    out->has_bf16 = 0;
    out->packed = 1u << WEFT_I8X64 | 1u << WEFT_NF4 | 1u << WEFT_NF4X64 | 1u << WEFT_F8X128;
}

static weft_status buffer_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL || posix_memalign((void **)&buffer->data, 4096, (size_t)bytes + 1) != 0) {
        free(buffer);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for %lld bytes", (long long)bytes);
    }
    memset(buffer->data, 0xff, (size_t)bytes);
    buffer->bytes = bytes;
    *out = buffer;
    return WEFT_OK;
}

static void buffer_release(weft_device *device, weft_buffer *buffer) {
    if (buffer == NULL) return;
    free(buffer->data);
    free(buffer);
}

static void *host_view(weft_device *device, weft_ref ref) {
    return reference_view(ref);
}

static weft_status stream_create(weft_device *device, weft_stream **out, weft_error *err) {
    weft_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a stream");
    *out = stream;
    return WEFT_OK;
}

static void stream_destroy(weft_device *device, weft_stream *stream) {
    free(stream);
}

static weft_status synchronize(weft_device *device, weft_stream *stream, weft_error *err) {
    return WEFT_OK;
}

static weft_status event_create(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err) {
    weft_event *event = calloc(1, sizeof *event);
    if (event == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an event");
    *out = event;
    return WEFT_OK;
}

static weft_status event_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err) {
    free(event);
    return WEFT_OK;
}

static weft_status check_range(weft_ref ref, int64_t bytes, weft_error *err) {
    if (ref.buffer != NULL && ref.offset >= 0 && ref.offset + bytes <= ref.buffer->bytes) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "%lld bytes from %lld on lie outside their buffer", (long long)bytes,
                          (long long)ref.offset);
}

static weft_status copy_in(weft_device *d, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                           weft_error *err) {
    weft_status status = check_range(to, bytes, err);
    if (status == WEFT_OK) memcpy(reference_view(to), from, (size_t)bytes);
    return status;
}

static weft_status copy_out(weft_device *d, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    weft_status status = check_range(from, bytes, err);
    if (status == WEFT_OK) memcpy(to, reference_view(from), (size_t)bytes);
    return status;
}

static weft_status copy(weft_device *d, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes, weft_error *err) {
    weft_status status = check_range(to, bytes, err);
    if (status == WEFT_OK) status = check_range(from, bytes, err);
    if (status == WEFT_OK) memmove(reference_view(to), reference_view(from), (size_t)bytes);
    return status;
}

static weft_status fill(weft_device *d, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words, weft_error *err) {
    weft_status status = check_range(to, words * 4, err);
    for (int64_t i = 0; i < words && status == WEFT_OK; i++) ((uint32_t *)reference_view(to))[i] = pattern;
    return status;
}

static weft_status convert(weft_device *d, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                           int32_t dtype_from, int64_t n, weft_error *err) {
    weft_status status = reference_takes(dtype_to, "convert", err);
    if (status == WEFT_OK) status = reference_takes(dtype_from, "convert", err);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        reference_store(to, dtype_to, i, (double)reference_load(from, dtype_from, i), 0);
    return status;
}

#define NO_WORKSPACE(name, type)                                                                                       \
    int64_t reference_##name##_workspace(const weft_device *device, const type *args) {                                \
        (void)device;                                                                                                  \
        (void)args;                                                                                                    \
        return 0;                                                                                                      \
    }
NO_WORKSPACE(matmul, weft_matmul)
NO_WORKSPACE(sum_rows, weft_sum_rows)
NO_WORKSPACE(norm_backward, weft_norm)
NO_WORKSPACE(embedding_backward, weft_embedding)

static const void *extension(const weft_device *device, const char *id) {
    return NULL;
}

#define KERNEL_ROW(name, type)    .name = reference_##name,
#define WORKSPACE_ROW(name, type) .name##_workspace = reference_##name##_workspace,
const weft_device_plugin weft_reference_device = {.struct_size = (uint32_t)sizeof(weft_device_plugin),
                                                  .create = device_create,
                                                  .destroy = device_destroy,
                                                  .info = device_info,
                                                  .alloc = buffer_alloc,
                                                  .release = buffer_release,
                                                  .host_view = host_view,
                                                  .stream_create = stream_create,
                                                  .stream_destroy = stream_destroy,
                                                  .synchronize = synchronize,
                                                  .record_event = event_create,
                                                  .wait = event_wait,
                                                  .write = copy_in,
                                                  .read = copy_out,
                                                  .copy = copy,
                                                  .fill = fill,
                                                  .convert = convert,
                                                  .extension = extension,
                                                  WEFT_DEVICE_WORKSPACES(WORKSPACE_ROW)
                                                      WEFT_DEVICE_KERNELS(KERNEL_ROW)};
