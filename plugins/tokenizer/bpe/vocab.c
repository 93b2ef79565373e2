/* vocab.c: one buffer of all tokens, a table by id, and a hash table with linear probing, at most half full. */
#include "vocab.h"

void bpe_vocab_init(bpe_vocab *self, const weft_host *host) {
    bpe_list_init(&self->bytes, host, 1);
    bpe_list_init(&self->pieces, host, sizeof(bpe_piece));
    self->slots = NULL;
    self->n_slots = 0;
    self->count = 0;
}

void bpe_vocab_free(bpe_vocab *self) {
    const weft_host *host = self->bytes.host;
    if (host == NULL) return;
    host->release(host, self->slots);
    bpe_list_free(&self->bytes);
    bpe_list_free(&self->pieces);
    bpe_vocab_init(self, host);
}

bool bpe_vocab_reserve(bpe_vocab *self, size_t n, int32_t highest) {
    const weft_host *host = self->bytes.host;
    self->n_slots = 16;
    while (self->n_slots < 2 * n) self->n_slots *= 2;
    self->slots = host->alloc(host, self->n_slots * sizeof *self->slots, 16);
    if (self->slots == NULL || !bpe_list_reserve(&self->pieces, (size_t)highest + 1)) return false;
    memset(self->slots, 0xff, self->n_slots * sizeof *self->slots);
    memset(self->pieces.data, 0, ((size_t)highest + 1) * sizeof(bpe_piece));
    self->pieces.n = (size_t)highest + 1;
    return true;
}

bool bpe_vocab_add(bpe_vocab *self, int32_t id, const char *bytes, size_t n) {
    bpe_piece *piece = &BPE_AT(&self->pieces, bpe_piece)[id];
    size_t slot = bpe_hash(bytes, n) & (self->n_slots - 1);
    if (self->bytes.n + n > UINT32_MAX) return false;
    piece->at = (uint32_t)self->bytes.n;
    piece->n = (uint32_t)n;
    piece->known = 1;
    bpe_list_add(&self->bytes, bytes, n);
    while (self->slots[slot] >= 0) slot = (slot + 1) & (self->n_slots - 1);
    self->slots[slot] = id;
    self->count++;
    return !self->bytes.failed;
}

int32_t bpe_vocab_find(const bpe_vocab *self, const char *bytes, size_t n) {
    const bpe_piece *pieces = BPE_AT(&self->pieces, bpe_piece);
    const char *all = BPE_AT(&self->bytes, char);
    if (self->n_slots == 0) return -1;
    for (size_t slot = bpe_hash(bytes, n) & (self->n_slots - 1);; slot = (slot + 1) & (self->n_slots - 1)) {
        const int32_t id = self->slots[slot];
        if (id < 0) return -1;
        if (pieces[id].n == n && (n == 0 || memcmp(all + pieces[id].at, bytes, n) == 0)) return id;
    }
}

const char *bpe_vocab_piece(const bpe_vocab *self, int32_t id, size_t *n) {
    const bpe_piece *piece = NULL;
    if (id < 0 || (size_t)id >= self->pieces.n) return NULL;
    piece = &BPE_AT(&self->pieces, bpe_piece)[id];
    if (piece->known == 0) return NULL;
    *n = piece->n;
    return self->bytes.data == NULL ? "" : BPE_AT(&self->bytes, char) + piece->at;
}
