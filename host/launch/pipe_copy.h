/* host/launch/pipe_copy.h: copies the output of a launcher to a stream of this process.
 *
 * A launcher that writes to the caller's stdout itself ends its ranks when that write fails. So it writes into a pipe,
 * which a thread of the parent reads until its end, whatever becomes of the stream: once a write to the stream has
 * failed, the rest is discarded. */
#ifndef WEFT_HOST_LAUNCH_PIPE_COPY_H
#define WEFT_HOST_LAUNCH_PIPE_COPY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct weft_pipe_copy {
    int to;      /* the stream's descriptor */
    int ends[2]; /* of the pipe; -1: closed */
    bool copies; /* the thread has been started */
    pthread_t thread;
    atomic_bool over; /* the launcher has ended: what the pipe holds now is the rest */
    atomic_int lost;  /* errno of the write that failed; 0: none has */
} weft_pipe_copy;

/* Makes the pipe. False, with errno: the system gives none. */
bool weft_pipe_copy_open(weft_pipe_copy *self, int to);
/* Starts to copy; the launcher has its end by now. Signals are blocked in the thread: a stream without a reader becomes
 * a SIGPIPE of the process, as it would be if this process had written itself. [main] */
bool weft_pipe_copy_start(weft_pipe_copy *self);
/* The stream receives no more. */
void weft_pipe_copy_discard(weft_pipe_copy *self);
/* After the launcher has ended. True: all that it wrote has been copied or discarded, which is waited for as long as
 * `ms` says. [main] */
bool weft_pipe_copy_drain(weft_pipe_copy *self, int ms);
void weft_pipe_copy_close(weft_pipe_copy *self);

#endif
