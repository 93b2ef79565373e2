/* scratch.c: pool of scratch memory. A scratch frees large buffers before it returns to the pool. */
#include "tokenizer.h"

#define KEPT ((size_t)1 << 20) /* bytes that a list may keep */

static bpe_scratch *make(const weft_host *host) {
    bpe_scratch *fresh = bpe_zeros(host, 1, sizeof *fresh);
    if (fresh == NULL) return NULL;
    bpe_workspace_init(&fresh->work, host);
    for (int i = 0; i < 2; i++) bpe_list_init(&fresh->normal[i], host, 1);
    for (int i = 0; i < 2; i++) bpe_texts_init(&fresh->texts[i], host);
    for (int i = 0; i < BPE_MOST_STEPS; i++) bpe_list_init(&fresh->split[i], host, 1);
    if (bpe_matcher_init(&fresh->matcher, host)) return fresh;
    bpe_scratch_free(host, fresh);
    return NULL;
}

void bpe_scratch_free(const weft_host *host, bpe_scratch *scratch) {
    if (scratch == NULL) return;
    bpe_workspace_free(&scratch->work);
    bpe_matcher_free(&scratch->matcher);
    for (int i = 0; i < 2; i++) bpe_list_free(&scratch->normal[i]);
    for (int i = 0; i < 2; i++) bpe_texts_free(&scratch->texts[i]);
    for (int i = 0; i < BPE_MOST_STEPS; i++) bpe_list_free(&scratch->split[i]);
    host->release(host, scratch);
}

/* Casts away const: only the pool of a tokenizer is mutable. */
static weft_tokenizer *writable(const weft_tokenizer *tokenizer) {
    return (weft_tokenizer *)(uintptr_t)tokenizer;
}

bpe_scratch *bpe_scratch_take(const weft_tokenizer *tokenizer, weft_error *err) {
    weft_tokenizer *owner = writable(tokenizer);
    bpe_scratch *taken = NULL;
    (void)pthread_mutex_lock(&owner->lock);
    taken = owner->pool;
    if (taken != NULL) owner->pool = taken->next;
    (void)pthread_mutex_unlock(&owner->lock);
    if (taken == NULL) taken = make(tokenizer->host);
    if (taken == NULL) (void)bpe_no_memory(err);
    return taken;
}

void bpe_scratch_give(const weft_tokenizer *tokenizer, bpe_scratch *scratch) {
    weft_tokenizer *owner = writable(tokenizer);
    bpe_list_trim(&scratch->work.ids, KEPT);
    bpe_list_trim(&scratch->work.symbols, KEPT);
    bpe_list_trim(&scratch->work.heap, KEPT);
    bpe_list_trim(&scratch->matcher.units, KEPT);
    for (int i = 0; i < 2; i++) bpe_list_trim(&scratch->normal[i], KEPT);
    for (int i = 0; i < 2; i++) bpe_list_trim(&scratch->texts[i].bytes, KEPT);
    for (int i = 0; i < 2; i++) bpe_list_trim(&scratch->texts[i].ends, KEPT);
    for (int i = 0; i < BPE_MOST_STEPS; i++) bpe_list_trim(&scratch->split[i], KEPT);
    (void)pthread_mutex_lock(&owner->lock);
    scratch->next = owner->pool;
    owner->pool = scratch;
    (void)pthread_mutex_unlock(&owner->lock);
}
