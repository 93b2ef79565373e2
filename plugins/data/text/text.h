/* text.h: parts of the data plugin text. Files are split into documents, and documents encoded to ids. common/rows.h
 * packs them into sequences. */
#ifndef WEFT_DATA_TEXT_H
#define WEFT_DATA_TEXT_H

#include "../common/rows.h"

/* clang-format off */
#define TEXT_KEYS(K)                                                                                                   \
    K(PATH, path,       NULL,   "", "", WEFT_SAME, "Training file: plain text, JSONL, or chess games in PGN.")         \
    K(I64,  context,    "256",  "[1,16M]", "tokens", WEFT_SAME, "Tokens per sequence; longer documents are split.")    \
    K(LIST, lengths,    "",     "", "", WEFT_SAME,                                                                     \
      "Up to three shorter lengths, ascending: a micro-batch has the smallest that fits its longest sequence.")        \
    K(PATH, validation, "none", "none | number", "", WEFT_SAME,                                                        \
      "Validation data: none, a fraction of the documents (0.05), a number of them (20), or a file (./held.txt).")     \
    K(ENUM, format,     "auto", "auto,text,jsonl,pgn", "", WEFT_SAME,                                                  \
      "auto: JSONL if the file name ends in .jsonl, PGN if it ends in .pgn, else text.")                               \
    K(ENUM, document,   "file", "file,line,paragraph", "", WEFT_SAME,                                                  \
      "One document of plain text: the complete file, a line, or a paragraph between blank lines.")                    \
    K(STR,  field,      "text", "", "", WEFT_SAME, "Field of each JSONL object with the document.")
/* clang-format on */
WEFT_KEYS_STRUCT(text_config, TEXT_KEYS)

enum { FORMAT_AUTO, FORMAT_TEXT, FORMAT_JSONL, FORMAT_PGN };
enum { DOCUMENT_FILE, DOCUMENT_LINE, DOCUMENT_PARAGRAPH };

/* A file in memory, and its documents. */
typedef struct text_span {
    size_t offset, bytes;
    uint64_t line; /* first line, from 1 */
} text_span;

typedef struct text_source {
    const char *key; /* key of [data] with the path: path or validation */
    const char *path;
    data_array held; /* memory of `bytes` */
    const char *bytes;
    size_t n, begin;  /* begin: start of the text, after a byte order mark */
    size_t file_n;    /* size of the file, also if its games replaced it */
    int64_t format;   /* FORMAT_TEXT, FORMAT_JSONL or FORMAT_PGN */
    data_array spans; /* text_span */
} text_source;

weft_status text_source_open(text_source *out, const weft_host *host, const text_config *config, const char *key,
                             const char *path, weft_error *err);
/* Splits a PGN file into games; replaces the source's bytes by their text. */
weft_status text_pgn_cut(text_source *source, const weft_host *host, weft_error *err);
void text_source_close(text_source *source, const weft_host *host);

/* Extracts the document from a line of JSONL. *holder owns the text; the caller releases it by json_decref, also after
 * a failure. */
struct json_t;
weft_status text_json_document(const char **text, size_t *n, struct json_t **holder, const text_source *source,
                               const text_span *span, const char *field, weft_error *err);

weft_status text_corpus_encode(data_corpus *out, const weft_host *host, const text_config *config,
                               const weft_data_job *job, const text_source *source, weft_error *err);

#endif
