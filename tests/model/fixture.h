/* fixture.h: shared by the tests of host/model: a host that records its log, and a check of error messages. */
#ifndef WEFT_TEST_MODEL_FIXTURE_H
#define WEFT_TEST_MODEL_FIXTURE_H

#include "scratch.h"
#include "suite.h"

#include <errno.h>
#include <sys/stat.h>

#include "model/declare.h"

/* ---- a host ---- */

static char fixture_log[4096]; /* all lines since the last fixture_log[0] = 0 */

static inline void fixture_host_log(const weft_host *host, int32_t level, const char *text) {
    const size_t n = strlen(fixture_log);
    (void)snprintf(fixture_log + n, sizeof fixture_log - n, "%s\n", text);
}

static inline void *fixture_host_alloc(const weft_host *host, size_t bytes, size_t alignment) {
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static inline void fixture_host_release(const weft_host *host, void *memory) {
    free(memory);
}

static inline void fixture_host_parallel_for(const weft_host *host, int64_t n, void (*body)(int64_t, void *),
                                             void *context) {
    for (int64_t i = n - 1; i >= 0; i--) body(i, context); /* backwards, because no order is guaranteed */
}

static inline void fixture_host_progress(const weft_host *host, const char *what, double done, double total) {}

static inline const void *fixture_host_extension(const weft_host *host, const char *id) {
    return NULL;
}

static const weft_host fixture_host = {sizeof(weft_host),     0,
                                       WEFT_SDK_HEADERS,      0,
                                       fixture_host_log,      fixture_host_alloc,
                                       fixture_host_release,  fixture_host_parallel_for,
                                       fixture_host_progress, fixture_host_extension};

#endif
