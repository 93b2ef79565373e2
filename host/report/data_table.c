/* host/report/data_table.c: see data_table.h. */
#include "report/data_table.h"

#include "base/bytes.h"
#include "base/terminal.h"
#include "plugin/enter.h"
#include "run/row_reader.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

/* Ids of one document of a sequence, and the weight of each as a target. The last target is no input, so it is last; an
 * id that is only an input has weight 0. */
typedef struct document {
    weft_bytes ids;     /* int32_t */
    weft_bytes weights; /* float */
} document;

static size_t n_ids(const document *self) {
    return self->ids.n / sizeof(int32_t);
}

static float weight_of(const document *self, size_t i) {
    return ((const float *)(const void *)self->weights.data)[i];
}

static weft_status collect(document *out, const weft_micro_batch *micro_batch, int32_t at, int32_t end,
                           weft_error *err) {
    const float none = 0.0f;
    weft_status status = WEFT_OK;
    out->ids.n = out->weights.n = 0;
    for (int32_t i = at; i < end && status == WEFT_OK; i++) {
        status = weft_bytes_put(&out->ids, &micro_batch->ids[i], sizeof(int32_t));
        if (status == WEFT_OK)
            status = weft_bytes_put(&out->weights, i == at ? &none : &micro_batch->weights[i - 1], sizeof(float));
    }
    if (status == WEFT_OK && micro_batch->weights[end - 1] > 0.0f) {
        status = weft_bytes_put(&out->ids, &micro_batch->targets[end - 1], sizeof(int32_t));
        if (status == WEFT_OK) status = weft_bytes_put(&out->weights, &micro_batch->weights[end - 1], sizeof(float));
    }
    return status == WEFT_OK ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for a document");
}

static weft_status decode(const weft_session *session, weft_bytes *out, const document *of, size_t begin, size_t n,
                          weft_error *err) {
    const weft_text_sink sink = {out, weft_bytes_put_text};
    weft_status status = WEFT_OK;
    out->n = 0;
    WEFT_PLUGIN_CALL(status, session->text.plugin, decode, err, session->text.tokenizer, &sink,
                     (const int32_t *)(const void *)of->ids.data + begin, n, WEFT_DECODE_KEEP_SPECIAL);
    return status;
}

/* Returns the length of the control character at the start of a text, which must not reach a terminal; 0: no control
 * character. U+0080 to U+009F, two bytes each, are control characters too. */
static size_t control_bytes(const char *text, size_t n) {
    const unsigned char first = (unsigned char)text[0], second = n > 1 ? (unsigned char)text[1] : 0;
    if (first < 0x20 || first == 0x7f) return 1;
    return first == 0xc2 && second >= 0x80 && second < 0xa0 ? 2 : 0;
}

/* Writes the text with ? for each control character other than tab and newline. */
static void write_text(const char *text, size_t n) {
    for (size_t i = 0, control = 0; i < n; i += control == 0 ? 1 : control) {
        control = text[i] == '\n' || text[i] == '\t' ? 0 : control_bytes(text + i, n - i);
        (void)putchar(control > 0 ? '?' : text[i]);
    }
}

/* Writes a token on one line; control characters and incomplete characters as byte numbers. */
static void write_token(const char *text, size_t n) {
    json_t *whole = json_stringn(text, n); /* validates UTF-8 */
    for (size_t i = 0; i < n; i++) {
        const size_t control = control_bytes(text + i, n - i);
        if (text[i] == '\n') (void)fputs("\\n", stdout);
        else if (control > 0 || (whole == NULL && (unsigned char)text[i] >= 0x80)) {
            for (size_t k = 0; k == 0 || k < control; k++) (void)printf("\\x%02X", (unsigned char)text[i + k]);
            i += control > 1 ? control - 1 : 0;
        } else (void)putchar(text[i]);
    }
    json_decref(whole);
}

/* Prints the text in runs of equal weight; the text of a run is its addition to the text so far. */
static weft_status print_text(const weft_session *session, const document *of, weft_error *err) {
    const bool colour = weft_terminal_of(STDOUT_FILENO).colour;
    weft_bytes text = {0};
    size_t printed = 0;
    weft_status status = WEFT_OK;
    for (size_t i = 0, end = 0; i < n_ids(of) && status == WEFT_OK; i = end) {
        const bool learned = weight_of(of, i) > 0.0f;
        for (end = i; end < n_ids(of) && (weight_of(of, end) > 0.0f) == learned; end++) {
        }
        status = decode(session, &text, of, 0, end, err);
        if (status != WEFT_OK) break;
        if (learned) (void)fputs(colour ? "\033[32m" : "[[", stdout);
        if (text.n > printed) write_text(text.data + printed, text.n - printed);
        if (learned) (void)fputs(colour ? "\033[0m" : "]]", stdout);
        printed = text.n > printed ? text.n : printed;
    }
    (void)putchar('\n');
    weft_bytes_free(&text);
    return status;
}

static weft_status print_tokens(const weft_session *session, const document *of, weft_error *err) {
    const bool colour = weft_terminal_of(STDOUT_FILENO).colour;
    weft_bytes text = {0};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n_ids(of) && status == WEFT_OK; i++) {
        const bool learned = weight_of(of, i) > 0.0f;
        status = decode(session, &text, of, i, 1, err);
        if (status != WEFT_OK) break;
        (void)printf("%s%6zu %7d  %g  \"", colour && learned ? "\033[32m" : "", i,
                     ((const int32_t *)(const void *)of->ids.data)[i], (double)weight_of(of, i));
        if (text.n > 0) write_token(text.data, text.n);
        (void)printf("\"%s\n", colour && learned ? "\033[0m" : "");
    }
    weft_bytes_free(&text);
    return status;
}

static weft_status show_row(const weft_session *session, weft_row_reader *reader, uint64_t row, bool tokens,
                            weft_error *err) {
    const weft_micro_batch *micro_batch = &reader->micro_batch;
    document one = {{0}, {0}};
    weft_status status = WEFT_OK;
    int32_t used = 0, documents = 0;
    for (int32_t at = 0, end = 0; at < micro_batch->length && (end = weft_row_document_end(reader, at)) > at;
         at = end) {
        documents++;
        used = end;
    }
    (void)printf("row %llu: %d document%s, %d of %d places, %lld learned\n", (unsigned long long)row, documents,
                 documents == 1 ? "" : "s", used, micro_batch->length, (long long)micro_batch->n_targets);
    for (int32_t at = 0, end = 0, i = 1; at < used && status == WEFT_OK; at = end, i++) {
        end = weft_row_document_end(reader, at);
        if (documents > 1) (void)printf("-- document %d, places %d to %d\n", i, at, end - 1);
        status = collect(&one, micro_batch, at, end, err);
        if (status == WEFT_OK) status = tokens ? print_tokens(session, &one, err) : print_text(session, &one, err);
    }
    weft_bytes_free(&one.ids);
    weft_bytes_free(&one.weights);
    return status;
}

static const weft_split_info *info_of(const weft_session *session, int32_t split) {
    return split == WEFT_SPLIT_VALIDATION ? &session->validation_info : &session->train_info;
}

weft_status weft_data_show(const weft_session *session, int32_t split, uint64_t first, uint64_t n, bool tokens,
                           weft_error *err) {
    const uint64_t rows = info_of(session, split)->rows;
    weft_row_reader reader;
    weft_status status = WEFT_OK;
    if (first >= rows)
        return weft_error_set(err, WEFT_E_USER, "there is no row %llu: the split has %llu%s", (unsigned long long)first,
                              (unsigned long long)rows, rows == 0 ? ", set [data] validation" : "");
    status = weft_row_reader_open(&reader, session, err);
    for (uint64_t row = first; row < first + n && row < rows && status == WEFT_OK; row++) {
        if (row > first) (void)putchar('\n');
        status = weft_row_read(&reader, split, row, err);
        if (status == WEFT_OK) status = show_row(session, &reader, row, tokens, err);
    }
    weft_row_reader_close(&reader);
    return status;
}

/* --- counts --- */

enum { N_BINS = 8 };

typedef struct tally {
    uint64_t bins[N_BINS]; /* documents of a length up to context * (i + 1) / N_BINS */
    uint64_t pieces, places, used, shortest, longest;
} tally;

static void tally_row(tally *all, const weft_row_reader *reader, int64_t context) {
    const weft_micro_batch *micro_batch = &reader->micro_batch;
    all->places += (uint64_t)micro_batch->length;
    for (int32_t at = 0, end = 0; at < micro_batch->length && (end = weft_row_document_end(reader, at)) > at;
         at = end) {
        const uint64_t n = (uint64_t)(end - at);
        all->bins[((uint64_t)N_BINS * (n - 1)) / (uint64_t)context]++;
        if (all->pieces == 0 || n < all->shortest) all->shortest = n;
        if (n > all->longest) all->longest = n;
        all->pieces++;
        all->used += n;
    }
}

static double share(uint64_t part, uint64_t of) {
    return of == 0 ? 0.0 : 100.0 * (double)part / (double)of;
}

static void print_bins(const tally *all, int64_t context) {
    uint64_t most = 1;
    for (int i = 0; i < N_BINS; i++) most = all->bins[i] > most ? all->bins[i] : most;
    (void)printf("  length of a document or window, of %llu to %llu inputs\n", (unsigned long long)all->shortest,
                 (unsigned long long)all->longest);
    for (int i = 0; i < N_BINS; i++) {
        const int64_t from = context * i / N_BINS + 1, to = context * (i + 1) / N_BINS;
        if (to < from) continue;
        (void)printf("    %6lld to %6lld  %8llu  ", (long long)from, (long long)to, (unsigned long long)all->bins[i]);
        for (uint64_t k = 0; k < (all->bins[i] * 40 + most - 1) / most; k++) (void)putchar('#');
        (void)putchar('\n');
    }
}

static void print_split(const char *name, const weft_split_info *info, const tally *all, int64_t context) {
    const uint64_t alone = all->pieces * (uint64_t)context;
    (void)printf("%s\n", name);
    (void)printf("  documents  %llu, %llu tokens, of which %llu are learned (%.1f %%)\n",
                 (unsigned long long)info->documents, (unsigned long long)info->tokens,
                 (unsigned long long)info->targets, share(info->targets, info->tokens));
    (void)printf("  rows       %llu, a row at a time %llu places, %.1f %% of them padding\n",
                 (unsigned long long)info->rows, (unsigned long long)all->places,
                 share(all->places - all->used, all->places));
    if (all->pieces > info->rows)
        (void)printf("  packing    %llu documents and windows in %llu rows: one a row would be %.1f %% padding\n",
                     (unsigned long long)all->pieces, (unsigned long long)info->rows, share(alone - all->used, alone));
    print_bins(all, context);
}

static weft_status print_one(const weft_session *session, int32_t split, const char *name, weft_error *err) {
    const weft_split_info *info = info_of(session, split);
    const int64_t context = session->data_info.lengths[session->data_info.n_lengths - 1];
    weft_row_reader reader;
    tally all = {{0}, 0, 0, 0, 0, 0};
    weft_status status = WEFT_OK;
    if (info->rows == 0) return WEFT_OK;
    status = weft_row_reader_open(&reader, session, err);
    for (uint64_t row = 0; row < info->rows && status == WEFT_OK; row++) {
        status = weft_row_read(&reader, split, row, err);
        if (status == WEFT_OK) tally_row(&all, &reader, context);
    }
    if (status == WEFT_OK) print_split(name, info, &all, context);
    weft_row_reader_close(&reader);
    return status;
}

/* Prints the plugin's own counts. */
static void print_counts(const weft_session *session) {
    const weft_data_plugin *plugin = session->data_plugin;
    const weft_data_counts *counts = NULL;
    uint64_t n = 0;
    const char *what = NULL;
    if (plugin->extension != NULL) WEFT_PLUGIN_ASK(counts, plugin, extension, session->data, WEFT_DATA_COUNTS);
    if (counts == NULL || !WEFT_WHOLE(counts, weft_data_counts)) return;
    (void)printf("read\n");
    for (uint32_t i = 0; (what = counts->get(session->data, i, &n)) != NULL; i++)
        (void)printf("  %-40s %llu\n", what, (unsigned long long)n);
}

weft_status weft_data_stats(const weft_session *session, weft_error *err) {
    weft_status status = print_one(session, WEFT_SPLIT_TRAIN, "training", err);
    if (status == WEFT_OK) status = print_one(session, WEFT_SPLIT_VALIDATION, "validation", err);
    if (status == WEFT_OK) print_counts(session);
    return status;
}
