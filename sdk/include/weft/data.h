/* weft/data.h: what is learned from (data/1).
 *
 * Data is made before ranks exist: documents become rows once, from (files, seed, context, packing), and a row never
 * depends on rank, batch or number of ranks. The training rows form a stream without end: epoch after epoch, each a
 * permutation of all rows (weft/random.h, WEFT_RANDOM_EPOCH), and a batch may span two. The host asks for row
 * `first_row .. first_row + rows` of that stream; the answer takes the same short time wherever it lies, so a
 * resumed run needs no replay: the position is the number of rows used.
 *
 * A leaf is one micro-batch: `rows` rows of `length` places. Documents inside a row are isolated: `starts` says
 * where each place's own document begins. Validation rows come in a fixed order, once.
 */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include <weft/plugin.h>
#include <weft/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_data weft_data; /* the plugin's own */

typedef enum weft_split {
    WEFT_SPLIT_TRAIN = 0,
    WEFT_SPLIT_VALIDATION = 1,
    WEFT_SPLIT_ALL = 2 /* every row of `path` in order: what `weft eval` measures where there is no validation */
} weft_split;

/* Collects bytes, in parts of any size. */
typedef struct weft_bytes_sink {
    void *context;
    weft_status (*put)(void *context, const void *bytes, size_t n);
} weft_bytes_sink;

typedef weft_status weft_share_make(void *context, const weft_bytes_sink *sink, weft_error *err);

/* What the host gives to create. All pointers stay valid as long as the data lives. */
typedef struct weft_data_job {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t seed;
    int64_t vocab_size;  /* ids lie in [0, vocab_size) */
    int64_t max_context; /* the model's; [data] context may not be larger */

    /* Encodes a document with the user's [tokenizer] bos and eos. Also callable from parallel_for. [any-thread] */
    weft_status (*encode)(const struct weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                          weft_error *err);
    void *context; /* the host's, for encode */

    /* The same tokenizer, by its whole contract (weft/tokenizer.h). encode_with: nothing is added unless flags ask for
     * it. chat: the ids of a conversation, with the answers marked; where the tokenizer renders none, an error that
     * says so. check_chat: whether the template is there, before any conversation is. All are callable from
     * parallel_for. [any-thread] */
    weft_status (*encode_with)(const struct weft_data_job *job, const weft_ids_sink *sink, const char *text,
                               size_t bytes, uint32_t flags, weft_error *err);
    weft_status (*decode)(const struct weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err);
    weft_status (*chat)(const struct weft_data_job *job, const weft_chat_sink *sink, const weft_chat *chat,
                        weft_error *err);
    weft_status (*check_chat)(const struct weft_data_job *job, const char *named, weft_error *err);
    int32_t (*special_id)(const struct weft_data_job *job, const char *name, size_t bytes); /* -1: none */
    const weft_tokenizer_info *tokenizer; /* ids of BOS, EOS and the like */

    /* Makes bytes once per machine. One rank of each machine calls make, which writes the bytes to its sink; the other
     * ranks of the machine wait, and map the result. A rank that cannot map it calls make too. So make and its files
     * may differ neither between ranks nor between machines. *bytes is read-only, begins on a page, and is valid as
     * long as the data. A failure on one rank fails the call on all ranks. At most one call, in create; every rank
     * makes it, unless its create fails. [main] [collective: every rank] [optional: NULL: nothing is shared, create
     * makes the data itself] */
    weft_status (*share)(const struct weft_data_job *job, weft_share_make *make, void *context, const void **bytes,
                         size_t *n, weft_error *err);
} weft_data_job;

/* The extension WEFT_DATA_COUNTS: what became of the data, for `weft data stats`: "answers cut short", 3. */
#define WEFT_DATA_COUNTS "weft.data.counts/1"
typedef struct weft_data_counts {
    uint32_t struct_size;
    uint32_t flags;
    /* Count i: what is counted, and how many; NULL ends the list. [any-thread] [required] */
    const char *(*get)(const weft_data *data, uint32_t i, uint64_t *out);
} weft_data_counts;

typedef struct weft_split_info {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t documents;
    uint64_t rows;    /* of one epoch */
    uint64_t tokens;  /* ids, all documents */
    uint64_t targets; /* of non-zero weight, one epoch */
} weft_split_info;

#define WEFT_MAX_LENGTHS 4

typedef struct weft_data_info {
    uint32_t struct_size;
    uint32_t flags;
    int32_t n_lengths;                 /* 1..4 */
    int32_t lengths[WEFT_MAX_LENGTHS]; /* leaf lengths that occur, ascending; the last is [data] context */
    int32_t reserved;
    uint64_t fingerprint; /* of all that decides the rows: other rows, of another text or seed, have another one.
                             A resume refuses that */
    uint64_t memory;      /* bytes of the machine's memory that the data hold, those of `share` included; 0: the plugin
                             does not count them */
} weft_data_info;

typedef struct weft_leaf_request {
    uint32_t struct_size;
    uint32_t flags;
    int32_t split;      /* weft_split */
    int32_t rows;       /* B */
    uint64_t first_row; /* of the stream; in VALIDATION and ALL, rows past the end are padding of zero weight */
} weft_leaf_request;

/* Filled by the plugin into the host's arrays of rows x lengths[n_lengths-1] elements each, row-major with `length`. */
typedef struct weft_leaf {
    uint32_t struct_size;
    uint32_t flags;
    int32_t rows;       /* B */
    int32_t length;     /* T: the smallest declared length that holds the longest row */
    int64_t n_targets;  /* targets of non-zero weight */
    int32_t *ids;       /* (B,T) inputs; 0 in padding */
    int32_t *targets;   /* (B,T) the id to predict; 0 where the weight is zero */
    float *weights;     /* (B,T) of each target's loss; zero: no target */
    int32_t *starts;    /* (B,T) place in the row where this place's document begins; in padding the place itself */
    int32_t *positions; /* (B,T) for the position encoding, from 0 at each document's start */
} weft_leaf;

typedef struct weft_data_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Reads, encodes, packs. err names file and line. [main] [required] */
    weft_status (*create)(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                          weft_error *err);
    void (*destroy)(weft_data *data); /* [main] [required] */

    void (*info)(const weft_data *data, weft_data_info *out);                       /* [any-thread] [required] */
    void (*split_info)(const weft_data *data, int32_t split, weft_split_info *out); /* [any-thread] [required] */

    /* The shape and number of targets of a leaf, without its content: sets rows, length and n_targets. [any-thread]
     * [required] */
    weft_status (*shape)(const weft_data *data, weft_leaf *out, const weft_leaf_request *request, weft_error *err);

    /* The leaf itself. Constant time per row. [any-thread] [required] */
    weft_status (*leaf)(const weft_data *data, weft_leaf *out, const weft_leaf_request *request, weft_error *err);

    const void *(*extension)(const weft_data *data, const char *id); /* [any-thread] [optional: none] */
} weft_data_plugin;

#ifdef __cplusplus
}
#endif
#endif
