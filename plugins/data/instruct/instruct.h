/* instruct.h: the parts of the instruct data plugin. Files become records, records conversations, conversations ids
 * with a weight each, cut where they are too long; common/rows.h makes rows of them. */
#ifndef WEFT_DATA_INSTRUCT_H
#define WEFT_DATA_INSTRUCT_H

#include "../common/rows.h"

#include <jansson.h>

/* clang-format off */
#define INSTRUCT_KEYS(K)                                                                                               \
    K(PATH, path,       NULL,   "", "", WEFT_SAME, "File to learn from: .json (an array), .jsonl, .csv or .tsv.")      \
    K(LIST, files,      "",     "", "", WEFT_SAME | WEFT_PATHS,                                                        \
      "Further files, found as path is, each perhaps with how often an epoch has it: b.jsonl, c.csv:0.5.")             \
    K(F64,  weight,     "1",    "(0,1000]", "", WEFT_SAME, "How often an epoch has what path holds.")                  \
    K(ENUM, format,     "auto", "auto,json,jsonl,csv,tsv", "", WEFT_SAME, "auto: by the end of each file's name.")     \
    K(ENUM, separator,  "comma", "comma,semicolon,tab,bar", "", WEFT_SAME, "What stands between the fields of CSV.")   \
    K(LIST, columns,    "",     "", "", WEFT_SAME,                                                                     \
      "Two fields, question and answer; without them: messages, conversations, instruction and output, and the like.") \
    K(LIST, ignore,     "",     "", "", WEFT_SAME,                                                                     \
      "Keys of records and of messages that are dropped, with id; any other key that is not used is an error.")        \
    K(STR,  template,   "own",  "", "", WEFT_SAME,                                                                     \
      "own: the model's chat template; else alpaca, llama2, llama3, chatml, mistral, gemma, or one of its files.")     \
    K(STR,  system,     "",     "", "", WEFT_SAME, "A system message for conversations that have none.")               \
    K(ENUM, loss_on,    "answers", "answers,last,text", "", WEFT_SAME,                                                 \
      "What is learned: every answer, the last one of each conversation, or the whole text.")                          \
    K(BOOL, train_end,  "yes",  "", "", WEFT_SAME, "Learn the end token of an answer too.")                            \
    K(BOOL, special_tokens, "no", "", "", WEFT_SAME,                                                                   \
      "Special tokens written inside of the data's texts are special tokens; no: they are text.")                      \
    K(STR,  date,       "",     "", "", WEFT_SAME, "What templates take for today, 2026-01-31; empty: the clock's.")   \
    K(I64,  context,    "256",  "[1,16M]", "tokens", WEFT_SAME, "Inputs of a row.")                                    \
    K(ENUM, too_long,   "cut",  "cut,drop", "", WEFT_SAME,                                                             \
      "A conversation that is longer: cut at its front, so that its answer stays, or left out.")                       \
    K(BOOL, packing,    "yes",  "", "", WEFT_SAME, "Several conversations in a row, isolated; no: one a row.")         \
    K(I64,  group_by_length, "0", "[0,1M]", "rows", WEFT_SAME,                                                         \
      "Without packing: so many rows of like length follow one another, a multiple of [train] micro_batch; 0: none.")  \
    K(LIST, lengths,    "",     "", "", WEFT_SAME,                                                                     \
      "Shorter micro-batches, up to three, ascending: a micro-batch is as long as the smallest that holds its "        \
      "longest row.")                                                                                                  \
    K(PATH, validation, "none", "none | number", "", WEFT_SAME,                                                        \
      "Kept for evaluation: none, a fraction of the conversations (0.05), so many (20), or a file (./held.jsonl).")
/* clang-format on */
WEFT_KEYS_STRUCT(instruct_config, INSTRUCT_KEYS)

enum { FORMAT_AUTO, FORMAT_JSON, FORMAT_JSONL, FORMAT_CSV, FORMAT_TSV };
enum { SEPARATOR_COMMA, SEPARATOR_SEMICOLON, SEPARATOR_TAB, SEPARATOR_BAR };
enum { LOSS_ANSWERS, LOSS_LAST, LOSS_TEXT };
enum { LONG_CUT, LONG_DROP };

/* A record of a file: an element of an array, a line, or a row of a table, as it stands there. */
typedef struct instruct_record {
    const struct instruct_file *file;
    const char *bytes;
    size_t n;
    uint64_t line; /* where it begins, from 1 */
} instruct_record;

typedef struct instruct_file {
    const char *key; /* of [data] that names it */
    char *path;      /* the host's memory */
    double weight;
    int64_t format;
    char separator;  /* of a table's fields */
    data_array held; /* what bytes lie in */
    const char *bytes;
    size_t n;
    json_t *header;         /* of a table: the names of its columns, an array */
    uint64_t skipped;       /* of a table: empty lines between its rows */
    uint64_t first_skipped; /* the line number of the first of them */
    data_array records;     /* instruct_record */
} instruct_file;

/* *path is taken over, also after a failure. */
weft_status instruct_file_open(instruct_file *out, const weft_host *host, const instruct_config *config,
                               const char *key, char *path, weft_error *err);
void instruct_file_close(instruct_file *file, const weft_host *host);

/* Tables: the index after the row at `at` and its line end; and a row's fields, strings in an array. */
size_t instruct_row_end(const instruct_file *file, size_t at);
weft_status instruct_row_fields(json_t **out, const instruct_record *record, weft_error *err);

/* A record as an array of messages, objects with role and content, and whatever more it has for the template. */
typedef struct instruct_sample {
    json_t *messages;
    json_t *variables; /* tools, ...; NULL: none */
    json_t *learned;   /* per assistant's message: true or false; NULL: all are learned */
} instruct_sample;

/* Whether a list of [data] has the name. */
int instruct_list_has(const char *list, const char *name);

weft_status instruct_sample_read(instruct_sample *out, const instruct_record *record, const instruct_config *config,
                                 weft_error *err);
void instruct_sample_free(instruct_sample *sample);

/* Of the answers that are learned of it (loss_on), which all go into the two counts, how many say nothing: neither text
 * nor anything that templates write in its place, as calls of tools. loss_on = text: none is counted. */
void instruct_sample_answers(const instruct_sample *sample, const instruct_config *config, size_t *all, size_t *empty);

/* "FILE:LINE: " and the sentence; WEFT_E_DATA. */
weft_status instruct_fail(weft_error *err, const instruct_record *record, const char *format, ...) WEFT_PRINTF(3, 4);

/* What became of the records, in all. */
typedef struct instruct_counts {
    uint64_t records, answers, ended;     /* answers that no flag turns off; those of them with an end token */
    uint64_t cut, cut_tokens;             /* conversations that lost their front, ids in it */
    uint64_t shortened, shortened_tokens; /* last answers that lost their end */
    uint64_t dropped;                     /* too long, left out */
    uint64_t idle;                        /* without a target */
    uint64_t first_idle;                  /* record, from 1; 0: none */
    uint64_t empty, first_empty;          /* those that learn an answer which says nothing; so, too */
    uint64_t silent;                      /* of these, those that learn no other one */
    int32_t end_id;                       /* an end token that was seen; -1: none */
    int32_t reserved;
} instruct_counts;

/* A conversation's ids and the weight of each as a target. */
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

/* Appends the conversation's ids; none: it was left out. */
weft_status instruct_encode(instruct_ids *out, instruct_counts *counts, const instruct_encoder *with,
                            const instruct_record *record, weft_error *err);

/* All records of files, several at once; weights are filled in the corpus. Document d is record d. */
weft_status instruct_corpus_encode(data_corpus *out, instruct_counts *counts, const instruct_encoder *with,
                                   const instruct_file *files, size_t n_files, weft_error *err);

#endif
