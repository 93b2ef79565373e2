/* cpu.h: declarations shared by the files of the CPU device.
 *
 *     plugin.c      keys, create, info, the kernel table       memory.c    buffers, streams, copies
 *     indices.c     validates ids and positions                 convert.c   fp32, bf16, fp16
 *     product*      matmuls, sums independent of threads        matmul.c    the kernel that uses them
 *     packed*       matmuls with a packed operand
 *     roofline*         measures the machine's peak                 team.c      fewer threads
 *     update*       optimizer updates, and their storage types other than fp32
 *     panels*       matmuls on packed panels, fp32, bf16 and fp16, if the ISA has them
 *     amx*          AMX tiles and their detection
 *     loops*        vectorised inner loops, once per ISA        the rest    one file per kernel or two
 *
 * Every call runs to completion in the caller's thread and its OpenMP team, so a stream is only a handle. Two rules
 * make results independent of the number of threads. The operands alone determine each chain of additions. Partial sums
 * of several chains are added in a fixed order, never in order of completion. */
#ifndef WEFT_DEVICE_CPU_H
#define WEFT_DEVICE_CPU_H

#include <stdbool.h>
#include <stdlib.h>

#include <weft/device.h>
#include <weft/dynamic8.h>
#include <weft/team.h>

#include "../common/operands.h"
#include "loops.h"
#include "panels.h"

/* Streams differ only by their address. */
struct weft_stream {
    char nothing;
};

struct weft_event {
    char nothing;
};

struct weft_device {
    const weft_host *host;
    const cpu_loops *loops;
    const cpu_panels *panels_f32, *panels_bf16, *panels_f16; /* for operands of this type; NULL: oneDNN computes them */
    int threads;                                             /* used by kernels */
    int all_threads;                                         /* maximum (team.c) */
    bool packs; /* oneDNN's kernels read operands in place; matmuls copy operands with cache conflicts */
    int64_t live_bytes, live_buffers; /* of buffers not yet released */
    char name[64];
    char isa[32];
    weft_dynamic8 dynamic8[2]; /* for WEFT_DYN8X256, WEFT_UDYN8X256 */
};

/* Fails unless every index is in [0, limit). Skips rows of zero weight (weights may be NULL). */
void cpu_check_indices(operands *c, const char *name, const int32_t *values, const float *weights, int64_t n,
                       int64_t limit);

/* ---- helpers ---- */

/* True if the processor multiplies bf16 in hardware, false if bf16 is widened. */
static inline bool cpu_multiplies_bf16(const weft_device *device) {
    return device->panels_bf16 != NULL && device->panels_bf16->small != NULL;
}
static inline const cpu_cells *cpu_cells_of(const weft_device *device, int32_t dtype) {
    if (dtype == WEFT_F16) return &device->loops->f16;
    return dtype == WEFT_BF16 ? &device->loops->bf16 : &device->loops->f32;
}
/* Returns an element's bytes; for types that operands_dtype rejects those of fp32. */
static inline int64_t cpu_cell_bytes(int32_t dtype) {
    return dtype == WEFT_BF16 || dtype == WEFT_F16 ? 2 : 4;
}
/* Returns element i of an array with elements of `bytes`; NULL for NULL. */
static inline void *cpu_at(void *base, int64_t i, int64_t bytes) {
    return base == NULL ? NULL : (char *)base + i * bytes;
}
static inline const void *cpu_from(const void *base, int64_t i, int64_t bytes) {
    return (const char *)base + i * bytes;
}

/* Returns the start of part i of n in an even division of `total`. */
static inline int64_t cpu_cut(int64_t total, int64_t n, int64_t i) {
    return total / n * i + size_min(i, total % n);
}
/* Returns the workspace bytes of `n` floats, rounded up so that the next part starts on a cache line. */
static inline int64_t cpu_floats(int64_t n) {
    return size_round_up(n * (int64_t)sizeof(float), 64);
}

#define CPU_PAGE  4096
#define CPU_GRAIN 16384 /* elements per task of an element-wise kernel */

/* ---- kernel table, by file ---- */

extern const weft_device_team cpu_team;
const void *cpu_extension(const weft_device *device, const char *id);

weft_status cpu_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err);
void cpu_release(weft_device *device, weft_buffer *buffer);
void *cpu_host_view(weft_device *device, weft_ref ref);
weft_status cpu_stream_create(weft_device *device, weft_stream **out, weft_error *err);
void cpu_stream_destroy(weft_device *device, weft_stream *stream);
weft_status cpu_synchronize(weft_device *device, weft_stream *stream, weft_error *err);
weft_status cpu_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err);
weft_status cpu_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err);
weft_status cpu_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                      weft_error *err);
weft_status cpu_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err);
weft_status cpu_copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes, weft_error *err);
weft_status cpu_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                     weft_error *err);
weft_status cpu_convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                        int32_t dtype_from, int64_t n, weft_error *err);

#define CPU_KERNEL(name, args_type)                                                                                    \
    weft_status cpu_##name(weft_device *device, weft_stream *s, const args_type *args, weft_error *err)
#define CPU_DECLARE(name, args_type)   CPU_KERNEL(name, args_type);
#define CPU_WORKSPACE(name, args_type) int64_t cpu_##name##_workspace(const weft_device *device, const args_type *args);
WEFT_DEVICE_KERNELS(CPU_DECLARE)
WEFT_DEVICE_WORKSPACES(CPU_WORKSPACE)

#endif
