/* host/base/ahead.h: a thread that reads files into the page cache from front to back, ahead of their readers.
 *
 * Threads that read alternate parts of a file restart the kernel's read-ahead window again and again: 1 GB took 1.3 s
 * instead of 0.45 s. So this thread reads the files in order, and readers wait until it has passed the bytes they need.
 * If it fails, readers continue without it. */
#ifndef WEFT_HOST_BASE_AHEAD_H
#define WEFT_HOST_BASE_AHEAD_H

#include "base/safetensors.h"

#include <stdint.h>

typedef struct weft_ahead weft_ahead;

/* Starts with the first file, and reads at most `lead` bytes past the highest offset that a reader has waited for.
 * Opens each file again by its path, so the files must stay. Returns NULL if no thread can be created. */
weft_ahead *weft_ahead_start(const weft_tensor_file *files, int32_t n, int64_t lead);
/* Waits until the first `end` bytes of a file are cached, or the thread has given up on them. self may be NULL.
 * [any-thread] */
void weft_ahead_wait(weft_ahead *self, int32_t file, int64_t end);
void weft_ahead_stop(weft_ahead *self); /* stops early if necessary; NULL is fine */

#endif
