/* cache.h: cache of merged words and their ids. Belongs to one workspace; a full cache is emptied. */
#ifndef BPE_CACHE_H
#define BPE_CACHE_H

#include "memory.h"

#define BPE_CACHE_WORD 128 /* longer words are not cached */

typedef struct bpe_cache {
    bpe_list slots; /* slot of cache.c */
    bpe_list bytes;
    bpe_list ids;
    size_t count;
} bpe_cache;

void bpe_cache_init(bpe_cache *self, const weft_host *host);
void bpe_cache_free(bpe_cache *self);

/* Returns the ids of a word; NULL: not cached. */
const int32_t *bpe_cache_find(const bpe_cache *self, uint64_t hash, const char *word, size_t n, size_t *n_ids);

/* Adds a word. Without memory, it is not cached. */
void bpe_cache_keep(bpe_cache *self, uint64_t hash, const char *word, size_t n, const int32_t *ids, size_t n_ids);

#endif
