/* text.h: the parts of the text data plugin. Files become documents, documents ids, ids pieces of at most `context`
 * inputs, pieces rows; a split is a set of documents with rows of its own. */
#ifndef WEFT_DATA_TEXT_H
#define WEFT_DATA_TEXT_H

#include <weft/data.h>
#include <weft/random.h>

/* clang-format off */
#define TEXT_KEYS(K)                                                                                                   \
    K(PATH, path,       NULL,   "", "", WEFT_SAME, "File to learn from: plain text, or JSONL.")                        \
    K(I64,  context,    "256",  "[1,16M]", "tokens", WEFT_SAME, "Inputs of a row; longer documents become windows.") \
    K(LIST, lengths,    "",     "", "", WEFT_SAME,                                                                     \
      "Shorter leaves, up to three, ascending: a leaf is as long as the smallest that holds its longest row.")         \
    K(PATH, validation, "none", "none | number", "", WEFT_SAME,                                                        \
      "Kept for evaluation: none, a fraction of the documents (0.05), so many of them (20), or a file (./held.txt).")  \
    K(ENUM, format,     "auto", "auto,text,jsonl", "", WEFT_SAME, "auto: JSONL if the file's name ends in .jsonl.")    \
    K(ENUM, document,   "file", "file,line,paragraph", "", WEFT_SAME,                                                  \
      "What is one document of plain text: the whole file, a line, or what stands between blank lines.")               \
    K(STR,  field,      "text", "", "", WEFT_SAME, "Field of each JSONL object that holds the document.")
/* clang-format on */
WEFT_KEYS_STRUCT(text_config, TEXT_KEYS)

enum { FORMAT_AUTO, FORMAT_TEXT, FORMAT_JSONL };
enum { DOCUMENT_FILE, DOCUMENT_LINE, DOCUMENT_PARAGRAPH };

/* An array that grows, in the host's memory. */
typedef struct text_array {
    void *data;
    size_t n, capacity; /* elements */
} text_array;

weft_status text_array_reserve(text_array *array, const weft_host *host, size_t n, size_t element_bytes);
void text_array_free(text_array *array, const weft_host *host);

/* A file in memory and the documents in it. */
typedef struct text_span {
    size_t offset, bytes;
    uint64_t line; /* where it begins, from 1 */
} text_span;

typedef struct text_source {
    const char *key; /* of [data] that names it: path or validation */
    const char *path;
    char *bytes;
    size_t n, begin; /* begin: of the text, behind a byte order mark */
    int jsonl;
    text_array spans; /* text_span */
} text_source;

weft_status text_source_open(text_source *out, const weft_host *host, const text_config *config, const char *key,
                             const char *path, weft_error *err);
void text_source_close(text_source *source, const weft_host *host);

/* The document of a line of JSONL. *holder owns the text; to be released by json_decref, also after a failure. */
struct json_t;
weft_status text_json_document(const char **text, size_t *n, struct json_t **holder, const text_source *source,
                               const text_span *span, const char *field, weft_error *err);

/* The ids of all documents, one after the other. Document d is ids[starts[d] .. starts[d + 1]). */
typedef struct text_corpus {
    int32_t *ids;
    int64_t *starts; /* [n_documents + 1] */
    size_t n_documents;
} text_corpus;

weft_status text_corpus_encode(text_corpus *out, const weft_host *host, const text_config *config,
                               const weft_data_job *job, const text_source *source, weft_error *err);
void text_corpus_free(text_corpus *corpus, const weft_host *host);

/* A window of a document: its inputs are ids[start .. start + n), its targets one further. */
typedef struct text_piece {
    int64_t start;
    int32_t n;
    int32_t row;
} text_piece;

/* Rows of one set of documents. */
typedef struct text_rows {
    const text_corpus *corpus;
    text_piece *pieces; /* sorted by row */
    int64_t *first;     /* [n_rows + 1]: first piece of each row */
    size_t n_rows, n_pieces;
    weft_split_info info;
} text_rows;

/* documents: n indices into the corpus. */
weft_status text_rows_pack(text_rows *out, const weft_host *host, const text_corpus *corpus, const size_t *documents,
                           size_t n, int64_t context, weft_error *err);
void text_rows_free(text_rows *rows, const weft_host *host);

/* Which of the n documents are for validation: marks[d] = 1, where d is the document's index in the corpus. */
weft_status text_split_choose(uint8_t *marks, const weft_host *host, const size_t *documents, size_t n, double wanted,
                              uint64_t seed, weft_error *err);

#endif
