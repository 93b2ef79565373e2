/* model.h: byte-pair encoding itself: a piece of text becomes ids by its vocabulary and its merges.
 *
 * Characters are looked up first; what has no piece becomes byte pieces, the unknown piece, or a fault. Then the pair
 * of neighbours whose merge has the lowest rank is merged, leftmost first, until no pair is left. Ranks and ties are
 * those of the `tokenizers` library, to the letter, because the ids are compared exactly.
 */
#ifndef BPE_MODEL_H
#define BPE_MODEL_H

#include "cache.h"
#include "json.h"
#include "vocab.h"

#ifndef BPE_N_DIRECT /* the fuzz targets, which make a model for each input, are built with fewer */
#define BPE_N_DIRECT 0x10000
#endif

typedef struct bpe_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: an empty slot */
    uint32_t rank;
    int32_t id; /* what the two become */
} bpe_merge;

typedef struct bpe_model {
    const weft_host *host;
    bpe_vocab vocab;
    bpe_merge *merges; /* hash table, a power of two of slots */
    size_t n_merge_slots;
    uint64_t *crossings; /* hash set of left character << 32 | right character that some merge brings together */
    size_t n_crossing_slots;
    int32_t *direct;    /* id of each character below BPE_N_DIRECT, or -1 */
    int32_t bytes[256]; /* id of "<0x00>" ..., or -1; all -1 without byte_fallback */
    int32_t unknown;    /* -1: none */
    bool fuse_unknown;
    bool byte_fallback;
    bool ignore_merges;
    bool cut; /* crossings may be used */
} bpe_model;

weft_status bpe_model_read(bpe_model *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           weft_error *err);
void bpe_model_free(bpe_model *self);

const bpe_merge *bpe_model_merge(const bpe_model *self, int32_t left, int32_t right); /* NULL: they do not merge */

/* True where no merge ever joins what lies left and right of the boundary between the two characters. */
bool bpe_model_cuts(const bpe_model *self, int32_t left, int32_t right);

/* Id of one character, -1 if it is no piece. point < 0 (a stray byte) is none. */
int32_t bpe_model_character(const bpe_model *self, int32_t point, const char *bytes, size_t n);

/* What one encoding needs: no two at once use the same. */
typedef struct bpe_workspace {
    bpe_list ids;     /* int32_t: what comes out */
    bpe_list symbols; /* of the word at work */
    bpe_list heap;
    bpe_cache cache;
    const char *fault; /* where the character stands that cannot be written, and its bytes */
    size_t fault_bytes;
} bpe_workspace;

void bpe_workspace_init(bpe_workspace *self, const weft_host *host);
void bpe_workspace_free(bpe_workspace *self);

/* Appends the piece's ids to work->ids. WEFT_E_DATA with err untouched: the character at work->fault cannot be written.
 */
weft_status bpe_model_encode(const bpe_model *self, bpe_workspace *work, const char *text, size_t n, weft_error *err);

#endif
