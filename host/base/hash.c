/* host/base/hash.c: libcrypto's SHA-256. One context is reused: fetching the algorithm costs more than hashing a small
 * grid cell. */
#include "base/hash.h"

#include "base/alloc.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_status no_hash(weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM, "libcrypto provides no SHA-256, which checkpoints need");
}

weft_status weft_hash_start(weft_hash *self, weft_error *err) {
    const bool first = self->context == NULL;
    if (first) self->context = EVP_MD_CTX_new();
    self->failed = self->context == NULL || EVP_DigestInit_ex(self->context, first ? EVP_sha256() : NULL, NULL) != 1;
    return self->failed ? no_hash(err) : WEFT_OK;
}

void weft_hash_put(weft_hash *self, const void *bytes, size_t n) {
    if (!self->failed && n > 0) self->failed = EVP_DigestUpdate(self->context, bytes, n) != 1;
}

weft_status weft_hash_finish(weft_hash *self, unsigned char digest[WEFT_HASH_BYTES], weft_error *err) {
    unsigned int n = 0;
    if (self->failed || EVP_DigestFinal_ex(self->context, digest, &n) != 1 || n != WEFT_HASH_BYTES) return no_hash(err);
    return WEFT_OK;
}

weft_status weft_hash_cells(unsigned char *digests, const char *bytes, int64_t n, int64_t cell, weft_error *err) {
    weft_hash one = {0};
    weft_status status = WEFT_OK;
    for (int64_t at = 0; at < n && status == WEFT_OK; at += cell, digests += WEFT_HASH_BYTES) {
        status = weft_hash_start(&one, err);
        weft_hash_put(&one, bytes + at, (size_t)(cell < n - at ? cell : n - at));
        if (status == WEFT_OK) status = weft_hash_finish(&one, digests, err);
    }
    weft_hash_free(&one);
    return status;
}

void weft_hash_free(weft_hash *self) {
    EVP_MD_CTX_free(self->context);
    self->context = NULL;
}

void weft_hash_hex(char hex[65], const unsigned char digest[WEFT_HASH_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < WEFT_HASH_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = '\0';
}

weft_status weft_hash_finish_hex(weft_hash *self, char hex[65], weft_error *err) {
    unsigned char digest[WEFT_HASH_BYTES];
    const weft_status status = weft_hash_finish(self, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    return status;
}

weft_status weft_hash_text(char hex[65], const void *bytes, size_t n, weft_error *err) {
    unsigned char digest[WEFT_HASH_BYTES];
    if (EVP_Digest(bytes, n, digest, NULL, EVP_sha256(), NULL) != 1) return no_hash(err);
    weft_hash_hex(hex, digest);
    return WEFT_OK;
}

weft_status weft_hash_file(char hex[65], int descriptor, const char *name, weft_error *err) {
    enum { CHUNK = 1 << 20 };
    weft_hash hash = {0};
    char *chunk = weft_alloc(CHUNK, 1);
    off_t at = 0;
    ssize_t got = 1;
    weft_status status = weft_hash_start(&hash, err);
    while (got != 0 && status == WEFT_OK) {
        got = pread(descriptor, chunk, CHUNK, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", name, strerror(errno));
        else weft_hash_put(&hash, chunk, (size_t)got);
        at += got;
    }
    if (status == WEFT_OK) status = weft_hash_finish_hex(&hash, hex, err);
    weft_hash_free(&hash);
    free(chunk);
    return status;
}
