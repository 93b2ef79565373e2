/* common/rows.h: what data plugins share. A file becomes bytes; ids of documents become pieces of at most `context`
 * inputs, pieces rows; a split is a set of documents with rows of its own; rows become micro-batches. */
#ifndef WEFT_DATA_COMMON_ROWS_H
#define WEFT_DATA_COMMON_ROWS_H

#include <weft/data.h>
#include <weft/random.h>

/* An array that grows: small ones in the host's memory, large ones in a mapping of their own, which grows without a
 * copy and takes memory only where something was written. */
typedef struct data_array {
    void *data;
    size_t n, capacity; /* elements */
    size_t mapped;      /* bytes of the mapping; 0: the host's memory */
} data_array;

weft_status data_array_reserve(data_array *array, const weft_host *host, size_t n, size_t element_bytes);
/* Gives back what a mapping has beyond n elements. */
void data_array_trim(data_array *array, size_t element_bytes);
/* Bytes [begin, end) of the data are not read again: whole pages of a mapping are given back. */
void data_array_forget(const data_array *array, size_t begin, size_t end);
void data_array_free(data_array *array, const weft_host *host);

/* Whether a file's name ends so (".csv"), in letters of either case. */
int data_name_ends(const char *path, const char *end);

/* A whole regular file, as bytes; key: of [data] that names it. want: "a file of text or JSONL". */
weft_status data_file_read(data_array *out, const weft_host *host, const char *key, const char *path, const char *want,
                           weft_error *err);

/* Ids of a vocabulary, in 16 bits each where its size allows that. */
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
/* ids lie in the vocabulary. */
weft_status data_ids_add(data_ids *self, const weft_host *host, const int32_t *ids, size_t n);

/* The ids of all documents, one after the other. Document d is ids[starts[d] .. starts[d + 1]). */
typedef struct data_corpus {
    data_ids ids;
    data_array starts;  /* int64_t [n_documents + 1] */
    data_array weights; /* uint8_t per id: 1 where it is a target; empty: all are */
    size_t n_documents;
} data_corpus;

static inline int64_t data_corpus_start(const data_corpus *corpus, size_t d) {
    return ((const int64_t *)corpus->starts.data)[d];
}
static inline int data_corpus_is_target(const data_corpus *corpus, int64_t i) {
    return corpus->weights.data == NULL || ((const uint8_t *)corpus->weights.data)[i] != 0;
}
/* Appends documents. ids: of all of them, in the corpus's width; an empty corpus takes their memory. weights: as in a
 * corpus; lengths: int64_t, one per document. */
weft_status data_corpus_add(data_corpus *corpus, const weft_host *host, data_ids *ids, const data_array *weights,
                            const data_array *lengths);
/* No document is added any more. */
void data_corpus_end(data_corpus *corpus);
/* Bytes that it holds. */
uint64_t data_corpus_bytes(const data_corpus *corpus);
void data_corpus_free(data_corpus *corpus, const weft_host *host);

/* A window of a document: its inputs are ids[start .. start + n), its targets one further. */
typedef struct data_piece {
    int64_t start;
    int32_t n;
    int32_t row;
} data_piece;

/* Rows of one set of documents. */
typedef struct data_rows {
    const data_corpus *corpus;
    data_piece *pieces; /* sorted by row */
    int64_t *first;     /* [n_rows + 1]: first piece of each row */
    size_t n_rows, n_pieces;
    weft_split_info info;
} data_rows;

typedef enum data_packing {
    DATA_BEST_FIT,
    DATA_ALONE,    /* a piece a row */
    DATA_BY_LENGTH /* the same, shortest first */
} data_packing;

/* documents: n indices into the corpus. */
weft_status data_rows_pack(data_rows *out, const weft_host *host, const data_corpus *corpus, const size_t *documents,
                           size_t n, int64_t context, data_packing packing, weft_error *err);
void data_rows_free(data_rows *rows, const weft_host *host);

/* Which of the n documents are for validation: marks[d] = 1, where d is the document's index in the corpus. */
weft_status data_split_choose(uint8_t *marks, const weft_host *host, const size_t *documents, size_t n, double wanted,
                              uint64_t seed, weft_error *err);

enum { DATA_N_SPLITS = 3 };

/* The rows of a run: an endless stream of the training rows, and the others once. */
typedef struct data_stream {
    uint64_t seed;
    int32_t lengths[WEFT_MAX_LENGTHS]; /* of micro-batches, ascending; the last is context */
    int32_t n_lengths;
    int64_t group;                 /* rows of like length that follow one another; 0: none do */
    data_rows rows[DATA_N_SPLITS]; /* by weft_split; ALL is empty where TRAIN is the same */
    uint64_t fingerprint;
} data_stream;

/* A LIST of shorter lengths as a key has it. 0: it cannot be used. */
int32_t data_lengths_read(int32_t lengths[WEFT_MAX_LENGTHS], const char *list, int64_t context);
/* [data] context against the model's. */
weft_status data_context_judge(int64_t context, const weft_data_job *job, weft_error *err);
const data_rows *data_stream_rows(const data_stream *self, int32_t split);
void data_stream_split_info(const data_stream *self, int32_t split, weft_split_info *out);
weft_status data_stream_shape(const data_stream *self, weft_micro_batch *out, const weft_micro_batch_request *request,
                              weft_error *err);
weft_status data_stream_micro_batch(const data_stream *self, weft_micro_batch *out,
                                    const weft_micro_batch_request *request, weft_error *err);
/* Bytes that its rows hold. */
uint64_t data_stream_bytes(const data_stream *self);
void data_stream_free(data_stream *self, const weft_host *host);

/* Everything that a plugin makes of its files, which ranks of a machine share. */
enum { DATA_N_CORPORA = 2 };
typedef struct data_made {
    data_stream stream;
    data_corpus corpora[DATA_N_CORPORA]; /* of the training files; of a validation file */
    int32_t is_shared;                   /* the arrays are in memory that the host owns */
    int32_t reserved;
} data_made;

/* How a plugin makes its data. */
typedef struct data_maker {
    const weft_host *host;
    data_made *made; /* what make fills */
    void *more;      /* numbers of the plugin's own that make fills too; NULL: none */
    size_t more_bytes;
    weft_status (*make)(void *context, weft_error *err);
    void *context;
} data_maker;
/* Calls make, or maps the arrays that another rank's make filled. */
weft_status data_made_share(const data_maker *maker, const weft_data_job *job, weft_error *err);
uint64_t data_made_bytes(const data_made *made);
void data_made_free(data_made *made, const weft_host *host);

/* "none": NAN; a number: itself; else -1, as for a path. data_validation_holds: it is one of the three. */
double data_validation_number(const char *text);
int data_validation_holds(const char *text);

/* One to one in hash and in word, so that a single difference is never lost. */
uint64_t data_mix(uint64_t hash, uint64_t word);
uint64_t data_mix_corpus(uint64_t hash, const data_corpus *corpus);
uint64_t data_mix_rows(uint64_t hash, const data_rows *rows);

#endif
