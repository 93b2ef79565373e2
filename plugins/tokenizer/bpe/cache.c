/* cache.c: hash table with open addressing. It doubles up to a limit that fits the processor's caches, and is then
 * emptied. */
#include "cache.h"

#define MOST_SLOTS ((size_t)1 << 16)

typedef struct slot {
    uint64_t hash;
    uint32_t bytes_at;
    uint32_t ids_at;
    uint32_t n; /* 0: empty */
    uint32_t n_ids;
} slot;

void bpe_cache_init(bpe_cache *self, const weft_host *host) {
    bpe_list_init(&self->slots, host, sizeof(slot));
    bpe_list_init(&self->bytes, host, 1);
    bpe_list_init(&self->ids, host, sizeof(int32_t));
    self->count = 0;
}

void bpe_cache_free(bpe_cache *self) {
    bpe_list_free(&self->slots);
    bpe_list_free(&self->bytes);
    bpe_list_free(&self->ids);
    self->count = 0;
}

/* Returns the slot of a word, or the empty slot for it. */
static slot *find(const bpe_cache *self, uint64_t hash, const char *word, size_t n) {
    slot *slots = BPE_AT(&self->slots, slot);
    const size_t mask = self->slots.n - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        slot *at = &slots[i];
        if (at->n == 0) return at;
        if (at->hash == hash && at->n == n && memcmp(BPE_AT(&self->bytes, char) + at->bytes_at, word, n) == 0)
            return at;
    }
}

const int32_t *bpe_cache_find(const bpe_cache *self, uint64_t hash, const char *word, size_t n, size_t *n_ids) {
    const slot *at = NULL;
    if (self->slots.n == 0) return NULL;
    at = find(self, hash, word, n);
    *n_ids = at->n_ids;
    return at->n == 0 ? NULL : BPE_AT(&self->ids, int32_t) + at->ids_at;
}

static bool grow(bpe_cache *self) {
    bpe_list old = self->slots;
    const size_t slots = old.n == 0 ? 1024 : old.n * 2;
    bpe_list fresh;
    bpe_list_init(&fresh, old.host, sizeof(slot));
    if (!bpe_list_reserve(&fresh, slots)) return false;
    memset(fresh.data, 0, slots * sizeof(slot));
    fresh.n = slots;
    self->slots = fresh;
    for (size_t i = 0; i < old.n; i++) {
        const slot *from = &BPE_AT(&old, slot)[i];
        if (from->n > 0) *find(self, from->hash, BPE_AT(&self->bytes, char) + from->bytes_at, from->n) = *from;
    }
    bpe_list_free(&old);
    return true;
}

static void empty(bpe_cache *self) {
    memset(self->slots.data, 0, self->slots.n * sizeof(slot));
    bpe_list_clear(&self->bytes);
    bpe_list_clear(&self->ids);
    self->count = 0;
}

void bpe_cache_keep(bpe_cache *self, uint64_t hash, const char *word, size_t n, const int32_t *ids, size_t n_ids) {
    const slot fresh = {hash, (uint32_t)self->bytes.n, (uint32_t)self->ids.n, (uint32_t)n, (uint32_t)n_ids};
    if (n == 0 || n > BPE_CACHE_WORD) return;
    if (self->count >= self->slots.n / 4 * 3) {
        if (self->slots.n >= MOST_SLOTS) {
            empty(self);
            bpe_cache_keep(self, hash, word, n, ids, n_ids);
            return;
        }
        if (!grow(self)) return;
    }
    bpe_list_add(&self->bytes, word, n);
    bpe_list_add(&self->ids, ids, n_ids);
    if (self->bytes.failed || self->ids.failed) {
        bpe_cache_free(self);
        return;
    }
    *find(self, hash, word, n) = fresh;
    self->count++;
}
