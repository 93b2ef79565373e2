/* instruct.h: parts of the data plugin instruct. Files are split into records, records converted to conversations, and
 * conversations encoded to ids with weights, truncated if too long. common/rows.h packs them into sequences. */
#ifndef WEFT_DATA_INSTRUCT_H
#define WEFT_DATA_INSTRUCT_H

#include "../common/rows.h"

#include <jansson.h>

/* clang-format off */
#define INSTRUCT_KEYS(K)                                                                                               \
    K(PATH, path,       NULL,   "", "", WEFT_SAME, "Training file: .json (an array), .jsonl, .csv or .tsv.")           \
    K(LIST, files,      "",     "", "", WEFT_SAME | WEFT_PATHS,                                                        \
      "Further files, each with an optional weight: b.jsonl, c.csv:0.5.")                                              \
    K(F64,  weight,     "1",    "(0,1000]", "", WEFT_SAME, "How often an epoch contains the records of path.")         \
    K(ENUM, format,     "auto", "auto,json,jsonl,csv,tsv", "", WEFT_SAME, "auto: by the suffix of each file name.")    \
    K(ENUM, separator,  "comma", "comma,semicolon,tab,bar", "", WEFT_SAME, "Separator of CSV fields.")                 \
    K(LIST, columns,    "",     "", "", WEFT_SAME,                                                                     \
      "Two fields, question and answer; empty: messages, conversations, instruction and output, and so on.")           \
    K(LIST, ignore,     "",     "", "", WEFT_SAME,                                                                     \
      "Keys of records and messages to ignore, besides id; any other unused key is an error.")                         \
    K(STR,  template,   "own",  "", "", WEFT_SAME,                                                                     \
      "own: the model's chat template; or alpaca, llama2, llama3, chatml, mistral, gemma, or a name in its files.")    \
    K(STR,  system,     "",     "", "", WEFT_SAME, "System message for conversations without one.")                    \
    K(ENUM, loss_on,    "answers", "answers,last,text", "", WEFT_SAME,                                                 \
      "Targets: all answers, the last answer of each conversation, or the complete text.")                             \
    K(BOOL, train_end,  "yes",  "", "", WEFT_SAME, "Train the end token of an answer too.")                            \
    K(BOOL, special_tokens, "no", "", "", WEFT_SAME,                                                                   \
      "yes: special tokens written in the data are special tokens; no: they are plain text.")                          \
    K(STR,  date,       "",     "", "", WEFT_SAME, "Date of today for templates, 2026-01-31; empty: from the clock.")  \
    K(I64,  context,    "256",  "[1,16M]", "tokens", WEFT_SAME, "Tokens per sequence.")                                \
    K(ENUM, too_long,   "cut",  "cut,drop", "", WEFT_SAME,                                                             \
      "Conversations longer than context: cut removes the front and keeps the answer; drop omits them.")               \
    K(BOOL, packing,    "yes",  "", "", WEFT_SAME, "Pack several isolated conversations into a sequence.")             \
    K(I64,  group_by_length, "0", "[0,1M]", "sequences", WEFT_SAME,                                                    \
      "Without packing: group so many sequences of similar length, a multiple of [train] micro_batch; 0: no groups.")  \
    K(LIST, lengths,    "",     "", "", WEFT_SAME,                                                                     \
      "Up to three shorter lengths, ascending: a micro-batch has the smallest that fits its longest sequence.")        \
    K(PATH, validation, "none", "none | number", "", WEFT_SAME,                                                        \
      "Validation data: none, a fraction of the conversations (0.05), a number (20), or a file (./held.jsonl).")
/* clang-format on */
WEFT_KEYS_STRUCT(instruct_config, INSTRUCT_KEYS)

enum { FORMAT_AUTO, FORMAT_JSON, FORMAT_JSONL, FORMAT_CSV, FORMAT_TSV };
enum { SEPARATOR_COMMA, SEPARATOR_SEMICOLON, SEPARATOR_TAB, SEPARATOR_BAR };
enum { LOSS_ANSWERS, LOSS_LAST, LOSS_TEXT };
enum { LONG_CUT, LONG_DROP };

/* A record of a file: the bytes of an array element, of a line, or of a table row. */
typedef struct instruct_record {
    const struct instruct_file *file;
    const char *bytes;
    size_t n;
    uint64_t line; /* first line, from 1 */
} instruct_record;

typedef struct instruct_file {
    const char *key; /* key of [data] with the path */
    char *path;      /* in the host's memory */
    double weight;
    int64_t format;
    char separator;  /* between fields of a table */
    data_array held; /* memory of `bytes` */
    const char *bytes;
    size_t n;
    json_t *header;         /* table: array of column names */
    uint64_t skipped;       /* table: number of empty lines between rows */
    uint64_t first_skipped; /* line number of the first empty line */
    data_array records;     /* instruct_record */
} instruct_file;

/* Opens a file. Takes over *path, even if it fails. */
weft_status instruct_file_open(instruct_file *out, const weft_host *host, const instruct_config *config,
                               const char *key, char *path, weft_error *err);
void instruct_file_close(instruct_file *file, const weft_host *host);

/* Tables: return the index after the row at `at` and its line end; return the fields of a row as an array of
 * strings. */
size_t instruct_row_end(const instruct_file *file, size_t at);
weft_status instruct_row_fields(json_t **out, const instruct_record *record, weft_error *err);

/* A record as a conversation: messages with role and content, and further variables of the template. */
typedef struct instruct_sample {
    json_t *messages;
    json_t *variables; /* tools, ...; NULL: absent */
    json_t *learned;   /* per assistant message: true or false; NULL: all are trained */
} instruct_sample;

/* Returns true if a LIST of [data] contains the name. */
int instruct_list_has(const char *list, const char *name, size_t n);

weft_status instruct_sample_read(instruct_sample *out, const instruct_record *record, const instruct_config *config,
                                 weft_error *err);
void instruct_sample_free(instruct_sample *sample);

/* Counts the trained answers of a conversation (by loss_on), and those of them that are empty: without text and without
 * calls of tools. With loss_on = text, both counts are 0. */
void instruct_sample_answers(const instruct_sample *sample, const instruct_config *config, size_t *all, size_t *empty);

/* Writes "FILE:LINE: " and the message to err; returns WEFT_E_DATA. */
weft_status instruct_fail(weft_error *err, const instruct_record *record, const char *format, ...) WEFT_PRINTF(3, 4);

/* Statistics over all records. */
typedef struct instruct_counts {
    uint64_t records, answers, ended;     /* answers that no flag excludes; those with an end token */
    uint64_t cut, cut_tokens;             /* conversations truncated at the front; removed ids */
    uint64_t shortened, shortened_tokens; /* last answers truncated at the end; removed ids */
    uint64_t dropped;                     /* too long and omitted */
    uint64_t idle;                        /* without a target */
    uint64_t first_idle;                  /* record, from 1; 0: absent */
    uint64_t empty, first_empty;          /* conversations that train an empty answer; the first one */
    uint64_t silent;                      /* of these, conversations without another trained answer */
    int32_t end_id;                       /* an observed end token; -1: absent */
    int32_t reserved;
} instruct_counts;

/* Ids of a conversation, and their weights as targets. */
typedef struct instruct_ids {
    data_array ids;     /* int32_t */
    data_array weights; /* uint8_t */
} instruct_ids;

typedef struct instruct_encoder {
    const weft_host *host;
    const instruct_config *config;
    const weft_data_job *job;
    int64_t now;
} instruct_encoder;

/* Encodes a conversation and appends its ids; appends nothing if it is omitted. */
weft_status instruct_encode(instruct_ids *out, instruct_counts *counts, const instruct_encoder *with,
                            const instruct_record *record, weft_error *err);

/* Encodes all records of the files in parallel. Document d of the corpus is record d; the corpus has weights. */
weft_status instruct_corpus_encode(data_corpus *out, instruct_counts *counts, const instruct_encoder *with,
                                   const instruct_file *files, size_t n_files, weft_error *err);

#endif
