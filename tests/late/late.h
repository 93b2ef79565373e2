/* late.h: a device that executes late, in any order that streams and instructions permit.
 *
 *   plugin.c    the table: the CPU device's kernels, queued
 *   kernels.c   one wrapper per kernel, which copies the arguments and queues them
 *   queue.c     streams, instructions, and the thread that runs queued work
 *   sites.c     call sites of waits, and mutants that skip a wait
 *   transfer.c  memory shared by host and device, and copies through it
 *   own_comm.c  separate: a communicator with operations that are steps of its streams
 *   capture.c   graph capture: queued work is recorded, and queued again by each replay
 *
 * The host does not see device memory. Queued calls run on another thread, at a time chosen by the mode:
 *
 *   WEFT_LATE_MODE=last    only when the host waits, and then only the required work
 *   WEFT_LATE_MODE=ahead   the first stream as soon as possible, the others when the host waits for them
 *   WEFT_LATE_MODE=behind  the first stream when the host waits for it, the others as soon as possible
 *   WEFT_LATE_MODE=any     only when the host waits, and then any possible work, drawn from WEFT_LATE_SEED
 *   WEFT_LATE_MODE=soon    everything as soon as possible, in an order drawn from WEFT_LATE_SEED
 *
 * Without WEFT_LATE_MODE the seed selects the mode.
 *
 * Each call of the kernel WEFT_LATE_SLOW takes LATE_SLOW_MS longer when it runs.
 *
 * It captures passes (weft/capture.h) unless WEFT_LATE_FORGETS is set.
 *
 * Any order that the executor does not request is therefore violated, and an early read returns other values. New
 * memory is filled with NaN, and so is the target of a queued download until it completes. */
#ifndef WEFT_TESTS_LATE_H
#define WEFT_TESTS_LATE_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/capture.h>
#include <weft/device.h>
#include <weft/transfer.h>

/* Runs queued work. */
typedef weft_status late_run(weft_device *device, void *payload, weft_error *err);

/* Updates a payload when a replay queues it. */
typedef void late_renew(void *payload);

typedef struct late_op {
    struct late_op *next;
    late_run *run;             /* NULL: an instruction, or a wait */
    weft_event *notes, *waits; /* the instruction recorded here; the instruction to wait for */
    _Alignas(16) unsigned char payload[];
} late_op;

struct weft_stream {
    weft_stream *next; /* of the device's streams */
    late_op *head, *tail;
    int64_t recorded; /* number of steps of the current capture in it; 0: not part of the capture */
    int64_t seen;     /* of these, the steps that another captured stream has waited for */
};

/* References: its record in the stream, and each waiter. The last one frees it. */
struct weft_event {
    weft_stream *stream;
    int parts;
    bool reached;
    int asked;   /* number of queries by the host */
    bool waived; /* reported as completed although it was not */
    int number;  /* in a capture, from 1; 0: an instruction of a running stream */
    int64_t at;  /* number of earlier steps in its stream of the capture */
};

/* A step of a captured graph: work, an instruction, or a wait. */
typedef struct late_step {
    struct late_step *next;
    weft_stream *stream;
    late_run *run;
    late_renew *renew; /* NULL: the payload is constant */
    int notes, waits;  /* instruction numbers; 0: no instruction */
    bool kernel;
    size_t bytes;
    _Alignas(16) unsigned char payload[];
} late_step;

struct weft_captured_graph {
    late_step *first, *last;
    int events;
    weft_error failure; /* of a call that cannot be captured */
};

enum { LATE_SLOW_MS = 40 };

enum { LATE_LAST, LATE_AHEAD, LATE_BEHIND, LATE_ANY, LATE_SOON, LATE_MODES };

typedef struct late_memory { /* shared with the host */
    struct late_memory *next;
    char *base;
    int64_t bytes;
} late_memory;

struct weft_device {
    const weft_host *host;
    weft_device *real;
    weft_stream first; /* NULL in calls */
    weft_stream *streams;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int mode;
    uint64_t draws;
    bool runs; /* one operation at a time */
    bool ends;
    int64_t kernels;           /* number of queued kernels: a step is running */
    int64_t queued;            /* bytes of payloads */
    const weft_stream *wanted; /* stream that the host waits for; NULL: it does not wait */
    weft_error failure;        /* first error of queued work; code WEFT_OK without an error */
    late_memory *memory;
    weft_captured_graph *recording; /* NULL: queued work runs */
    int64_t replays;
};

extern weft_device_plugin late_real, late_table; /* the CPU device's table; this device's table */

/* ---- queue.c ---- */

weft_status late_start(weft_device *device, weft_error *err); /* starts the worker */
void late_stop(weft_device *device);                          /* runs all queued work */
/* Queues a copy of the payload. */
weft_status late_queue(weft_device *device, weft_stream *s, late_run *run, const void *payload, size_t bytes,
                       const void *more, size_t more_bytes, weft_error *err);
void late_count(weft_device *device, int64_t more); /* queued kernels */
weft_status late_queue_kernel(weft_device *device, weft_stream *s, late_run *run, const void *args, size_t bytes,
                              weft_error *err);
weft_stream *late_stream_of(weft_device *device, weft_stream *s);                           /* NULL: the first stream */
late_op *late_op_make(size_t bytes);                                                        /* NULL: no memory */
weft_status late_append(weft_device *device, weft_stream *s, late_op *op, weft_error *err); /* op NULL: no memory */
/* Waits until all work of the stream has run; NULL: the first stream. Returns the first error of any stream. */
weft_status late_drain(weft_device *device, weft_stream *s, weft_error *err);
weft_status late_drain_all(weft_device *device, weft_error *err);

weft_status late_stream_create(weft_device *device, weft_stream **out, weft_error *err);
void late_stream_destroy(weft_device *device, weft_stream *stream);
weft_status late_synchronize(weft_device *device, weft_stream *stream, weft_error *err);
weft_status late_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err);
weft_status late_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err);
int32_t late_reached(weft_device *device, weft_event *event, weft_error *err);
weft_status late_await(weft_device *device, weft_event *event, weft_error *err);

/* An extension for the tests' communicator: its queue, and the device that does the work. */
#define LATE_INSIDE "weft.tests.late.inside"
typedef struct late_inside {
    weft_status (*queue)(weft_device *device, weft_stream *s, late_run *run, const void *payload, size_t bytes,
                         const void *more, size_t more_bytes, weft_error *err);
    weft_device *(*device)(weft_device *device);
    const weft_device_plugin *kernels;
} late_inside;

/* ---- sites.c ---- */

/* Called by every wait, also during capture, and by a captured upload (which is skipped by freezing its current
 * content). Returns true if this one must be skipped (WEFT_LATE_DROP). needed: there is something to wait for, so that
 * skipping it would be noticed. Sites without such a call are ignored, and so are those that only wait before the first
 * computation. */
extern bool late_has_computed;
bool late_is_dropped(const char *kind, bool needed);
void late_write_sites(void); /* writes to the file WEFT_LATE_SITES, if set */

/* ---- capture.c ---- */

extern const weft_device_capture late_capture;
/* Records a step during capture; more: bytes after the payload. */
weft_status late_record(weft_device *device, weft_stream *s, late_run *run, late_renew *renew, bool kernel,
                        const void *payload, size_t bytes, const void *more, size_t more_bytes, weft_error *err);
weft_status late_capture_event(weft_device *device, weft_stream *s, weft_event **out, weft_error *err);
weft_status late_record_wait(weft_device *device, weft_stream *s, weft_event *event, weft_error *err);
/* For calls that cannot be captured: returns an error during capture. */
weft_status late_check_runs(weft_device *device, const char *call, weft_error *err);

/* ---- transfer.c, kernels.c ---- */

extern const weft_device_transfer late_transfer;
void late_fill_kernels(void); /* fills the kernels of late_table */
weft_status late_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                       weft_error *err);
weft_status late_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err);

#endif
