/* model.h: byte-pair encoding: converts a pre-token to ids by vocabulary and merges.
 *
 * Each character is looked up first. A character outside the vocabulary becomes byte tokens, the unknown token, or an
 * error. Then the adjacent pair with the lowest merge rank is merged, leftmost first, until no merge applies. Ranks and
 * ties follow the `tokenizers` library exactly, because tests compare ids. */
#ifndef BPE_MODEL_H
#define BPE_MODEL_H

#include "cache.h"
#include "json.h"
#include "vocab.h"

#ifndef BPE_N_DIRECT /* the fuzz targets create a model per input and use a smaller table */
#define BPE_N_DIRECT 0x10000
#endif

typedef struct bpe_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: empty slot */
    uint32_t rank;
    int32_t id; /* id of the merged pair */
} bpe_merge;

typedef struct bpe_model {
    const weft_host *host;
    bpe_vocab vocab;
    bpe_merge *merges; /* hash table; the number of slots is a power of two */
    size_t n_merge_slots;
    uint64_t *crossings; /* hash set of left character << 32 | right character pairs that some merge joins */
    size_t n_crossing_slots;
    int32_t *direct;    /* id of each character below BPE_N_DIRECT, or -1 */
    int32_t bytes[256]; /* ids of "<0x00>" ..., or -1; all -1 without byte_fallback */
    int32_t unknown;    /* -1: absent */
    bool fuse_unknown;
    bool byte_fallback;
    bool ignore_merges;
    bool cut; /* `crossings` is valid */
} bpe_model;

weft_status bpe_model_read(bpe_model *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           weft_error *err);
void bpe_model_free(bpe_model *self);

const bpe_merge *bpe_model_merge(const bpe_model *self, int32_t left, int32_t right); /* NULL: no merge */

/* Returns true if no merge joins text across the boundary between the two characters. */
bool bpe_model_cuts(const bpe_model *self, int32_t left, int32_t right);

/* Returns the id of a character; -1: not in the vocabulary. point < 0: a byte that is not UTF-8. */
int32_t bpe_model_character(const bpe_model *self, int32_t point, const char *bytes, size_t n);

/* Buffers of one encoding; not shared by concurrent calls. */
typedef struct bpe_workspace {
    bpe_list ids;     /* int32_t: the result */
    bpe_list symbols; /* of the current word */
    bpe_list heap;
    bpe_cache cache;
    const char *fault; /* the character that cannot be encoded */
    size_t fault_bytes;
} bpe_workspace;

void bpe_workspace_init(bpe_workspace *self, const weft_host *host);
void bpe_workspace_free(bpe_workspace *self);

/* Appends the ids of a pre-token to work->ids. WEFT_E_DATA without a message in err: the character at work->fault
 * cannot be encoded. */
weft_status bpe_model_encode(const bpe_model *self, bpe_workspace *work, const char *text, size_t n, weft_error *err);

#endif
