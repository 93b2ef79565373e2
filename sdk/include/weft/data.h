/* weft/data.h: training and validation data (data/1).
 *
 * Data is prepared before ranks exist: documents are packed into sequences once, from (files, seed, context, packing).
 * A sequence never depends on rank, batch or number of ranks. (Identifiers call a sequence `row`.) The training
 * sequences form an endless stream, one epoch after another. Each epoch is a permutation of all sequences
 * (weft/random.h, WEFT_RANDOM_EPOCH), and a batch may span two epochs. The host requests sequences `first_row ..
 * first_row + rows` of that stream. Access takes constant time at any position, so a resumed run needs no replay: its
 * position is the number of sequences used.
 *
 * A micro-batch is one micro-batch: `rows` sequences of `length` positions. Documents within a sequence are isolated:
 * `starts` has for each position the start of its document. Validation sequences have a fixed order and are used once.
 */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include <weft/plugin.h>
#include <weft/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_data weft_data; /* defined by the plugin */

typedef enum weft_split {
    WEFT_SPLIT_TRAIN = 0,
    WEFT_SPLIT_VALIDATION = 1,
    WEFT_SPLIT_ALL = 2 /* all sequences of `path` in order; used by `weft eval` if there is no validation data */
} weft_split;

/* Collects bytes, in parts of any size. */
typedef struct weft_bytes_sink {
    void *context;
    weft_status (*put)(void *context, const void *bytes, size_t n); /* [main] [required] */
} weft_bytes_sink;

typedef weft_status weft_share_make(void *context, const weft_bytes_sink *sink, weft_error *err);

/* Input of create. All pointers stay valid for the lifetime of the data object. */
typedef struct weft_data_job {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t seed;
    int64_t vocab_size;  /* ids are in [0, vocab_size) */
    int64_t max_context; /* limit of the model for [data] context */

    /* Encodes a document with the user's [tokenizer] bos and eos. May also be called from parallel_for. [any-thread] */
    weft_status (*encode)(const struct weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                          weft_error *err);
    void *context; /* the host's, for encode */

    /* The same tokenizer with its full interface (weft/tokenizer.h). encode_with adds tokens only if flags request
     * them. chat encodes a conversation and marks its answers; it fails if the tokenizer cannot render chats.
     * check_chat checks that the template exists, before any conversation is read. All may be called from parallel_for.
     * [any-thread] */
    weft_status (*encode_with)(const struct weft_data_job *job, const weft_ids_sink *sink, const char *text,
                               size_t bytes, uint32_t flags, weft_error *err);
    weft_status (*decode)(const struct weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err);
    weft_status (*chat)(const struct weft_data_job *job, const weft_chat_sink *sink, const weft_chat *chat,
                        weft_error *err);
    weft_status (*check_chat)(const struct weft_data_job *job, const char *named, weft_error *err);
    int32_t (*special_id)(const struct weft_data_job *job, const char *name, size_t bytes); /* -1: no such token */
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

/* The extension WEFT_DATA_COUNTS: statistics of data preparation for `weft data stats`: "answers cut short", 3. */
#define WEFT_DATA_COUNTS "weft.data.counts/1"
typedef struct weft_data_counts {
    uint32_t struct_size;
    uint32_t flags;
    /* Returns the name of count i and writes its value; NULL ends the list. [any-thread] [required] */
    const char *(*get)(const weft_data *data, uint32_t i, uint64_t *out);
} weft_data_counts;

typedef struct weft_split_info {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t documents;
    uint64_t rows;    /* per epoch */
    uint64_t tokens;  /* ids in all documents */
    uint64_t targets; /* targets with non-zero weight per epoch */
} weft_split_info;

#define WEFT_MAX_LENGTHS 4

typedef struct weft_data_info {
    uint32_t struct_size;
    uint32_t flags;
    int32_t n_lengths;                 /* 1..4 */
    int32_t lengths[WEFT_MAX_LENGTHS]; /* possible micro-batch lengths, ascending; the last is [data] context */
    int32_t reserved;
    uint64_t fingerprint; /* of all that decides the rows: other rows, of another text or seed, have another one.
                             A resume refuses that */
    uint64_t memory;      /* bytes of the machine's memory that the data hold, those of `share` included; 0: the plugin
                             does not count them */
    uint64_t peak;        /* bytes at the highest moment of create, temporary memory included; 0: as `memory` */
} weft_data_info;

typedef struct weft_micro_batch_request {
    uint32_t struct_size;
    uint32_t flags;
    int32_t split;      /* weft_split */
    int32_t rows;       /* B */
    uint64_t first_row; /* stream index; VALIDATION, ALL: sequences past the end are padding of zero weight */
} weft_micro_batch_request;

/* A micro-batch. The plugin fills the host's arrays of rows x lengths[n_lengths-1] elements each, row-major with row
 * stride `length`. */
typedef struct weft_micro_batch {
    uint32_t struct_size;
    uint32_t flags;
    int32_t rows;       /* B */
    int32_t length;     /* T: the smallest declared length that fits the longest sequence */
    int64_t n_targets;  /* target tokens with non-zero weight */
    int32_t *ids;       /* (B,T) inputs; 0 in padding */
    int32_t *targets;   /* (B,T) the id to predict; 0 if the weight is zero */
    float *weights;     /* (B,T) loss weight of each target; 0: no target */
    int32_t *starts;    /* (B,T) position in the sequence of the document's start; in padding the position itself */
    int32_t *positions; /* (B,T) for the position encoding, 0 at each document's start */
} weft_micro_batch;

typedef struct weft_data_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Reads, encodes and packs the documents. Errors name file and line. [main] [required] */
    weft_status (*create)(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                          weft_error *err);
    void (*destroy)(weft_data *data); /* [main] [required] */

    void (*info)(const weft_data *data, weft_data_info *out);                       /* [any-thread] [required] */
    void (*split_info)(const weft_data *data, int32_t split, weft_split_info *out); /* [any-thread] [required] */

    /* Sets the shape of a micro-batch and its number of targets (rows, length and n_targets), without its content.
     * [any-thread] [required] */
    weft_status (*shape)(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                         weft_error *err);

    /* Fills the micro-batch. Constant time per sequence. [any-thread] [required] */
    weft_status (*micro_batch)(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                               weft_error *err);

    const void *(*extension)(const weft_data *data, const char *id); /* [any-thread] [optional: none] */
} weft_data_plugin;

#ifdef __cplusplus
}
#endif
#endif
