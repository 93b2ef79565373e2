/* common/rows.h: shared code of data plugins. A file is read as bytes and encoded to documents of ids. Documents are
 * split into chunks of at most `context` inputs, and chunks are packed into sequences. A split is a set of documents
 * with its own sequences. Micro-batches are filled from sequences. In identifiers, `row` is a sequence, `micro_batch` a
 * micro-batch, `piece` a chunk. */
#ifndef WEFT_DATA_COMMON_ROWS_H
#define WEFT_DATA_COMMON_ROWS_H

#include <weft/data.h>
#include <weft/random.h>

/* A growing array. A small one is in the host's memory. A large one is a separate mapping, which grows without a copy
 * and uses memory only for written pages. */
typedef struct data_array {
    void *data;
    size_t n, capacity; /* in elements */
    size_t mapped;      /* bytes of the mapping; 0: host memory */
} data_array;

weft_status data_array_reserve(data_array *array, const weft_host *host, size_t n, size_t element_bytes);
/* Releases the mapping's memory beyond n elements. */
void data_array_trim(data_array *array, size_t element_bytes);
/* Releases complete pages of bytes [begin, end) of a mapping, which must not be read again. */
void data_array_forget(const data_array *array, size_t begin, size_t end);
void data_array_free(data_array *array, const weft_host *host);

/* Returns true if a file name has the suffix (".csv"), ignoring case. */
int data_name_ends(const char *path, const char *end);

/* Reads a regular file. key: the key of [data] with the path. want: expected content for the error message, "a file of
 * text or JSONL". */
weft_status data_file_read(data_array *out, const weft_host *host, const char *key, const char *path, const char *want,
                           weft_error *err);

/* Token ids, in 16 bits each if the vocabulary's size allows it. */
typedef struct data_ids {
    data_array array; /* uint16_t or int32_t */
    int32_t is_wide;
    int32_t reserved;
} data_ids;

data_ids data_ids_empty(int64_t vocab_size);
static inline size_t data_ids_width(const data_ids *self) {
    return self->is_wide ? sizeof(int32_t) : sizeof(uint16_t);
}
static inline int32_t data_ids_at(const data_ids *self, int64_t i) {
    return self->is_wide ? ((const int32_t *)self->array.data)[i] : ((const uint16_t *)self->array.data)[i];
}
/* Appends ids, which must be below vocab_size. */
weft_status data_ids_add(data_ids *self, const weft_host *host, const int32_t *ids, size_t n);

/* Concatenated ids of all documents. Document d is ids[starts[d] .. starts[d + 1]). */
typedef struct data_corpus {
    data_ids ids;
    data_array starts;  /* int64_t [n_documents + 1] */
    data_array weights; /* uint8_t per id: 1 for a target; empty: all are targets */
    size_t n_documents;
    uint64_t peak; /* bytes at the highest moment of its encoding, with the text that is in memory */
} data_corpus;

static inline int64_t data_corpus_start(const data_corpus *corpus, size_t d) {
    return ((const int64_t *)corpus->starts.data)[d];
}
static inline int data_corpus_is_target(const data_corpus *corpus, int64_t i) {
    return corpus->weights.data == NULL || ((const uint8_t *)corpus->weights.data)[i] != 0;
}
/* Appends documents. ids: of all of them, in the corpus's width; an empty corpus takes over their memory. weights: as
 * in a corpus. lengths: int64_t, one per document. */
weft_status data_corpus_add(data_corpus *corpus, const weft_host *host, data_ids *ids, const data_array *weights,
                            const data_array *lengths);
/* Releases unused capacity after the last document. */
void data_corpus_end(data_corpus *corpus);
/* Returns the size in bytes. */
uint64_t data_corpus_bytes(const data_corpus *corpus);
/* Raises a peak to the bytes that are in memory now. */
static inline void data_peak_raise(uint64_t *peak, uint64_t bytes) {
    if (bytes > *peak) *peak = bytes;
}
void data_corpus_free(data_corpus *corpus, const weft_host *host);

/* A chunk of a document. Its inputs are ids[start .. start + n), its targets ids[start + 1 .. start + n]. */
typedef struct data_piece {
    int64_t start;
    int32_t n;
    int32_t row;
} data_piece;

/* Sequences of a set of documents. */
typedef struct data_rows {
    const data_corpus *corpus;
    data_piece *pieces; /* sorted by sequence */
    int64_t *first;     /* [n_rows + 1]: first chunk of each sequence */
    size_t n_rows, n_pieces;
    uint64_t temporary; /* bytes that packing took besides */
    weft_split_info info;
} data_rows;

typedef enum data_packing {
    DATA_BEST_FIT,
    DATA_ALONE,    /* one chunk per sequence */
    DATA_BY_LENGTH /* one chunk per sequence, shortest first */
} data_packing;

/* Packs documents: n indices into the corpus. */
weft_status data_rows_pack(data_rows *out, const weft_host *host, const data_corpus *corpus, const size_t *documents,
                           size_t n, int64_t context, data_packing packing, weft_error *err);
void data_rows_free(data_rows *rows, const weft_host *host);

/* Chooses validation documents among n: sets marks[d] = 1 for index d in the corpus. */
weft_status data_split_choose(uint8_t *marks, const weft_host *host, const size_t *documents, size_t n, double wanted,
                              uint64_t seed, weft_error *err);

enum { DATA_N_SPLITS = 3 };

/* The sequences of a run: an endless, shuffled stream of training sequences, and one pass over each other split. */
typedef struct data_stream {
    uint64_t seed;
    int32_t lengths[WEFT_MAX_LENGTHS]; /* of micro-batches, ascending; the last is context */
    int32_t n_lengths;
    int64_t group;                 /* number of consecutive sequences of similar length; 0: no grouping */
    data_rows rows[DATA_N_SPLITS]; /* indexed by weft_split; ALL is empty if it equals TRAIN */
    uint64_t fingerprint;
} data_stream;

/* Parses a LIST of shorter lengths. Returns their number, or 0 for an invalid list. */
int32_t data_lengths_read(int32_t lengths[WEFT_MAX_LENGTHS], const char *list, int64_t context);
/* Fails if [data] context exceeds the model's context. */
weft_status data_context_judge(int64_t context, const weft_data_job *job, weft_error *err);
const data_rows *data_stream_rows(const data_stream *self, int32_t split);
void data_stream_split_info(const data_stream *self, int32_t split, weft_split_info *out);
weft_status data_stream_shape(const data_stream *self, weft_micro_batch *out, const weft_micro_batch_request *request,
                              weft_error *err);
weft_status data_stream_micro_batch(const data_stream *self, weft_micro_batch *out,
                                    const weft_micro_batch_request *request, weft_error *err);
/* Returns the size of the sequences in bytes. */
uint64_t data_stream_bytes(const data_stream *self);
void data_stream_free(data_stream *self, const weft_host *host);

/* All data that a plugin creates from its files; the ranks of a machine share it. */
enum { DATA_N_CORPORA = 2 };
typedef struct data_made {
    data_stream stream;
    data_corpus corpora[DATA_N_CORPORA]; /* of the training files; of a validation file */
    int32_t is_shared;                   /* the host owns the memory of the arrays */
    int32_t reserved;
    uint64_t peak; /* bytes at the highest moment so far */
} data_made;

/* Describes to data_made_share how a plugin creates its data. */
typedef struct data_maker {
    const weft_host *host;
    data_made *made; /* filled by make */
    void *more;      /* (optional) other numbers of the plugin that make fills */
    size_t more_bytes;
    weft_status (*make)(void *context, weft_error *err);
    void *context;
} data_maker;
/* Calls make, or maps the arrays that another rank of the machine created. */
weft_status data_made_share(const data_maker *maker, const weft_data_job *job, weft_error *err);
uint64_t data_made_bytes(const data_made *made);
/* Raises the peak: `temporary` bytes are in memory besides the data made so far. */
void data_made_note(data_made *made, uint64_t temporary);
void data_made_free(data_made *made, const weft_host *host);

/* Parses `validation`: "none" is NAN; a number is itself; any other text is a path and returns -1.
 * data_validation_holds: true if the value is valid. */
double data_validation_number(const char *text);
int data_validation_holds(const char *text);

/* Mixes a word into a hash. Bijective in both arguments, so a single difference always changes the hash. */
uint64_t data_mix(uint64_t hash, uint64_t word);
uint64_t data_mix_corpus(uint64_t hash, const data_corpus *corpus);
uint64_t data_mix_rows(uint64_t hash, const data_rows *rows);

#endif
