/* trie.h: finds the longest of many strings at a position. */
#ifndef BPE_TRIE_H
#define BPE_TRIE_H

#include "memory.h"

typedef struct bpe_trie {
    bpe_list nodes;   /* node of trie.c */
    bool starts[256]; /* first bytes of all strings */
} bpe_trie;

void bpe_trie_init(bpe_trie *self, const weft_host *host);
void bpe_trie_free(bpe_trie *self);

/* Adds a string; value >= 0. *taken: value of the same string added earlier, which stays, or -1. Returns false without
 * memory. */
bool bpe_trie_put(bpe_trie *self, const char *bytes, size_t n, int32_t value, int32_t *taken);

/* Returns the value and length of the longest string at the start of the text; -1: absent. */
int32_t bpe_trie_longest(const bpe_trie *self, const char *bytes, size_t n, size_t *length);

#endif
