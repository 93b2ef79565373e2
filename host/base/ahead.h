/* host/base/ahead.h: a thread that reads files into the page cache from front to back, ahead of their readers.
 *
 * Two threads that read alternate parts of one file look like one reader to the kernel only while they stay close. Once
 * they drift, the kernel's read-ahead window restarts small again and again. A file of 1 GB then took 1.3 s, where one
 * program that reads from front to back takes 0.45 s. This thread therefore reads the files in order, and readers wait
 * until it has passed the bytes they need. It is only an optimization: if it fails, readers continue without it. */
#ifndef WEFT_HOST_BASE_AHEAD_H
#define WEFT_HOST_BASE_AHEAD_H

#include "base/safetensors.h"

#include <stdint.h>

/* Memory of this process, as the kernel and the C library count it. */

/* Returns the peak resident memory of this process so far in bytes (VmHWM); 0: unknown. */
int64_t weft_resident_peak(void);
int64_t weft_resident_now(void);
/* Returns the bytes allocated by malloc and the plugins, without the device's memory. */
int64_t weft_library_bytes(void);

typedef struct weft_ahead weft_ahead;

/* Starts with the first file, and reads at most `lead` bytes past the highest offset that a reader has waited for.
 * Opens each file again by its path, so the files must stay. Returns NULL if no thread can be created. */
weft_ahead *weft_ahead_start(const weft_tensor_file *files, int32_t n, int64_t lead);
/* Waits until the first `end` bytes of a file are cached, or the thread has given up on them. self may be NULL.
 * [any-thread] */
void weft_ahead_wait(weft_ahead *self, int32_t file, int64_t end);
void weft_ahead_stop(weft_ahead *self); /* stops early if necessary; NULL is fine */

#endif
