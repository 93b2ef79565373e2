/* cache.h: words that were merged before, with their ids. Belongs to one workspace; when it is full it starts anew. */
#ifndef BPE_CACHE_H
#define BPE_CACHE_H

#include "memory.h"

#define BPE_CACHE_WORD 128 /* longer words are not kept */

typedef struct bpe_cache {
    bpe_list slots; /* of cache.c */
    bpe_list bytes;
    bpe_list ids;
    size_t count;
} bpe_cache;

void bpe_cache_init(bpe_cache *self, const weft_host *host);
void bpe_cache_free(bpe_cache *self);

/* The ids of a word, or NULL. */
const int32_t *bpe_cache_find(const bpe_cache *self, uint64_t hash, const char *word, size_t n, size_t *n_ids);

/* Without memory the word is simply not kept. */
void bpe_cache_keep(bpe_cache *self, uint64_t hash, const char *word, size_t n, const int32_t *ids, size_t n_ids);

#endif
