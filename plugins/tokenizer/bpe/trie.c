/* trie.c: trie of nodes, each with its first child and its next sibling. */
#include "trie.h"

typedef struct node {
    int32_t value; /* -1: no string ends here */
    int32_t child; /* 0: absent */
    int32_t next;  /* sibling; 0: absent */
    int32_t byte;
} node;

void bpe_trie_init(bpe_trie *self, const weft_host *host) {
    bpe_list_init(&self->nodes, host, sizeof(node));
    memset(self->starts, 0, sizeof self->starts);
}

void bpe_trie_free(bpe_trie *self) {
    bpe_list_free(&self->nodes);
}

static int32_t child_of(const bpe_trie *self, int32_t parent, int32_t byte) {
    const node *nodes = BPE_AT(&self->nodes, node);
    int32_t i = nodes[parent].child;
    while (i != 0 && nodes[i].byte != byte) i = nodes[i].next;
    return i;
}

static int32_t add_child(bpe_trie *self, int32_t parent, int32_t byte) {
    const int32_t i = (int32_t)self->nodes.n;
    const node fresh = {-1, 0, self->nodes.n == 0 ? 0 : BPE_AT(&self->nodes, node)[parent].child, byte};
    bpe_list_add(&self->nodes, &fresh, 1);
    if (!self->nodes.failed && i > 0) BPE_AT(&self->nodes, node)[parent].child = i;
    return i;
}

bool bpe_trie_put(bpe_trie *self, const char *bytes, size_t n, int32_t value, int32_t *taken) {
    int32_t at = 0;
    *taken = -1;
    if (n == 0) return true;
    if (self->nodes.n == 0) (void)add_child(self, 0, 0); /* the root */
    for (size_t i = 0; i < n && !self->nodes.failed; i++) {
        const int32_t byte = (unsigned char)bytes[i];
        const int32_t child = child_of(self, at, byte);
        at = child != 0 ? child : add_child(self, at, byte);
    }
    if (self->nodes.failed) return false;
    self->starts[(unsigned char)bytes[0]] = true;
    *taken = BPE_AT(&self->nodes, node)[at].value;
    if (*taken < 0) BPE_AT(&self->nodes, node)[at].value = value;
    return true;
}

int32_t bpe_trie_longest(const bpe_trie *self, const char *bytes, size_t n, size_t *length) {
    const node *nodes = BPE_AT(&self->nodes, node);
    int32_t best = -1, at = 0;
    for (size_t i = 0; i < n; i++) {
        at = child_of(self, at, (unsigned char)bytes[i]);
        if (at == 0) break;
        if (nodes[at].value < 0) continue;
        best = nodes[at].value;
        *length = i + 1;
    }
    return best;
}
