/* host/base/hash.h: incremental SHA-256. */
#ifndef WEFT_HOST_BASE_HASH_H
#define WEFT_HOST_BASE_HASH_H

#include <stdbool.h>
#include <weft/base.h>

struct evp_md_ctx_st;

enum { WEFT_HASH_BYTES = 32 };

typedef struct weft_hash {
    struct evp_md_ctx_st *context;
    bool failed; /* sticky until finish, so callers need not check each put */
} weft_hash;

/* Starts a hash. Zero the struct before the first start; start again after each finish. */
weft_status weft_hash_start(weft_hash *self, weft_error *err);
void weft_hash_put(weft_hash *self, const void *bytes, size_t n);
weft_status weft_hash_finish(weft_hash *self, unsigned char digest[WEFT_HASH_BYTES], weft_error *err);
/* Does the same and writes 64 hexadecimal digits and a zero. */
weft_status weft_hash_finish_hex(weft_hash *self, char hex[65], weft_error *err);
void weft_hash_free(weft_hash *self); /* a zeroed struct is fine */

/* Writes 64 hexadecimal digits and a zero. */
void weft_hash_hex(char hex[65], const unsigned char digest[WEFT_HASH_BYTES]);

/* Hashes each `cell` bytes of n (the last ones may be fewer) into a digest of its own, one after another. */
weft_status weft_hash_cells(unsigned char *digests, const char *bytes, int64_t n, int64_t cell, weft_error *err);

/* Hashes one buffer. */
weft_status weft_hash_text(char hex[65], const void *bytes, size_t n, weft_error *err);

/* Hashes a file from its first byte to its end. Uses read, not mmap, so that the file does not count as resident
 * memory. name: for error messages. */
weft_status weft_hash_file(char hex[65], int descriptor, const char *name, weft_error *err);

#endif
