/* late.h: a device that does what it is told late, and in any order that streams and events allow.
 *
 *   plugin.c    the table: the CPU device's kernels, behind queues
 *   kernels.c   one wrapper per kernel: its arguments are copied, and it is queued
 *   queue.c     streams, events, and the thread that runs what is queued
 *   sites.c     who waits, and mutants: waits that are left out
 *   transfer.c  memory that the host shares with the device, and copies through it
 *   own_comm.c  no part of it: a communicator whose exchanges are steps of its streams
 *   capture.c   what is queued, recorded instead, and queued again by each replay
 *
 * The host sees nothing of its memory. What a call queues runs on another thread, when the device likes:
 *
 *   WEFT_LATE_MODE=last    nothing runs before the host waits for it, and then only what that needs
 *   WEFT_LATE_MODE=ahead   the first stream runs as soon as it can, the others when the host waits for them
 *   WEFT_LATE_MODE=behind  the first stream runs when the host waits for it, the others as soon as they can
 *   WEFT_LATE_MODE=any     nothing runs before the host waits, and then whatever can, drawn by WEFT_LATE_SEED
 *   WEFT_LATE_MODE=soon    all runs as soon as it can, drawn by WEFT_LATE_SEED (what is not set is drawn from the seed)
 *
 * Each call of the kernel WEFT_LATE_SLOW takes LATE_SLOW_MS more, when it runs.
 *
 * It records passes (weft/capture.h) where WEFT_LATE_FORGETS is not set.
 *
 * So an order that the executor has not asked for is one that does not hold, and what reads too early reads something
 * else. New memory is full of NaN, and so is memory that a queued download has not reached. */
#ifndef WEFT_TESTS_LATE_H
#define WEFT_TESTS_LATE_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/capture.h>
#include <weft/device.h>
#include <weft/transfer.h>

/* What runs when a stream gets there. */
typedef weft_status late_run(weft_device *device, void *payload, weft_error *err);

/* Done to a payload when a replay queues it. */
typedef void late_renew(void *payload);

typedef struct late_op {
    struct late_op *next;
    late_run *run;             /* NULL: an event, or a wait */
    weft_event *notes, *waits; /* the event that is reached here; that is waited for */
    _Alignas(16) unsigned char payload[];
} late_op;

struct weft_stream {
    weft_stream *next; /* of the device's */
    late_op *head, *tail;
    int64_t recorded; /* how many steps of the recording at hand are in it; 0: it is not in it */
    int64_t seen;     /* of these another stream of the recording has waited for */
};

/* Its note in the stream and whoever waits have a part each: the last one frees it. */
struct weft_event {
    weft_stream *stream;
    int parts;
    bool reached;
    int asked;   /* how often the host has asked for it */
    bool waived; /* the host was told that it is reached, and it was not */
    int number;  /* in a recording, from 1; 0: it is a point of a stream as it runs */
    int64_t at;  /* steps of its stream before it there */
};

/* A step of a recording: something that is run, or an event, or a wait. */
typedef struct late_step {
    struct late_step *next;
    weft_stream *stream;
    late_run *run;
    late_renew *renew; /* NULL: the payload stays as it is */
    int notes, waits;  /* numbers of events; 0: none */
    bool kernel;
    size_t bytes;
    _Alignas(16) unsigned char payload[];
} late_step;

struct weft_captured_graph {
    late_step *first, *last;
    int events;
    weft_error failure; /* of a call that cannot be recorded */
};

enum { LATE_SLOW_MS = 40 };

enum { LATE_LAST, LATE_AHEAD, LATE_BEHIND, LATE_ANY, LATE_SOON, LATE_MODES };

typedef struct late_memory { /* that the host shares */
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
    bool runs; /* something: one thing at a time */
    bool ends;
    int64_t kernels;           /* that are queued: a step runs */
    int64_t queued;            /* bytes of payloads */
    const weft_stream *wanted; /* a stream that the host waits for; NULL: it does not */
    weft_error failure;        /* of what was queued; its code is WEFT_OK as long as nothing failed */
    late_memory *memory;
    weft_captured_graph *recording; /* NULL: what is queued runs */
    int64_t replays;
};

extern weft_device_plugin late_real, late_table; /* the CPU device's; this one's */

/* ---- queue.c ---- */

weft_status late_start(weft_device *device, weft_error *err); /* the worker */
void late_stop(weft_device *device);                          /* runs all that is queued */
/* Queues a copy of the payload. */
weft_status late_queue(weft_device *device, weft_stream *s, late_run *run, const void *payload, size_t bytes,
                       const void *more, size_t more_bytes, weft_error *err);
void late_count(weft_device *device, int64_t more); /* kernels that are queued */
weft_status late_queue_kernel(weft_device *device, weft_stream *s, late_run *run, const void *args, size_t bytes,
                              weft_error *err);
weft_stream *late_stream_of(weft_device *device, weft_stream *s);                           /* NULL: the first one */
late_op *late_op_make(size_t bytes);                                                        /* NULL: no memory */
weft_status late_append(weft_device *device, weft_stream *s, late_op *op, weft_error *err); /* op NULL: no memory */
/* Until all that is in the stream has run; NULL: the first one. Tells what failed in any of them. */
weft_status late_drain(weft_device *device, weft_stream *s, weft_error *err);
weft_status late_drain_all(weft_device *device, weft_error *err);

weft_status late_stream_create(weft_device *device, weft_stream **out, weft_error *err);
void late_stream_destroy(weft_device *device, weft_stream *stream);
weft_status late_synchronize(weft_device *device, weft_stream *stream, weft_error *err);
weft_status late_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err);
weft_status late_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err);
int32_t late_reached(weft_device *device, weft_event *event, weft_error *err);
weft_status late_await(weft_device *device, weft_event *event, weft_error *err);

/* What a communicator of the tests needs of it: its queue, and the device that does the work. An extension. */
#define LATE_INSIDE "weft.tests.late.inside"
typedef struct late_inside {
    weft_status (*queue)(weft_device *device, weft_stream *s, late_run *run, const void *payload, size_t bytes,
                         const void *more, size_t more_bytes, weft_error *err);
    weft_device *(*device)(weft_device *device);
    const weft_device_plugin *kernels;
} late_inside;

/* ---- sites.c ---- */

/* Called by whatever waits, also where a pass is recorded, and by an upload that is recorded, which is left out by
 * keeping what was there then: true if this one is to be left out (WEFT_LATE_DROP). needed: there is
 * something to wait for, so that it would be missed; a site that never has is none, nor is one that waits only before
 * anything is computed. */
extern bool late_has_computed;
bool late_is_dropped(const char *kind, bool needed);
void late_write_sites(void); /* to the file WEFT_LATE_SITES, if set */

/* ---- capture.c ---- */

extern const weft_device_capture late_capture;
/* While a pass is recorded: a step of it; more: bytes behind the payload. */
weft_status late_record(weft_device *device, weft_stream *s, late_run *run, late_renew *renew, bool kernel,
                        const void *payload, size_t bytes, const void *more, size_t more_bytes, weft_error *err);
weft_status late_capture_event(weft_device *device, weft_stream *s, weft_event **out, weft_error *err);
weft_status late_record_wait(weft_device *device, weft_stream *s, weft_event *event, weft_error *err);
/* For calls that cannot be recorded: an error while a pass is. */
weft_status late_check_runs(weft_device *device, const char *call, weft_error *err);

/* ---- transfer.c, kernels.c ---- */

extern const weft_device_transfer late_transfer;
void late_fill_kernels(void); /* of late_table */
weft_status late_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                       weft_error *err);
weft_status late_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err);

#endif
