/* host/base/units.h: the clock, size arithmetic, and numbers for people. */
#ifndef WEFT_HOST_BASE_UNITS_H
#define WEFT_HOST_BASE_UNITS_H

#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in seconds. [any-thread] */
static inline double weft_clock_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum { WEFT_WORD = 4 }; /* bytes of the words with which a device fills memory */

static inline int64_t weft_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t weft_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Returns the next multiple of `step`, which is positive. */
static inline int64_t weft_round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

/* Rounds up to a cache line, so that the next buffer never shares one. */
static inline int64_t weft_cache_lines(int64_t bytes) {
    return weft_round_up(bytes, 64);
}

/* Rounds up to the buffer alignment of devices (weft/device.h). */
static inline int64_t weft_buffer_part(int64_t bytes) {
    return weft_round_up(bytes, 256);
}

#define WEFT_UNIT_SIZE 32

/* These write into the caller's buffer and return it. */

/* "1,234,567" */
char *weft_unit_count(char text[WEFT_UNIT_SIZE], int64_t value);
/* "1 document", "2,356 documents"; the noun takes an s. */
char *weft_unit_counted(char text[WEFT_UNIT_SIZE], int64_t value, const char *noun);
/* "12.3 MiB"; whole bytes below 1 KiB. */
char *weft_unit_bytes(char text[WEFT_UNIT_SIZE], int64_t bytes);
/* "850 ms", "12.3 s", "3 min 20 s", "2 h 05 min". */
char *weft_unit_seconds(char text[WEFT_UNIT_SIZE], double seconds);

#endif
