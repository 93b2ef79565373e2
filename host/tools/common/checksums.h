/* host/tools/common/checksums.h: a checksum of each parameter and each of its optimizer states, to compare
 * two runs step by step without storing the values.
 *
 * A checksum is the sum of a mix of each element's bits and position, modulo 2^64: each rank adds up its shards, and
 * the sums of the ranks are added. Replicated values must have the same checksum on all their ranks. */
#ifndef WEFT_HOST_TOOLS_COMMON_CHECKSUMS_H
#define WEFT_HOST_TOOLS_COMMON_CHECKSUMS_H

#include "run/engine.h"

/* The checksum of n numbers of so many bytes each, little-endian, the first of which is number `first` of all. */
uint64_t weft_checksum_of(const unsigned char *bytes, int64_t width, int64_t n, int64_t first);

/* Checksums of an engine: [1 + its states][parameters]; frozen parameters have no states. */
int32_t weft_checksums_count(const weft_engine *engine);

/* A copy that differs from the others. */
typedef struct weft_checksums_odd {
    int32_t rank;     /* of the engine; -1: all copies are the same */
    int32_t checksum; /* index */
} weft_checksums_odd;

/* out: [count]. [collective] */
weft_status weft_checksums_take(uint64_t *out, weft_checksums_odd *odd, const weft_engine *engine, weft_error *err);

/* SHA-256 in hex of the parameters and optimizer state in fp32, in order of declaration; the same on all ranks.
 * [collective] */
weft_status weft_engine_hash(char hex[65], const weft_engine *engine, weft_error *err);

#endif
