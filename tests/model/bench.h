/* bench.h: a model with its region on a memory-only device. */
#ifndef WEFT_TEST_MODEL_BENCH_H
#define WEFT_TEST_MODEL_BENCH_H

#include "llama.h"
#include "base/safetensors.h"
#include "model/convert.h"
#include "model/weights.h"
#include "layout_offset.h"

/* ---- a memory-only device, visible to the host or not ---- */

struct weft_device {
    int64_t written, read; /* bytes passed to write and read */
    int64_t most;          /* maximum of one call */
};

struct weft_buffer {
    unsigned char *bytes;
    int64_t n;
};

static inline unsigned char *memory_at(weft_ref ref, int64_t n) {
    ck_assert_int_ge(ref.offset, 0);
    ck_assert_int_le(ref.offset + n, ref.buffer->n);
    return ref.buffer->bytes + ref.offset;
}

static inline void *memory_host_view(weft_device *device, weft_ref ref) {
    return memory_at(ref, 0);
}

static inline weft_status memory_write(weft_device *device, weft_stream *s, weft_ref to, const void *from,
                                       int64_t bytes, weft_error *err) {
    device->written += bytes;
    if (bytes > device->most) device->most = bytes;
    memcpy(memory_at(to, bytes), from, (size_t)bytes);
    return WEFT_OK;
}

static inline weft_status memory_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                                      weft_error *err) {
    device->read += bytes;
    if (bytes > device->most) device->most = bytes;
    memcpy(to, memory_at(from, bytes), (size_t)bytes);
    return WEFT_OK;
}

static inline weft_status memory_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                                      weft_error *err) {
    unsigned char *at = memory_at(to, 4 * words);
    for (int64_t i = 0; i < words; i++) memcpy(at + 4 * i, &pattern, 4);
    return WEFT_OK;
}

static inline weft_status memory_synchronize(weft_device *device, weft_stream *s, weft_error *err) {
    return WEFT_OK;
}

/* visible: device memory is visible to the host. */
static inline weft_device_plugin memory_kernels(bool visible) {
    weft_device_plugin kernels;
    memset(&kernels, 0, sizeof kernels);
    kernels.struct_size = (uint32_t)sizeof kernels;
    kernels.host_view = visible ? memory_host_view : NULL;
    kernels.write = memory_write;
    kernels.read = memory_read;
    kernels.fill = memory_fill;
    kernels.synchronize = memory_synchronize;
    return kernels;
}

/* ---- a model on it ---- */

typedef struct bench {
    weft_declared *declared;
    weft_layout *layout;
    weft_device_plugin kernels;
    weft_device device;
    weft_buffer buffer;
    weft_ref ref;
} bench;

/* The region starts 256 bytes into its buffer and is filled with NaN. The same number of bytes after it must not
 * change. */
static inline bench bench_of(weft_declared *declared, bool visible) {
    weft_error err = WEFT_ERROR_INIT;
    bench b;
    memset(&b, 0, sizeof b);
    b.declared = declared;
    ck_assert_ok(
        weft_layout_create(&b.layout, b.declared, &fixture_host, built_plugin("policy-block")->table, NULL, &err), err);
    b.kernels = memory_kernels(visible);
    b.buffer.n = b.layout->numel * 4 + 512;
    b.buffer.bytes = malloc((size_t)b.buffer.n);
    memset(b.buffer.bytes, 0xFF, (size_t)b.buffer.n);
    b.ref.offset = 256;
    return b;
}

static inline bench bench_make(const char *config_path, const char *trainable, bool visible) {
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *declared = llama_declared(config_path);
    ck_assert_ok(weft_declared_select(declared, trainable, &err), err);
    return bench_of(declared, visible);
}

static inline bench *bench_bind(bench *b) {
    b->ref.buffer = &b->buffer;
    return b;
}

static inline void bench_free(bench *b) {
    for (int64_t i = 0; i < 256; i++)
        if (b->buffer.bytes[i] != 0xFF || b->buffer.bytes[b->buffer.n - 1 - i] != 0xFF)
            ck_abort_msg("bytes outside of the region were written");
    weft_layout_destroy(b->layout);
    weft_declared_destroy(b->declared);
    free(b->buffer.bytes);
}

#define BENCH(name, config, trainable, visible)                                                                        \
    bench name##_bench = bench_make(config, trainable, visible), *name = bench_bind(&name##_bench)

static inline weft_region whole(const bench *b) {
    const weft_region region = {.declared = b->declared,
                                .layout = b->layout,
                                .kernels = &b->kernels,
                                .device = (weft_device *)&b->device,
                                .ref = b->ref};
    return region;
}

static inline weft_status load(bench *b, const char *directory, weft_error *err) {
    const weft_region region = whole(b);
    return weft_weights_load(&region, directory, err);
}

static inline weft_status save(bench *b, const char *directory, int32_t dtype, int64_t shard_bytes, weft_error *err) {
    const weft_region region = whole(b);
    return weft_weights_save(&region, directory, dtype, shard_bytes, NULL, err);
}

static inline weft_status init(bench *b, uint64_t seed, weft_error *err) {
    const weft_region region = whole(b);
    return weft_weights_init(&region, seed, false, NULL, err);
}

static inline const float *values(const bench *b, const char *name) {
    const int32_t p = weft_declared_find(b->declared, name);
    ck_assert_int_ge(p, 0);
    return (const float *)(const void *)(b->buffer.bytes + 256 + layout_offset(b->layout, &b->declared->parameters[p]));
}

static inline bool same_region(const bench *a, const bench *b) {
    return a->layout->bytes == b->layout->bytes &&
           memcmp(a->buffer.bytes + 256, b->buffer.bytes + 256, (size_t)a->layout->bytes) == 0;
}

/* Compares the directory's files to the region, tensor by tensor. */
static inline void check_against_files(const bench *b, const char *directory) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    ck_assert_ok(weft_safetensors_open_directory(&files, directory, &err), err);
    ck_assert_int_eq(files->n_tensors, b->declared->n_parameters);
    for (int32_t i = 0; i < files->n_tensors; i++) {
        const weft_tensor *t = &files->tensors[i];
        float *wide = malloc((size_t)t->numel * 4);
        ck_assert(weft_convert(wide, WEFT_F32, t->data, t->dtype, t->numel));
        ck_assert_msg(memcmp(wide, values(b, t->name), (size_t)t->numel * 4) == 0, "%s", t->name);
        free(wide);
    }
    weft_safetensors_close(files);
}

#endif
