/* capture.c: see late.h. A captured graph is a list of steps; a replay queues all of them in their streams, with its
 * own instructions. The rules for participating streams, and for joining them all at the end, are those of CUDA. */
#include <stdlib.h>

#include "late.h"

weft_status late_check_runs(weft_device *device, const char *call, weft_error *err) {
    weft_status status = WEFT_OK;
    if (device->recording == NULL) return WEFT_OK;
    status = weft_error_set(err, WEFT_E_HOST, "The late device is called to `%s` while it records.", call);
    if (err != NULL) device->recording->failure = *err;
    return status;
}

static late_step *step_make(size_t bytes) {
    late_step *step = calloc(1, sizeof *step + bytes);
    if (step != NULL) step->bytes = bytes;
    return step;
}

/* joins: its stream may be one outside the capture. */
static weft_status add_step(weft_device *device, weft_stream *s, late_step *step, bool joins, weft_error *err) {
    weft_captured_graph *recording = device->recording;
    if (step == NULL) return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory to record.");
    step->stream = late_stream_of(device, s);
    if (step->stream->recorded == 0 && !joins) {
        free(step);
        return weft_error_set(err, WEFT_E_HOST, "A stream that has not joined the recording is used in it.");
    }
    step->stream->recorded++;
    if (recording->last != NULL) recording->last->next = step;
    else recording->first = step;
    recording->last = step;
    return WEFT_OK;
}

weft_status late_record(weft_device *device, weft_stream *s, late_run *run, late_renew *renew, bool kernel,
                        const void *payload, size_t bytes, const void *more, size_t more_bytes, weft_error *err) {
    late_step *step = step_make(bytes + more_bytes);
    if (step != NULL) {
        step->run = run;
        step->renew = renew;
        step->kernel = kernel;
        memcpy(step->payload, payload, bytes);
        if (more_bytes > 0) memcpy(step->payload + bytes, more, more_bytes);
    }
    return add_step(device, s, step, false, err);
}

weft_status late_capture_event(weft_device *device, weft_stream *s, weft_event **out, weft_error *err) {
    weft_event *event = calloc(1, sizeof *event);
    late_step *step = event == NULL ? NULL : step_make(0);
    weft_status status = WEFT_OK;
    if (step != NULL) {
        event->stream = late_stream_of(device, s);
        event->at = event->stream->recorded + 1;
        event->number = step->notes = ++device->recording->events;
    }
    status = add_step(device, s, step, false, err);
    if (status == WEFT_OK) *out = event;
    else free(event);
    return status;
}

weft_status late_record_wait(weft_device *device, weft_stream *s, weft_event *event, weft_error *err) {
    late_step *step = NULL;
    weft_status status = WEFT_OK;
    if (event->number == 0)
        return weft_error_set(err, WEFT_E_HOST, "An event of before the recording is waited for in it.");
    if (!late_is_dropped("recorded-wait", true)) {
        step = step_make(0);
        if (step != NULL) step->waits = event->number;
        status = add_step(device, s, step, true, err);
    } else late_stream_of(device, s)->recorded += late_stream_of(device, s)->recorded == 0; /* no wait is needed */
    if (event->at > event->stream->seen) event->stream->seen = event->at;
    free(event);
    return status;
}

static void destroy(weft_device *device, weft_captured_graph *recording) {
    late_step *step = recording == NULL ? NULL : recording->first;
    (void)device;
    while (step != NULL) {
        late_step *next = step->next;
        free(step);
        step = next;
    }
    free(recording);
}

static weft_status begin(weft_device *device, weft_stream *stream, weft_error *err) {
    bool rests = true;
    (void)pthread_mutex_lock(&device->lock);
    for (weft_stream *s = device->streams; s != NULL; s = s->next) {
        rests = rests && s->head == NULL;
        s->recorded = s->seen = 0;
    }
    (void)pthread_mutex_unlock(&device->lock);
    if (!rests || device->recording != NULL)
        return weft_error_set(err, WEFT_E_HOST, "The late device is to record while it does something.");
    device->recording = calloc(1, sizeof *device->recording);
    if (device->recording == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory to record.");
    late_stream_of(device, stream)->recorded = 1;
    return WEFT_OK;
}

static weft_status check_end(weft_device *device, const weft_stream *stream, weft_error *err) {
    const weft_captured_graph *recording = device->recording;
    if (recording->failure.code != WEFT_OK)
        return weft_error_set(err, (weft_status)recording->failure.code, "%s", recording->failure.text);
    for (const weft_stream *s = device->streams; s != NULL; s = s->next)
        if (s != stream && s->recorded > s->seen)
            return weft_error_set(err, WEFT_E_HOST, "A stream has not come back before the end of the recording.");
    if (getenv("WEFT_LATE_CANNOT") != NULL)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "The late device cannot record this.");
    return WEFT_OK;
}

static weft_status end(weft_device *device, weft_stream *stream, weft_captured_graph **out, weft_error *err) {
    weft_captured_graph *recording = device->recording;
    const weft_status status = check_end(device, late_stream_of(device, stream), err);
    device->recording = NULL;
    if (status == WEFT_OK) *out = recording;
    else destroy(device, recording);
    return status;
}

/* ---- replay ---- */

static weft_status queue_step(weft_device *device, const late_step *step, weft_event **events, weft_error *err) {
    late_op *op = late_op_make(step->bytes);
    if (op == NULL) return late_append(device, step->stream, op, err);
    op->run = step->run;
    memcpy(op->payload, step->payload, step->bytes);
    if (step->renew != NULL) step->renew(op->payload);
    if (step->kernel) late_count(device, 1);
    if (step->notes > 0) op->notes = events[step->notes];
    if (step->waits > 0) op->waits = events[step->waits];
    return late_append(device, step->stream, op, err);
}

/* Creates the instructions, each with one reference per step that names it. */
static weft_status make_events(weft_event **events, const weft_captured_graph *recording, weft_error *err) {
    for (const late_step *step = recording->first; step != NULL; step = step->next) {
        const int number = step->notes > 0 ? step->notes : step->waits;
        if (number == 0) continue;
        if (step->notes > 0) events[number] = calloc(1, sizeof *events[number]);
        if (events[number] == NULL) return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory.");
        if (step->notes > 0) events[number]->stream = step->stream;
        events[number]->parts++;
    }
    return WEFT_OK;
}

static weft_status replay(weft_device *device, weft_stream *stream, weft_captured_graph *recording, weft_error *err) {
    weft_event **events = calloc((size_t)recording->events + 1, sizeof *events);
    weft_status status = events == NULL ? weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory.")
                                        : WEFT_OK;
    (void)stream;
    device->replays++;
    if (status == WEFT_OK) status = make_events(events, recording, err);
    for (const late_step *step = recording->first; step != NULL && status == WEFT_OK; step = step->next)
        status = queue_step(device, step, events, err);
    free(events);
    return status;
}

const weft_device_capture late_capture = {(uint32_t)sizeof(weft_device_capture), 0, begin, end, replay, destroy};
