/* host/tools/data/cmd_data.c: weft data show | stats: the training data of a run, before the run. */
#include "cli/cli.h"

#include "base/alloc.h"
#include "base/message.h"
#include "base/text.h"
#include "plugin/enter.h"
#include "run/session.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

/* Ids of one document of a sequence, and the weight of each as a target. The last target is no input, so it is last; an
 * id that is only an input has weight 0. */
typedef struct document {
    int32_t *ids; /* [n] */
    float *weights;
    size_t n;
} document;

/* Returns the end of the document that begins at position `at` of a micro-batch of one sequence; `at`: the rest is
 * padding. The position after its last input is its last target's. */
static int32_t document_end(const weft_micro_batch *micro_batch, int32_t at) {
    int32_t end = at + 1, last = at;
    while (end < micro_batch->length && micro_batch->starts[end] == at) end++;
    while (last < end && micro_batch->ids[last] == 0 && micro_batch->weights[last] <= 0.0f) last++;
    return last == end && end == at + 1 ? at : end;
}

static document collect(const weft_micro_batch *micro_batch, int32_t at, int32_t end) {
    const size_t n = (size_t)(end - at), last = micro_batch->weights[end - 1] > 0.0f;
    document out = {weft_alloc(n + last, sizeof *out.ids), weft_alloc(n + last, sizeof *out.weights), n + last};
    memcpy(out.ids, &micro_batch->ids[at], n * sizeof *out.ids);
    memcpy(out.weights + 1, &micro_batch->weights[at], (n + last - 1) * sizeof *out.weights);
    if (last) out.ids[n] = micro_batch->targets[end - 1];
    return out;
}

static weft_status decode(const weft_session *session, weft_bytes *out, const document *of, size_t begin, size_t n,
                          weft_error *err) {
    const weft_text_sink sink = {out, weft_bytes_put_text};
    weft_status status = WEFT_OK;
    out->n = 0;
    WEFT_PLUGIN_CALL(status, session->text.plugin, decode, err, session->text.tokenizer, &sink, of->ids + begin, n,
                     WEFT_DECODE_KEEP_SPECIAL);
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
    for (size_t i = 0, end = 0; i < of->n && status == WEFT_OK; i = end) {
        const bool learned = of->weights[i] > 0.0f;
        for (end = i; end < of->n && (of->weights[end] > 0.0f) == learned;) end++;
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
    for (size_t i = 0; i < of->n && status == WEFT_OK; i++) {
        const bool learned = of->weights[i] > 0.0f;
        status = decode(session, &text, of, i, 1, err);
        if (status != WEFT_OK) break;
        (void)printf("%s%6zu %7d  %g  \"", colour && learned ? "\033[32m" : "", i, of->ids[i], (double)of->weights[i]);
        if (text.n > 0) write_token(text.data, text.n);
        (void)printf("\"%s\n", colour && learned ? "\033[0m" : "");
    }
    weft_bytes_free(&text);
    return status;
}

static weft_status show_row(const weft_session *session, const weft_micro_batch *micro_batch, uint64_t row, bool tokens,
                            weft_error *err) {
    weft_status status = WEFT_OK;
    int32_t used = 0, documents = 0;
    for (int32_t at = 0, end = 0; at < micro_batch->length && (end = document_end(micro_batch, at)) > at; at = end) {
        documents++;
        used = end;
    }
    (void)printf("sequence %llu: %d document%s, %d of %d positions, %lld learned\n", (unsigned long long)row, documents,
                 documents == 1 ? "" : "s", used, micro_batch->length, (long long)micro_batch->n_targets);
    for (int32_t at = 0, end = 0, i = 1; at < used && status == WEFT_OK; at = end, i++) {
        document one;
        end = document_end(micro_batch, at);
        if (documents > 1) (void)printf("-- document %d, positions %d to %d\n", i, at, end - 1);
        one = collect(micro_batch, at, end);
        status = tokens ? print_tokens(session, &one, err) : print_text(session, &one, err);
        free(one.ids);
        free(one.weights);
    }
    return status;
}

static const weft_split_info *info_of(const weft_session *session, int32_t split) {
    return split == WEFT_SPLIT_VALIDATION ? &session->validation_info : &session->train_info;
}

static weft_status print_rows(const weft_session *session, int32_t split, uint64_t first, uint64_t n, bool tokens,
                              weft_error *err) {
    const uint64_t rows = info_of(session, split)->rows;
    weft_status status = WEFT_OK;
    if (first >= rows)
        return weft_error_set(err, WEFT_E_USER, "there is no sequence %llu: the split has %llu%s",
                              (unsigned long long)first, (unsigned long long)rows,
                              rows == 0 ? ", set [data] validation" : "");
    for (uint64_t row = first; row < first + n && row < rows && status == WEFT_OK; row++) {
        weft_micro_batch micro_batch;
        if (row > first) (void)putchar('\n');
        status = weft_session_row(&micro_batch, session, split, row, err);
        if (status != WEFT_OK) break;
        status = show_row(session, &micro_batch, row, tokens, err);
        free(micro_batch.ids);
    }
    return status;
}

/* --- counts --- */

enum { N_BINS = 8 };

typedef struct tally {
    uint64_t bins[N_BINS]; /* documents of a length up to context * (i + 1) / N_BINS */
    uint64_t pieces, places, used, shortest, longest;
} tally;

static void tally_row(tally *all, const weft_micro_batch *micro_batch, int64_t context) {
    all->places += (uint64_t)micro_batch->length;
    for (int32_t at = 0, end = 0; at < micro_batch->length && (end = document_end(micro_batch, at)) > at; at = end) {
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
    (void)printf("  sequences  %llu, one at a time %llu positions, %.1f %% of them padding\n",
                 (unsigned long long)info->rows, (unsigned long long)all->places,
                 share(all->places - all->used, all->places));
    if (all->pieces > info->rows)
        (void)printf("  packing    %llu documents and windows in %llu sequences: one each would be %.1f %% padding\n",
                     (unsigned long long)all->pieces, (unsigned long long)info->rows, share(alone - all->used, alone));
    print_bins(all, context);
}

static weft_status print_one(const weft_session *session, int32_t split, const char *name, weft_error *err) {
    const weft_split_info *info = info_of(session, split);
    const int64_t context = session->data_info.lengths[session->data_info.n_lengths - 1];
    tally all = {{0}, 0, 0, 0, 0, 0};
    weft_status status = WEFT_OK;
    if (info->rows == 0) return WEFT_OK;
    for (uint64_t row = 0; row < info->rows && status == WEFT_OK; row++) {
        weft_micro_batch micro_batch;
        status = weft_session_row(&micro_batch, session, split, row, err);
        if (status != WEFT_OK) break;
        tally_row(&all, &micro_batch, context);
        free(micro_batch.ids);
    }
    if (status == WEFT_OK) print_split(name, info, &all, context);
    return status;
}

/* Prints the plugin's own counts. */
static void print_counts(const weft_session *session) {
    const weft_data_plugin *plugin = session->data_plugin;
    const weft_data_counts *counts = NULL;
    uint64_t n = 0;
    const char *what = NULL;
    if (plugin->extension != NULL) WEFT_PLUGIN_QUERY(counts, plugin, extension, session->data, WEFT_DATA_COUNTS);
    if (counts == NULL || !WEFT_WHOLE(counts, weft_data_counts)) return;
    (void)printf("read\n");
    for (uint32_t i = 0; (what = counts->get(session->data, i, &n)) != NULL; i++)
        (void)printf("  %-40s %llu\n", what, (unsigned long long)n);
}

/* ---- the commands ---- */

static const weft_flag show_flags[] = {
    {"n", "N", false, "Number of sequences (default 3)."},
    {"first", "ROW", false, "First sequence, from 0 (default 0)."},
    {"validation", NULL, false, "Print sequences of the validation split."},
    {"tokens", NULL, false, "Print one line per token: position, id, weight as a target, text."},
    {NULL, NULL, false, NULL},
};

static weft_exit show_rows(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    const int32_t split = weft_args_has(args, "validation") ? WEFT_SPLIT_VALIDATION : WEFT_SPLIT_TRAIN;
    int64_t rows = 0, first = 0;
    weft_session *session = NULL;
    weft_status status = WEFT_OK;
    if (!weft_args_i64(args, &rows, "n", "[1,1000000]", 3, err) ||
        !weft_args_i64(args, &first, "first", "[0,inf)", 0, err))
        return WEFT_EXIT_USAGE;
    status = weft_session_open(&session, weft_args_config(args), overrides, n, WEFT_SESSION_EVALUATE, NULL, err);
    if (status == WEFT_OK)
        status = print_rows(session, split, (uint64_t)first, (uint64_t)rows, weft_args_has(args, "tokens"), err);
    weft_session_close(session);
    return weft_exit_from(status);
}

static weft_exit print_stats(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_session *session = NULL;
    weft_status status =
        weft_session_open(&session, weft_args_config(args), overrides, n, WEFT_SESSION_EVALUATE, NULL, err);
    if (status == WEFT_OK) status = print_one(session, WEFT_SPLIT_TRAIN, "training", err);
    if (status == WEFT_OK) status = print_one(session, WEFT_SPLIT_VALIDATION, "validation", err);
    if (status == WEFT_OK) print_counts(session);
    weft_session_close(session);
    return weft_exit_from(status);
}

static const weft_command weft_command_data_show = {
    .name = "data show",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = show_flags,
    .more = "Targets are green on a terminal and between [[ and ]] elsewhere. Special tokens are printed by name. "
            "Sequences have the order in which training reads them.",
    .examples = "  weft data show run.ini --n 5\n"
                "  weft data show run.ini --tokens --validation\n",
    .run = show_rows,
};

static const weft_command weft_command_data_stats = {
    .name = "data stats",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .examples = "  weft data stats run.ini\n"
                "  weft data stats run.ini data.context=1024\n",
    .run = print_stats,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_data_show, &weft_command_data_stats, NULL};
    return weft_cli_main(argc, argv, commands);
}
