/* host/run/checksums.h: a number for each parameter and each of its optimizer states, by which two runs are compared
 * step by step without keeping or moving the values.
 *
 * A checksum is the sum of a mix of each element's bits and place, modulo 2^64: each rank adds up what it keeps, and
 * the sums of the ranks make the whole. Where several ranks hold the same, all of their checksums must be one. */
#ifndef WEFT_HOST_RUN_CHECKSUMS_H
#define WEFT_HOST_RUN_CHECKSUMS_H

#include "run/engine.h"

/* The checksum of n numbers of so many bytes each, little-endian, the first of which is number `first` of all. */
uint64_t weft_checksum_of(const unsigned char *bytes, int64_t width, int64_t n, int64_t first);

/* Checksums of an engine: [1 + its states][parameters]; frozen parameters have none but their own. */
int32_t weft_checksums_count(const weft_engine *engine);

/* A copy that is not what the others are. */
typedef struct weft_checksums_odd {
    int32_t rank;     /* of the engine; -1: all copies agree */
    int32_t checksum; /* index */
} weft_checksums_odd;

/* out: [count]. [collective] */
weft_status weft_checksums_take(uint64_t *out, weft_checksums_odd *odd, const weft_engine *engine, weft_error *err);

#endif
