/* host/base/clock.h: monotonic clock in seconds. */
#ifndef WEFT_HOST_BASE_CLOCK_H
#define WEFT_HOST_BASE_CLOCK_H

#include <time.h>

/* Returns CLOCK_MONOTONIC in seconds. [any-thread] */
static inline double weft_clock_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
