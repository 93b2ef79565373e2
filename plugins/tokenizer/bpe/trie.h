/* trie.h: finds the longest of many texts at a place. */
#ifndef BPE_TRIE_H
#define BPE_TRIE_H

#include "memory.h"

typedef struct bpe_trie {
    bpe_list nodes;   /* of trie.c */
    bool starts[256]; /* the first bytes of all texts */
} bpe_trie;

void bpe_trie_init(bpe_trie *self, const weft_host *host);
void bpe_trie_free(bpe_trie *self);

/* value >= 0. *taken: the value of the same text, put before (then nothing is changed), or -1. False without memory. */
bool bpe_trie_put(bpe_trie *self, const char *bytes, size_t n, int32_t value, int32_t *taken);

/* Value of the longest text that begins here, and its length; -1: none. */
int32_t bpe_trie_longest(const bpe_trie *self, const char *bytes, size_t n, size_t *length);

#endif
