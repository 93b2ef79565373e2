/* vocab.h: vocabulary: tokens by id and ids by token. */
#ifndef BPE_VOCAB_H
#define BPE_VOCAB_H

#include "memory.h"

typedef struct bpe_piece {
    uint32_t at; /* offset into the bytes of all tokens */
    uint32_t n;
    int32_t known; /* 0: no token has this id */
} bpe_piece;

typedef struct bpe_vocab {
    bpe_list bytes;  /* char: all tokens, concatenated */
    bpe_list pieces; /* bpe_piece by id */
    int32_t *slots;  /* hash table of ids, -1 if empty; its size is a power of two */
    size_t n_slots;
    size_t count;
} bpe_vocab;

void bpe_vocab_init(bpe_vocab *self, const weft_host *host);
void bpe_vocab_free(bpe_vocab *self);

/* Reserves memory for n tokens up to the id `highest`; call it before the first token. */
bool bpe_vocab_reserve(bpe_vocab *self, size_t n, int32_t highest);

/* Adds a token. The id must be unused and at most `highest`, and the token new. Returns false without memory. */
bool bpe_vocab_add(bpe_vocab *self, int32_t id, const char *bytes, size_t n);

int32_t bpe_vocab_find(const bpe_vocab *self, const char *bytes, size_t n); /* -1: not in the vocabulary */

/* Returns the token of an id; NULL: absent. */
const char *bpe_vocab_piece(const bpe_vocab *self, int32_t id, size_t *n);

static inline uint64_t bpe_hash(const char *bytes, size_t n) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t eight = 0;
        memcpy(&eight, bytes, 8);
        h = (h ^ eight) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

#endif
