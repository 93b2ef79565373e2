/* host/base/ahead.c: sendfile to /dev/null uses the kernel's normal read-ahead but copies no data. */
#include "base/safetensors.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { STEP = 1 << 20 }; /* bytes per call */

struct weft_ahead {
    const weft_tensor_file *files;
    int32_t n;
    bool stop; /* under the lock, like passed and wanted */
    int64_t lead;
    int64_t passed; /* cached bytes over all files in sequence; INT64_MAX: done */
    int64_t wanted; /* highest offset that a reader has waited for */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t passes, may_pass;
};

static void note_passed(weft_ahead *self, int64_t passed) {
    (void)pthread_mutex_lock(&self->lock);
    self->passed = passed;
    (void)pthread_cond_broadcast(&self->passes);
    (void)pthread_mutex_unlock(&self->lock);
}

/* Waits until byte `at` is within `lead` of the wanted offset. Returns false to stop. */
static bool wait_until_wanted(weft_ahead *self, int64_t at) {
    bool stop = false;
    (void)pthread_mutex_lock(&self->lock);
    while (!self->stop && at - self->wanted > self->lead) (void)pthread_cond_wait(&self->may_pass, &self->lock);
    stop = self->stop;
    (void)pthread_mutex_unlock(&self->lock);
    return !stop;
}

/* Reads one file that starts at offset `before` of the sequence. Returns false on a read error or stop. */
static bool pass_file(weft_ahead *self, const weft_tensor_file *file, int nowhere, int64_t before) {
    const int64_t end = before + (int64_t)file->bytes;
    const int from = open(file->path, O_RDONLY | O_CLOEXEC);
    int64_t at = before;
    if (from < 0) return false;
    (void)posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL); /* doubles the read-ahead */
    while (at < end && wait_until_wanted(self, at)) {
        const ssize_t n = sendfile(nowhere, from, NULL, STEP);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += n;
        note_passed(self, at);
    }
    (void)close(from);
    return at >= end;
}

static void *pass_files(void *argument) {
    weft_ahead *self = argument;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int64_t before = 0;
    for (int32_t i = 0; i < self->n && nowhere >= 0; i++) {
        if (!pass_file(self, &self->files[i], nowhere, before)) break;
        before += (int64_t)self->files[i].bytes;
    }
    if (nowhere >= 0) (void)close(nowhere);
    note_passed(self, INT64_MAX);
    return NULL;
}

weft_ahead *weft_ahead_start(const weft_tensor_file *files, int32_t n, int64_t lead) {
    weft_ahead *self = weft_alloc(1, sizeof *self);
    *self = (weft_ahead){.files = files,
                         .n = n,
                         .lead = lead,
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .passes = PTHREAD_COND_INITIALIZER,
                         .may_pass = PTHREAD_COND_INITIALIZER};
    if (pthread_create(&self->thread, NULL, pass_files, self) == 0) return self;
    free(self);
    return NULL;
}

void weft_ahead_wait(weft_ahead *self, int32_t file, int64_t end) {
    if (self == NULL) return;
    for (int32_t i = 0; i < file; i++) end += (int64_t)self->files[i].bytes;
    (void)pthread_mutex_lock(&self->lock);
    if (end > self->wanted) {
        self->wanted = end;
        (void)pthread_cond_signal(&self->may_pass);
    }
    while (self->passed < end) (void)pthread_cond_wait(&self->passes, &self->lock);
    (void)pthread_mutex_unlock(&self->lock);
}

void weft_ahead_stop(weft_ahead *self) {
    if (self == NULL) return;
    (void)pthread_mutex_lock(&self->lock);
    self->stop = true;
    (void)pthread_cond_signal(&self->may_pass);
    (void)pthread_mutex_unlock(&self->lock);
    (void)pthread_join(self->thread, NULL);
    free(self);
}
