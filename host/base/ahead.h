/* host/base/ahead.h: files brought into the kernel's cache from front to back, ahead of those who read them.
 *
 * Two threads that take pieces of one file by turns look like one reader to the kernel only while they stay close; when
 * they do not, its read-ahead begins small again and again: a file of 1 GB then took 1.3 s, where one program that
 * reads from front to back takes 0.45. So a thread of its own goes through the files in their order, and readers wait
 * until it has passed what they want. It is only a help: where it cannot go on, readers go on without it. */
#ifndef WEFT_HOST_BASE_AHEAD_H
#define WEFT_HOST_BASE_AHEAD_H

#include "base/safetensors.h"

typedef struct weft_ahead weft_ahead;

/* Begins with the first file, and stays no more than `lead` bytes before what somebody waits for, or has waited for.
 * The files, which must stay, are opened once more by their paths. NULL: no thread could be had. */
weft_ahead *weft_ahead_start(const weft_tensor_file *files, int32_t n, int64_t lead);
/* Until the first `end` bytes of a file are in the cache, or nothing more can be done for them. NULL is fine.
 * [any-thread] */
void weft_ahead_wait(weft_ahead *self, int32_t file, int64_t end);
void weft_ahead_stop(weft_ahead *self); /* wherever it is; NULL is fine */

#endif
