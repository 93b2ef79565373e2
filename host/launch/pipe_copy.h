/* host/launch/pipe_copy.h: copies the output of a launcher to a stream of this process.
 *
 * A launcher that writes directly to the caller's stdout ends its ranks when that write fails. Therefore it writes to a
 * pipe, which a thread of the parent reads to its end. After a failed write to the stream, the thread discards the
 * rest. */
#ifndef WEFT_HOST_LAUNCH_PIPE_COPY_H
#define WEFT_HOST_LAUNCH_PIPE_COPY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct weft_pipe_copy {
    int to;      /* the stream's descriptor */
    int ends[2]; /* of the pipe; -1: closed */
    bool copies; /* the thread was started */
    pthread_t thread;
    atomic_bool over; /* the launcher has ended: the data in the pipe is the rest */
    atomic_int lost;  /* errno of the failed write; 0: no failure */
} weft_pipe_copy;

/* Creates the pipe. Returns false, with errno, if the system call fails. */
bool weft_pipe_copy_open(weft_pipe_copy *self, int to);
/* Starts the copy thread, after the launcher has received its end. Signals are blocked in the thread: a write without a
 * reader raises SIGPIPE in the process, as if this process had written itself. [main] */
bool weft_pipe_copy_start(weft_pipe_copy *self);
/* Stops writing to the stream. */
void weft_pipe_copy_discard(weft_pipe_copy *self);
/* Waits at most `ms` after the launcher has ended. Returns true if all its output was copied or discarded. [main] */
bool weft_pipe_copy_drain(weft_pipe_copy *self, int ms);
void weft_pipe_copy_close(weft_pipe_copy *self);

#endif
