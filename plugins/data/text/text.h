/* text.h: the parts of the text data plugin. Files become documents, documents ids; common/rows.h makes their
 * rows. */
#ifndef WEFT_DATA_TEXT_H
#define WEFT_DATA_TEXT_H

#include "../common/rows.h"

/* clang-format off */
#define TEXT_KEYS(K)                                                                                                   \
    K(PATH, path,       NULL,   "", "", WEFT_SAME, "File to learn from: plain text, JSONL, or chess games in PGN.")    \
    K(I64,  context,    "256",  "[1,16M]", "tokens", WEFT_SAME, "Inputs of a row; longer documents become windows.") \
    K(LIST, lengths,    "",     "", "", WEFT_SAME,                                                                     \
      "Shorter micro-batches, up to three, ascending: a micro-batch is as long as the smallest that holds its "        \
      "longest row.")                                                                                                  \
    K(PATH, validation, "none", "none | number", "", WEFT_SAME,                                                        \
      "Kept for evaluation: none, a fraction of the documents (0.05), so many of them (20), or a file (./held.txt).")  \
    K(ENUM, format,     "auto", "auto,text,jsonl,pgn", "", WEFT_SAME,                                                  \
      "auto: JSONL if the file's name ends in .jsonl, games if it ends in .pgn.")                                      \
    K(ENUM, document,   "file", "file,line,paragraph", "", WEFT_SAME,                                                  \
      "What is one document of plain text: the whole file, a line, or what stands between blank lines.")               \
    K(STR,  field,      "text", "", "", WEFT_SAME, "Field of each JSONL object that holds the document.")
/* clang-format on */
WEFT_KEYS_STRUCT(text_config, TEXT_KEYS)

enum { FORMAT_AUTO, FORMAT_TEXT, FORMAT_JSONL, FORMAT_PGN };
enum { DOCUMENT_FILE, DOCUMENT_LINE, DOCUMENT_PARAGRAPH };

/* A file in memory and the documents in it. */
typedef struct text_span {
    size_t offset, bytes;
    uint64_t line; /* where it begins, from 1 */
} text_span;

typedef struct text_source {
    const char *key; /* of [data] that names it: path or validation */
    const char *path;
    data_array held; /* what bytes lie in */
    const char *bytes;
    size_t n, begin;  /* begin: of the text, behind a byte order mark */
    int64_t format;   /* FORMAT_TEXT, FORMAT_JSONL or FORMAT_PGN */
    data_array spans; /* text_span */
} text_source;

weft_status text_source_open(text_source *out, const weft_host *host, const text_config *config, const char *key,
                             const char *path, weft_error *err);
/* The games of a file in PGN: the source's bytes become their texts. */
weft_status text_pgn_cut(text_source *source, const weft_host *host, weft_error *err);
void text_source_close(text_source *source, const weft_host *host);

/* The document of a line of JSONL. *holder owns the text; to be released by json_decref, also after a failure. */
struct json_t;
weft_status text_json_document(const char **text, size_t *n, struct json_t **holder, const text_source *source,
                               const text_span *span, const char *field, weft_error *err);

weft_status text_corpus_encode(data_corpus *out, const weft_host *host, const text_config *config,
                               const weft_data_job *job, const text_source *source, weft_error *err);

#endif
