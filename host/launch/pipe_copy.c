/* host/launch/pipe_copy.c: see pipe_copy.h. */
#include "launch/pipe_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { CLOSED = -1, TICK = 100 /* milliseconds */ };

bool weft_pipe_copy_open(weft_pipe_copy *self, int to) {
    self->to = to;
    self->copies = false;
    atomic_store(&self->over, false);
    atomic_store(&self->lost, 0);
    self->ends[0] = self->ends[1] = CLOSED;
    return pipe2(self->ends, O_CLOEXEC) == 0;
}

static void write_or_discard(weft_pipe_copy *self, const char *bytes, size_t n) {
    while (n > 0 && atomic_load(&self->lost) == 0) {
        const ssize_t written = write(self->to, bytes, n);
        if (written >= 0) {
            bytes += written;
            n -= (size_t)written;
        } else if (errno != EINTR) {
            atomic_store(&self->lost, errno);
            if (errno == EPIPE) (void)kill(getpid(), SIGPIPE); /* in the thread the signal is blocked */
        }
    }
}

/* Copies until the end. A process that a rank has left running may keep the pipe open for ever: after the launcher's
 * end, an empty pipe is the end, too. */
static void *copy_all(void *argument) {
    weft_pipe_copy *self = argument;
    struct pollfd pipe = {self->ends[0], POLLIN, 0};
    char bytes[4096];
    ssize_t n = 1;
    while (n > 0) {
        const bool over = atomic_load(&self->over);
        if (poll(&pipe, 1, TICK) < 1) {
            if (over) break;
            continue;
        }
        n = read(self->ends[0], bytes, sizeof bytes);
        if (n > 0) write_or_discard(self, bytes, (size_t)n);
    }
    return NULL;
}

static void close_end(weft_pipe_copy *self, int end) {
    if (self->ends[end] != CLOSED) (void)close(self->ends[end]);
    self->ends[end] = CLOSED;
}

bool weft_pipe_copy_start(weft_pipe_copy *self) {
    sigset_t all, before;
    close_end(self, 1);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    self->copies = pthread_create(&self->thread, NULL, copy_all, self) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return self->copies;
}

void weft_pipe_copy_discard(weft_pipe_copy *self) {
    atomic_store(&self->lost, ECANCELED);
}

bool weft_pipe_copy_drain(weft_pipe_copy *self, int ms) {
    struct timespec until;
    if (!self->copies) return true;
    atomic_store(&self->over, true);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    self->copies = pthread_timedjoin_np(self->thread, NULL, &until) != 0;
    return !self->copies;
}

/* Closes the pipe. A thread that is blocked on a stream without a reading consumer keeps its end. */
void weft_pipe_copy_close(weft_pipe_copy *self) {
    close_end(self, 1);
    if (!self->copies) close_end(self, 0);
}
