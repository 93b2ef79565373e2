/* host/tools/init/peek.h: a look at the begin of a data file, to say how it is to be read. Whether it can be read at
 * all, and what is wrong with it, is the data plugin's to say. */
#ifndef WEFT_HOST_TOOLS_INIT_PEEK_H
#define WEFT_HOST_TOOLS_INIT_PEEK_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_peek {
    bool is_jsonl, is_pgn;     /* its lines are objects; it holds chess games */
    bool is_instruct;          /* its records are questions with answers, or conversations */
    char format[8];            /* of those, where its name does not say so: "json", "jsonl"; "": it does */
    bool is_table;             /* of CSV or TSV, with several columns */
    char columns[160];         /* of those, the question's and the answer's where names do not tell; "": they do */
    char separator[12];        /* of CSV, where that is no comma: "semicolon", "tab", "bar" */
    bool is_named_so;          /* its name says so */
    char field[64];            /* of JSONL: the one with the most text; "": none has any */
    char fields[160];          /* all that hold text, or a table's columns: "question, answer" */
    int64_t lines, paragraphs; /* of plain text, in what was looked at */
    bool is_whole;             /* that is all of the file */
} weft_peek;

weft_status weft_peek_file(weft_peek *out, const char *path, weft_error *err);

#endif
