/* added.h: added tokens, matched in the text before the model runs: special ones (<s>, <|endoftext|>) and plain ones.
 *
 * Tokens with `normalized` are matched in the normalized text by their normalized form, all others in the original
 * text. The leftmost match wins, then the longest. */
#ifndef BPE_ADDED_H
#define BPE_ADDED_H

#include "normal.h"
#include "trie.h"
#include "vocab.h"

typedef struct bpe_added_token {
    int32_t id;
    bool special;
    bool single_word;
    bool strip_left;
    bool strip_right;
    bool normalized;
    bpe_text content;
    bpe_text form; /* normalized content if it differs, otherwise empty */
} bpe_added_token;

typedef struct bpe_added {
    const weft_host *host;
    bpe_list tokens; /* bpe_added_token, in file order */
    bpe_vocab names; /* ids by content */
    int32_t *by_id;  /* [n_by_id] index into tokens, or -1 */
    size_t n_by_id;
    bpe_trie as_is;
    bpe_trie normalized;
    int32_t highest; /* highest id; -1 without tokens */
    int32_t next;    /* id of the next new token */
} bpe_added;

weft_status bpe_added_read(bpe_added *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           const bpe_vocab *vocab, const bpe_normal *normal, bpe_matcher *matcher, weft_error *err);
void bpe_added_free(bpe_added *self);

const bpe_added_token *bpe_added_by_id(const bpe_added *self, int32_t id);
const bpe_added_token *bpe_added_by_content(const bpe_added *self, const char *content, size_t n);

/* Receives the text in order. token NULL: text between tokens. */
typedef weft_status bpe_part_fn(void *context, const bpe_added_token *token, size_t begin, size_t end, weft_error *err);

/* Returns true if the special token at begin..end must be treated as text. */
typedef bool bpe_is_text_fn(void *context, size_t begin, size_t end);

/* Splits a text at added tokens. is_text NULL: every match counts. Both callbacks get `context`. */
weft_status bpe_added_each(const bpe_added *self, const bpe_trie *trie, const char *text, size_t n,
                           bpe_is_text_fn *is_text, bpe_part_fn *give, void *context, weft_error *err);

#endif
