/* text.c: the data plugin `text`: plain files and JSONL, packed into isolated rows. See docs/data.md. */
#include "text.h"

#include <math.h>
#include <stdlib.h>

WEFT_KEYS_TABLE(text_config, TEXT_KEYS)

enum { N_SPLITS = 3 };

struct weft_data {
    const weft_host *host;
    text_config config;
    uint64_t seed;
    int32_t lengths[WEFT_MAX_LENGTHS]; /* of leaves, ascending; the last is context */
    int32_t n_lengths;
    text_corpus corpus, validation; /* of path; of validation, where that is a file */
    text_rows rows[N_SPLITS];       /* by weft_split; ALL is empty where TRAIN is the same */
    uint64_t fingerprint;
};

static const text_rows *rows_of(const weft_data *data, int32_t split) {
    if (split == WEFT_SPLIT_ALL && data->rows[split].pieces == NULL) return &data->rows[WEFT_SPLIT_TRAIN];
    return &data->rows[split];
}

/* One to one in hash and in word, so that a single difference is never lost. */
static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

static uint64_t mix_corpus(uint64_t hash, const text_corpus *corpus) {
    const int64_t n = corpus->starts == NULL ? 0 : corpus->starts[corpus->n_documents];
    hash = mix(hash, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) hash = mix(hash, (uint64_t)(uint32_t)corpus->ids[i]);
    return hash;
}

static uint64_t mix_rows(uint64_t hash, const text_rows *rows) {
    hash = mix(hash, rows->n_pieces);
    for (size_t i = 0; i < rows->n_pieces; i++) {
        hash = mix(hash, (uint64_t)rows->pieces[i].start);
        hash = mix(hash, ((uint64_t)(uint32_t)rows->pieces[i].n << 32) | (uint32_t)rows->pieces[i].row);
    }
    return hash;
}

/* Of what the rows are, not of where they came from: a copy of the file under another name gives the same. */
static uint64_t fingerprint(const weft_data *data) {
    uint64_t hash = mix(mix(1, data->seed), (uint64_t)data->config.context);
    hash = mix_corpus(hash, &data->corpus);
    hash = mix_corpus(hash, &data->validation);
    for (int32_t i = 0; i + 1 < data->n_lengths; i++) hash = mix(hash, (uint64_t)data->lengths[i]);
    hash = mix_rows(hash, &data->rows[WEFT_SPLIT_TRAIN]);
    return mix_rows(hash, &data->rows[WEFT_SPLIT_VALIDATION]);
}

/* "none": NAN; a number: itself; a path: -1. */
static double validation_number(const char *text) {
    char *end = NULL;
    const double value = strtod(text, &end);
    if (strcmp(text, "none") == 0) return NAN;
    return end != text && *end == '\0' && text[0] != '/' ? value : -1.0;
}

/* Returns how many there are, 0: the list cannot be used. */
static int32_t read_lengths(int32_t lengths[WEFT_MAX_LENGTHS], const text_config *keys) {
    const char *at = keys->lengths;
    int32_t n = 0;
    int64_t before = 0;
    while (*at != '\0') {
        char *end = NULL;
        const long long length = strtoll(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0')) return 0;
        if (n == WEFT_MAX_LENGTHS - 1 || length <= before || length >= keys->context) return 0;
        lengths[n++] = (int32_t)length;
        before = length;
        at = end + (*end == ',');
    }
    lengths[n++] = (int32_t)keys->context;
    return n;
}

static weft_status text_validate(const void *config, weft_error *err) {
    const text_config *keys = config;
    int32_t lengths[WEFT_MAX_LENGTHS];
    const double value = validation_number(keys->validation);
    if (keys->path[0] == '\0') return weft_error_set(err, WEFT_E_USER, "path is empty: give a file of text or JSONL");
    if (read_lengths(lengths, keys) == 0)
        return weft_error_set(err, WEFT_E_USER,
                              "lengths = %s is not possible: give at most %d whole numbers, each larger than the one "
                              "before and smaller than context = %lld",
                              keys->lengths, WEFT_MAX_LENGTHS - 1, (long long)keys->context);
    if (isnan(value) || keys->validation[0] == '/') return WEFT_OK;
    if (value > 0.0 && (value < 1.0 || value == floor(value)) && value < 1e15) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "validation = %s is not possible: give none, a fraction between 0 and 1, a whole "
                          "number of documents, or a file",
                          keys->validation);
}

/* A document with a target: it has something to predict. */
static int is_useful(const text_corpus *corpus, size_t d) {
    return corpus->starts[d + 1] - corpus->starts[d] >= 2;
}

static weft_status read_corpus(text_corpus *out, weft_data *data, const weft_data_job *job, const char *key,
                               const char *path, weft_error *err) {
    text_source source;
    size_t idle = 0;
    weft_status status = text_source_open(&source, data->host, &data->config, key, path, err);
    if (status != WEFT_OK) return status;
    status = text_corpus_encode(out, data->host, &data->config, job, &source, err);
    text_source_close(&source, data->host);
    if (status != WEFT_OK) return status;
    for (size_t d = 0; d < out->n_documents; d++) idle += is_useful(out, d) ? 0 : 1;
    if (idle == out->n_documents)
        return weft_error_set(err, WEFT_E_DATA,
                              "[data] %s = %s gives no row: no document there has two ids, and so none has "
                              "anything to predict",
                              key, path);
    if (idle > 0)
        weft_log(data->host, WEFT_LOG_WARN,
                 "%s: %zu of %zu documents give fewer than two ids and so nothing to predict", path, idle,
                 out->n_documents);
    return WEFT_OK;
}

/* The useful documents; where marks are given, those with marks[d] == mark. */
static size_t list_documents(size_t *out, const text_corpus *corpus, const uint8_t *marks, uint8_t mark) {
    size_t n = 0;
    for (size_t d = 0; d < corpus->n_documents; d++)
        if ((marks == NULL || marks[d] == mark) && is_useful(corpus, d)) out[n++] = d;
    return n;
}

static weft_status pack(weft_data *data, int32_t split, const text_corpus *corpus, const uint8_t *marks, uint8_t mark,
                        weft_error *err) {
    size_t n = 0;
    weft_status status = WEFT_OK;
    size_t *documents = data->host->alloc(data->host, corpus->n_documents * sizeof *documents, 64);
    if (documents == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu documents", corpus->n_documents);
    n = list_documents(documents, corpus, marks, mark);
    status = text_rows_pack(&data->rows[split], data->host, corpus, documents, n, data->config.context, err);
    data->host->release(data->host, documents);
    return status;
}

/* marks: 1 for the documents of validation. */
static weft_status choose(uint8_t *marks, const weft_data *data, double wanted, weft_error *err) {
    const text_corpus *corpus = &data->corpus;
    size_t n = 0;
    weft_status status = WEFT_OK;
    size_t *documents = data->host->alloc(data->host, corpus->n_documents * sizeof *documents, 64);
    if (documents == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu documents", corpus->n_documents);
    n = list_documents(documents, corpus, NULL, 0);
    status = text_split_choose(marks, data->host, documents, n, wanted, data->seed, err);
    data->host->release(data->host, documents);
    return status;
}

static weft_status split_by_number(weft_data *data, double wanted, weft_error *err) {
    const size_t n = data->corpus.n_documents;
    weft_status status = WEFT_OK;
    uint8_t *marks = data->host->alloc(data->host, n, 64);
    if (marks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu documents", n);
    memset(marks, 0, n);
    status = choose(marks, data, wanted, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_TRAIN, &data->corpus, marks, 0, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_VALIDATION, &data->corpus, marks, 1, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_ALL, &data->corpus, NULL, 0, err);
    data->host->release(data->host, marks);
    return status;
}

/* Afterwards no split that was asked for is without rows. */
static weft_status make_rows(weft_data *data, const weft_data_job *job, weft_error *err) {
    const double wanted = validation_number(data->config.validation);
    weft_status status = read_corpus(&data->corpus, data, job, "path", data->config.path, err);
    if (status != WEFT_OK) return status;
    if (wanted > 0.0) return split_by_number(data, wanted, err);
    status = pack(data, WEFT_SPLIT_TRAIN, &data->corpus, NULL, 0, err);
    if (status != WEFT_OK || isnan(wanted)) return status;
    status = read_corpus(&data->validation, data, job, "validation", data->config.validation, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_VALIDATION, &data->validation, NULL, 0, err);
    return status;
}

static void text_destroy(weft_data *data) {
    const weft_host *host = data->host;
    for (int i = 0; i < N_SPLITS; i++) text_rows_free(&data->rows[i], host);
    text_corpus_free(&data->corpus, host);
    text_corpus_free(&data->validation, host);
    host->release(host, data);
}

static weft_status text_create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    weft_data *data = host->alloc(host, sizeof *data, 64);
    if (data == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the data");
    memset(data, 0, sizeof *data);
    data->host = host;
    data->config = *(const text_config *)config;
    data->seed = job->seed;
    data->n_lengths = read_lengths(data->lengths, &data->config);
    if (data->config.context > job->max_context)
        status = weft_error_set(err, WEFT_E_USER,
                                "[data] context = %lld is longer than the model's %lld places: set at most "
                                "%lld",
                                (long long)data->config.context, (long long)job->max_context,
                                (long long)job->max_context);
    if (status == WEFT_OK) status = make_rows(data, job, err);
    if (status == WEFT_OK) {
        data->fingerprint = fingerprint(data);
        *out = data;
    } else {
        text_destroy(data);
    }
    return status;
}

static void text_info(const weft_data *data, weft_data_info *out) {
    out->n_lengths = data->n_lengths;
    memcpy(out->lengths, data->lengths, sizeof data->lengths);
    out->fingerprint = data->fingerprint;
}

static void text_split_info(const weft_data *data, int32_t split, weft_split_info *out) {
    const weft_split_info *info = &rows_of(data, split)->info;
    out->documents = info->documents;
    out->rows = info->rows;
    out->tokens = info->tokens;
    out->targets = info->targets;
}

/* Row of the packed rows that `row` of the stream is; -1: past the end of a split that is walked once. */
static int64_t stream_row(const weft_data *data, int32_t split, uint64_t row) {
    const uint64_t n = rows_of(data, split)->n_rows;
    if (split != WEFT_SPLIT_TRAIN) return row < n ? (int64_t)row : -1;
    return (int64_t)weft_random_permute(n, row % n, data->seed, WEFT_RANDOM_EPOCH, row / n);
}

static weft_status text_shape(const weft_data *data, weft_leaf *out, const weft_leaf_request *request,
                              weft_error *err) {
    const text_rows *rows = NULL;
    int64_t targets = 0, longest = 0;
    int32_t l = 0;
    if (request->split < 0 || request->split >= N_SPLITS || request->rows < 1)
        return weft_error_set(err, WEFT_E_HOST, "a leaf of %d rows of split %d was asked for", request->rows,
                              request->split);
    rows = rows_of(data, request->split);
    for (int32_t r = 0; r < request->rows; r++) {
        const int64_t row = stream_row(data, request->split, request->first_row + (uint64_t)r);
        int64_t places = 0; /* each has a target */
        if (row < 0) continue;
        for (int64_t p = rows->first[row]; p < rows->first[row + 1]; p++) places += rows->pieces[p].n;
        targets += places;
        if (places > longest) longest = places;
    }
    while (data->lengths[l] < longest) l++;
    out->rows = request->rows;
    out->length = data->lengths[l];
    out->n_targets = targets;
    return WEFT_OK;
}

/* One piece at place `at` of a row whose arrays begin at `base`. */
static void fill_piece(weft_leaf *out, size_t base, int32_t at, const int32_t *ids, const text_piece *piece) {
    for (int32_t i = 0; i < piece->n; i++) {
        const size_t to = base + (size_t)(at + i);
        out->ids[to] = ids[piece->start + i];
        out->targets[to] = ids[piece->start + i + 1];
        out->weights[to] = 1.0f;
        out->starts[to] = at;
        out->positions[to] = i;
    }
}

static void fill_padding(weft_leaf *out, size_t base, int32_t from, int32_t length) {
    for (int32_t t = from; t < length; t++) {
        const size_t to = base + (size_t)t;
        out->ids[to] = out->targets[to] = out->positions[to] = 0;
        out->weights[to] = 0.0f;
        out->starts[to] = t;
    }
}

static weft_status text_leaf(const weft_data *data, weft_leaf *out, const weft_leaf_request *request, weft_error *err) {
    const text_rows *rows = NULL;
    const weft_status status = text_shape(data, out, request, err);
    if (status != WEFT_OK) return status;
    rows = rows_of(data, request->split);
    for (int32_t r = 0; r < request->rows; r++) {
        const int64_t row = stream_row(data, request->split, request->first_row + (uint64_t)r);
        const size_t base = (size_t)r * (size_t)out->length;
        int32_t at = 0;
        for (int64_t p = row < 0 ? 0 : rows->first[row]; row >= 0 && p < rows->first[row + 1]; p++) {
            fill_piece(out, base, at, rows->corpus->ids, &rows->pieces[p]);
            at += rows->pieces[p].n;
        }
        fill_padding(out, base, at, out->length);
    }
    return WEFT_OK;
}

static const weft_data_plugin text_table = {
    (uint32_t)sizeof(weft_data_plugin),
    0,
    text_create,
    text_destroy,
    text_info,
    text_split_info,
    text_shape,
    text_leaf,
    NULL,
};

WEFT_PLUGIN(data, 1, "text", "0.1.0", "Plain text and JSONL, packed into rows of isolated documents.", text_config,
            text_validate, text_table)
