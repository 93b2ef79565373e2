/* queue.c: see late.h. There is one lock; the worker releases it while an operation runs. */
#include <stdlib.h>

#include "late.h"

enum {
    MOST_QUEUED = 64 << 20, /* bytes of queued copies after which the host waits */
    PATIENCE = 16           /* instruction queries before the device makes progress */
};

weft_stream *late_stream_of(weft_device *device, weft_stream *s) {
    return s == NULL ? &device->first : s;
}

static uint64_t draw(weft_device *device) {
    uint64_t x = device->draws += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void leave_event(weft_event *event) {
    if (--event->parts == 0) free(event);
}

static bool can_run(const weft_stream *s) {
    return s->head != NULL && (s->head->waits == NULL || s->head->waits->reached);
}

/* ---- choice of the next stream; requires the lock ---- */

/* Returns the stream that must run first so that `wanted` can continue. */
static weft_stream *needed_for(weft_stream *wanted) {
    while (wanted->head != NULL && wanted->head->waits != NULL && !wanted->head->waits->reached)
        wanted = wanted->head->waits->stream;
    return can_run(wanted) ? wanted : NULL;
}

static weft_stream *drawn(weft_device *device) {
    uint64_t n = 0, which = 0;
    weft_stream *s = NULL;
    for (s = device->streams; s != NULL; s = s->next) n += can_run(s);
    if (n == 0) return NULL;
    which = draw(device) % n;
    for (s = device->streams; !can_run(s) || which-- > 0;) s = s->next;
    return s;
}

/* Returns a runnable stream other than the first. */
static weft_stream *another(weft_device *device) {
    weft_stream *s = device->streams;
    while (s != NULL && (s == &device->first || !can_run(s))) s = s->next;
    return s;
}

static weft_stream *next_stream(weft_device *device) {
    if (device->runs) return NULL;
    if (device->mode == LATE_AHEAD && can_run(&device->first)) return &device->first;
    if (device->mode == LATE_BEHIND && another(device) != NULL) return another(device);
    if (device->wanted == NULL && device->mode != LATE_SOON) return NULL;
    if (device->mode <= LATE_BEHIND) return needed_for((weft_stream *)(uintptr_t)device->wanted);
    return drawn(device);
}

/* ---- the worker ---- */

static void pop(weft_stream *s) {
    s->head = s->head->next;
    if (s->head == NULL) s->tail = NULL;
}

static void run_head(weft_device *device, weft_stream *s) {
    late_op *op = s->head;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (op->run != NULL && device->failure.code == WEFT_OK) {
        device->runs = true;
        (void)pthread_mutex_unlock(&device->lock);
        status = op->run(device, op->payload, &err);
        (void)pthread_mutex_lock(&device->lock);
        device->runs = false;
    }
    if (status != WEFT_OK && device->failure.code == WEFT_OK) device->failure = err;
    if (op->notes != NULL) {
        op->notes->reached = true;
        leave_event(op->notes);
    }
    if (op->waits != NULL) leave_event(op->waits);
    pop(s);
    free(op);
    (void)pthread_cond_broadcast(&device->changed);
}

static void *work(void *context) {
    weft_device *device = context;
    (void)pthread_mutex_lock(&device->lock);
    while (!device->ends) {
        weft_stream *s = next_stream(device);
        if (s != NULL) run_head(device, s);
        else (void)pthread_cond_wait(&device->changed, &device->lock);
    }
    (void)pthread_mutex_unlock(&device->lock);
    return NULL;
}

weft_status late_start(weft_device *device, weft_error *err) {
    (void)pthread_mutex_init(&device->lock, NULL);
    (void)pthread_cond_init(&device->changed, NULL);
    device->streams = &device->first;
    if (pthread_create(&device->worker, NULL, work, device) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "The late device cannot have a thread.");
}

void late_stop(weft_device *device) {
    (void)late_drain_all(device, NULL);
    (void)pthread_mutex_lock(&device->lock);
    device->ends = true;
    (void)pthread_cond_broadcast(&device->changed);
    (void)pthread_mutex_unlock(&device->lock);
    (void)pthread_join(device->worker, NULL);
}

/* ---- host side ---- */

static weft_status told(const weft_device *device, weft_error *err) {
    if (device->failure.code == WEFT_OK) return WEFT_OK;
    return weft_error_set(err, (weft_status)device->failure.code, "%s", device->failure.text);
}

late_op *late_op_make(size_t bytes) {
    late_op *op = malloc(sizeof *op + bytes);
    if (op == NULL) return NULL;
    op->next = NULL;
    op->run = NULL;
    op->notes = op->waits = NULL;
    return op;
}

weft_status late_append(weft_device *device, weft_stream *s, late_op *op, weft_error *err) {
    if (op == NULL) return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory for its queue.");
    (void)pthread_mutex_lock(&device->lock);
    if (s->tail != NULL) s->tail->next = op;
    else s->head = op;
    s->tail = op;
    (void)pthread_cond_broadcast(&device->changed);
    (void)pthread_mutex_unlock(&device->lock);
    return WEFT_OK;
}

weft_status late_queue(weft_device *device, weft_stream *s, late_run *run, const void *payload, size_t bytes,
                       const void *more, size_t more_bytes, weft_error *err) {
    late_op *op = NULL;
    weft_status status = WEFT_OK;
    if (device->recording != NULL)
        return late_record(device, s, run, NULL, false, payload, bytes, more, more_bytes, err);
    op = late_op_make(bytes + more_bytes);
    if (op != NULL) {
        op->run = run;
        memcpy(op->payload, payload, bytes);
        if (more_bytes > 0) memcpy(op->payload + bytes, more, more_bytes);
    }
    status = late_append(device, late_stream_of(device, s), op, err);
    device->queued += (int64_t)more_bytes;
    if (status == WEFT_OK && device->queued > MOST_QUEUED) {
        device->queued = 0;
        status = late_drain_all(device, err);
    }
    return status;
}

void late_count(weft_device *device, int64_t more) {
    (void)pthread_mutex_lock(&device->lock);
    device->kernels += more;
    (void)pthread_mutex_unlock(&device->lock);
    late_has_computed = true;
}

weft_status late_queue_kernel(weft_device *device, weft_stream *s, late_run *run, const void *args, size_t bytes,
                              weft_error *err) {
    if (device->recording != NULL) return late_record(device, s, run, NULL, true, args, bytes, NULL, 0, err);
    late_count(device, 1);
    return late_queue(device, s, run, args, bytes, NULL, 0, err);
}

/* Waits, with the lock, until the stream is empty or the instruction complete. */
static void wait_for(weft_device *device, const weft_stream *s, const weft_event *event) {
    device->wanted = s;
    (void)pthread_cond_broadcast(&device->changed);
    while (event != NULL ? !event->reached : s->head != NULL) (void)pthread_cond_wait(&device->changed, &device->lock);
    device->wanted = NULL;
}

weft_status late_drain(weft_device *device, weft_stream *s, weft_error *err) {
    (void)pthread_mutex_lock(&device->lock);
    wait_for(device, late_stream_of(device, s), NULL);
    (void)pthread_mutex_unlock(&device->lock);
    return told(device, err);
}

weft_status late_drain_all(weft_device *device, weft_error *err) {
    weft_stream *s = NULL;
    weft_status status = WEFT_OK;
    for (s = device->streams; s != NULL && status == WEFT_OK; s = s->next) status = late_drain(device, s, err);
    return status;
}

weft_status late_stream_create(weft_device *device, weft_stream **out, weft_error *err) {
    weft_stream *s = calloc(1, sizeof *s);
    if (s == NULL) return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory for a stream.");
    (void)pthread_mutex_lock(&device->lock);
    s->next = device->streams;
    device->streams = s;
    (void)pthread_mutex_unlock(&device->lock);
    *out = s;
    return WEFT_OK;
}

void late_stream_destroy(weft_device *device, weft_stream *stream) {
    weft_stream **at = &device->streams;
    (void)late_drain(device, stream, NULL);
    (void)pthread_mutex_lock(&device->lock);
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    (void)pthread_mutex_unlock(&device->lock);
    free(stream);
}

weft_status late_synchronize(weft_device *device, weft_stream *stream, weft_error *err) {
    bool needed = false;
    if (late_check_runs(device, "synchronize", err) != WEFT_OK) return (weft_status)err->code;
    (void)pthread_mutex_lock(&device->lock);
    needed = late_stream_of(device, stream)->head != NULL;
    (void)pthread_mutex_unlock(&device->lock);
    return late_is_dropped("synchronize", needed) ? told(device, err) : late_drain(device, stream, err);
}

weft_status late_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err) {
    weft_event *event = NULL;
    late_op *op = NULL;
    if (device->recording != NULL) return late_capture_event(device, stream, out, err);
    event = malloc(sizeof *event);
    op = event == NULL ? NULL : late_op_make(0);
    if (op == NULL) {
        free(event);
        return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory for an event.");
    }
    *event = (weft_event){late_stream_of(device, stream), 2, false, 0, false, 0, 0};
    op->notes = event;
    *out = event;
    return late_append(device, late_stream_of(device, stream), op, err);
}

static bool is_ahead(weft_device *device, const weft_event *event) {
    bool reached = false;
    (void)pthread_mutex_lock(&device->lock);
    reached = event->reached;
    (void)pthread_mutex_unlock(&device->lock);
    return !reached;
}

/* Drops the waiter's reference. */
static void forgo(weft_device *device, weft_event *event) {
    (void)pthread_mutex_lock(&device->lock);
    leave_event(event);
    (void)pthread_mutex_unlock(&device->lock);
}

weft_status late_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err) {
    late_op *op = NULL;
    if (device->recording != NULL) return late_record_wait(device, stream, event, err);
    if (late_is_dropped("wait", is_ahead(device, event))) {
        forgo(device, event);
        return WEFT_OK;
    }
    op = late_op_make(0);
    if (op != NULL) op->waits = event;
    return late_append(device, late_stream_of(device, stream), op, err);
}

/* Returns the instruction's state. Repeated queries cause progress; occasional ones see completion late. */
int32_t late_reached(weft_device *device, weft_event *event, weft_error *err) {
    bool reached = true;
    if (late_check_runs(device, "reached", err) != WEFT_OK) return -1;
    if (late_is_dropped("reached", is_ahead(device, event))) {
        event->waived = true;
        return 1;
    }
    (void)pthread_mutex_lock(&device->lock);
    reached = event->reached;
    if (!reached && ++event->asked > PATIENCE && device->mode != LATE_SOON) {
        weft_stream *s = NULL;
        device->wanted = event->stream;
        s = next_stream(device);
        device->wanted = NULL;
        if (s != NULL) run_head(device, s);
    }
    (void)pthread_mutex_unlock(&device->lock);
    return told(device, err) != WEFT_OK ? -1 : reached ? 1 : 0;
}

weft_status late_await(weft_device *device, weft_event *event, weft_error *err) {
    const bool dropped = event->waived || late_is_dropped("await", is_ahead(device, event));
    if (late_check_runs(device, "await", err) != WEFT_OK) return (weft_status)err->code;
    (void)pthread_mutex_lock(&device->lock);
    if (!dropped) wait_for(device, event->stream, event);
    leave_event(event);
    (void)pthread_mutex_unlock(&device->lock);
    return told(device, err);
}
