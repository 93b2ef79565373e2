/* host/train/event_file.h: writes scalars by step for TensorBoard: files out/tensorboard/events.out.tfevents.*, one per
 * training process.
 *
 * Such a file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h): the length of a message as 8 bytes,
 * 4 bytes of masked CRC32C of these, the message, 4 bytes of masked CRC32C of it; all little-endian. A message is an
 * Event of tensorflow/core/util/event.proto with these fields:
 *
 *     double wall_time = 1;  int64 step = 2;
 *     one of:  string file_version = 3;  Summary summary = 5;  SessionLog session_log = 7;
 *     Summary: repeated Value value = 1;   Value: string tag = 1, float simple_value = 2
 *     SessionLog: Status status = 1, with START = 1
 *
 * A START at step N makes TensorBoard discard the data of earlier files in the directory from step N on. With it a
 * resumed run removes the results of discarded steps. */
#ifndef WEFT_HOST_TRAIN_EVENT_FILE_H
#define WEFT_HOST_TRAIN_EVENT_FILE_H

#include <stdio.h>
#include <weft/base.h>

typedef struct weft_event_file {
    FILE *file; /* NULL: not open, and nothing is written */
    char path[4096];
} weft_event_file;

/* Creates a new file in directory, which is created too; steps from `step` on belong to this process. */
weft_status weft_event_file_open(weft_event_file *self, const char *directory, uint64_t step, weft_error *err);
void weft_event_file_close(weft_event_file *self); /* a zeroed one is fine */

typedef struct weft_scalar {
    const char *tag; /* "train/loss" */
    double value;
} weft_scalar;

/* Writes one event with n values to the file. At most WEFT_MAX_SCALARS. */
enum { WEFT_MAX_SCALARS = 8 };
weft_status weft_event_file_add(weft_event_file *self, uint64_t step, const weft_scalar *scalars, int32_t n,
                                weft_error *err);
weft_status weft_event_file_sync(weft_event_file *self, weft_error *err);

#endif
