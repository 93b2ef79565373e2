/* text.c: data plugin `text`: plain text, JSONL and PGN, packed into sequences of isolated documents. See
 * docs/data.md. */
#include "text.h"

#include <math.h>

WEFT_KEYS_TABLE(text_config, TEXT_KEYS)

struct weft_data {
    const weft_host *host;
    text_config config;
    const weft_data_job *job;
    data_made made;
};

/* Hashes the sequences, independent of file names: a renamed copy has the same hash. */
static uint64_t fingerprint(const weft_data *data) {
    uint64_t hash = data_mix(data_mix(1, data->made.stream.seed), (uint64_t)data->config.context);
    hash = data_mix_corpus(hash, &data->made.corpora[0]);
    hash = data_mix_corpus(hash, &data->made.corpora[1]);
    for (int32_t i = 0; i + 1 < data->made.stream.n_lengths; i++)
        hash = data_mix(hash, (uint64_t)data->made.stream.lengths[i]);
    hash = data_mix_rows(hash, &data->made.stream.rows[WEFT_SPLIT_TRAIN]);
    return data_mix_rows(hash, &data->made.stream.rows[WEFT_SPLIT_VALIDATION]);
}

static weft_status text_validate(const void *config, weft_error *err) {
    const text_config *keys = config;
    int32_t lengths[WEFT_MAX_LENGTHS];
    if (keys->path[0] == '\0')
        return weft_error_set(err, WEFT_E_USER, "path is empty. Allowed: a file of text or JSONL");
    if (data_lengths_read(lengths, keys->lengths, keys->context) == 0)
        return weft_error_set(err, WEFT_E_USER,
                              "lengths = %s is not possible: give at most %d whole numbers, each larger than the one "
                              "before and smaller than context = %lld",
                              keys->lengths, WEFT_MAX_LENGTHS - 1, (long long)keys->context);
    if (data_validation_holds(keys->validation)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "validation = %s is not possible: give none, a fraction between 0 and 1, a whole "
                          "number of documents, or a file",
                          keys->validation);
}

/* Returns true if the document has a target: at least two ids. */
static int is_useful(const data_corpus *corpus, size_t d) {
    return data_corpus_start(corpus, d + 1) - data_corpus_start(corpus, d) >= 2;
}

static weft_status read_corpus(data_corpus *out, weft_data *data, const char *key, const char *path, weft_error *err) {
    text_source source;
    size_t idle = 0;
    weft_status status = text_source_open(&source, data->host, &data->config, key, path, err);
    if (status != WEFT_OK) return status;
    data_made_note(&data->made,
                   source.file_n + (source.format == FORMAT_PGN ? source.n : 0) + source.spans.n * sizeof(text_span));
    status = text_corpus_encode(out, data->host, &data->config, data->job, &source, err);
    text_source_close(&source, data->host);
    if (status != WEFT_OK) return status;
    data_made_note(&data->made, out->peak - data_corpus_bytes(out));
    for (size_t d = 0; d < out->n_documents; d++) idle += is_useful(out, d) ? 0 : 1;
    if (idle == out->n_documents)
        return weft_error_set(err, WEFT_E_DATA, "[data] %s = %s has no target: no document has two ids", key, path);
    if (idle > 0)
        weft_log(data->host, WEFT_LOG_WARN, "%s: %zu of %zu documents have fewer than two ids and so no target", path,
                 idle, out->n_documents);
    return WEFT_OK;
}

/* Lists the useful documents; with marks, only those with marks[d] == mark. */
static size_t list_documents(size_t *out, const data_corpus *corpus, const uint8_t *marks, uint8_t mark) {
    size_t n = 0;
    for (size_t d = 0; d < corpus->n_documents; d++)
        if ((marks == NULL || marks[d] == mark) && is_useful(corpus, d)) out[n++] = d;
    return n;
}

static weft_status pack(weft_data *data, int32_t split, const data_corpus *corpus, const uint8_t *marks, uint8_t mark,
                        weft_error *err) {
    size_t n = 0;
    weft_status status = WEFT_OK;
    size_t *documents = data->host->alloc(data->host, corpus->n_documents * sizeof *documents, 64);
    if (documents == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu documents", corpus->n_documents);
    n = list_documents(documents, corpus, marks, mark);
    status = data_rows_pack(&data->made.stream.rows[split], data->host, corpus, documents, n, data->config.context,
                            DATA_BEST_FIT, err);
    data->host->release(data->host, documents);
    data_made_note(&data->made, data->made.stream.rows[split].temporary);
    return status;
}

/* Chooses the validation documents; marks: 1 for each of them. */
static weft_status choose(uint8_t *marks, const weft_data *data, double wanted, weft_error *err) {
    const data_corpus *corpus = &data->made.corpora[0];
    size_t n = 0;
    weft_status status = WEFT_OK;
    size_t *documents = data->host->alloc(data->host, corpus->n_documents * sizeof *documents, 64);
    if (documents == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu documents", corpus->n_documents);
    n = list_documents(documents, corpus, NULL, 0);
    status = data_split_choose(marks, data->host, documents, n, wanted, data->made.stream.seed, err);
    data->host->release(data->host, documents);
    return status;
}

static weft_status split_by_number(weft_data *data, double wanted, weft_error *err) {
    const size_t n = data->made.corpora[0].n_documents;
    weft_status status = WEFT_OK;
    uint8_t *marks = data->host->alloc(data->host, n, 64);
    if (marks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu documents", n);
    memset(marks, 0, n);
    status = choose(marks, data, wanted, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_TRAIN, &data->made.corpora[0], marks, 0, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_VALIDATION, &data->made.corpora[0], marks, 1, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_ALL, &data->made.corpora[0], NULL, 0, err);
    data->host->release(data->host, marks);
    return status;
}

/* Creates the sequences of all splits. Fails if a requested split would be empty. */
static weft_status make_rows(weft_data *data, weft_error *err) {
    const double wanted = data_validation_number(data->config.validation);
    weft_status status = read_corpus(&data->made.corpora[0], data, "path", data->config.path, err);
    if (status != WEFT_OK) return status;
    if (wanted > 0.0) return split_by_number(data, wanted, err);
    status = pack(data, WEFT_SPLIT_TRAIN, &data->made.corpora[0], NULL, 0, err);
    if (status != WEFT_OK || isnan(wanted)) return status;
    status = read_corpus(&data->made.corpora[1], data, "validation", data->config.validation, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_VALIDATION, &data->made.corpora[1], NULL, 0, err);
    return status;
}

static weft_status make(void *context, weft_error *err) {
    weft_data *data = context;
    const weft_status status = make_rows(data, err);
    if (status == WEFT_OK) data->made.stream.fingerprint = fingerprint(data);
    return status;
}

static void text_destroy(weft_data *data) {
    const weft_host *host = data->host;
    data_made_free(&data->made, host);
    host->release(host, data);
}

static weft_status text_create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    weft_data *data = host->alloc(host, sizeof *data, 64);
    const data_maker maker = {host, data == NULL ? NULL : &data->made, NULL, 0, make, data};
    if (data == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the data");
    memset(data, 0, sizeof *data);
    data->host = host;
    data->job = job;
    data->config = *(const text_config *)config;
    data->made.stream.seed = job->seed;
    data->made.stream.n_lengths =
        data_lengths_read(data->made.stream.lengths, data->config.lengths, data->config.context);
    status = data_context_judge(data->config.context, job, err);
    if (status == WEFT_OK) status = data_made_share(&maker, job, err);
    if (status == WEFT_OK) *out = data;
    else text_destroy(data);
    return status;
}

static void text_info(const weft_data *data, weft_data_info *out) {
    out->n_lengths = data->made.stream.n_lengths;
    memcpy(out->lengths, data->made.stream.lengths, sizeof data->made.stream.lengths);
    out->fingerprint = data->made.stream.fingerprint;
    if (WEFT_HAS(out, memory)) out->memory = data_made_bytes(&data->made);
    if (WEFT_HAS(out, peak)) out->peak = data->made.peak;
}

static void text_split_info(const weft_data *data, int32_t split, weft_split_info *out) {
    data_stream_split_info(&data->made.stream, split, out);
}

static weft_status text_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                              weft_error *err) {
    return data_stream_shape(&data->made.stream, out, request, err);
}

static weft_status text_micro_batch(const weft_data *data, weft_micro_batch *out,
                                    const weft_micro_batch_request *request, weft_error *err) {
    return data_stream_micro_batch(&data->made.stream, out, request, err);
}

static const weft_data_plugin text_table = {
    (uint32_t)sizeof(weft_data_plugin),
    0,
    text_create,
    text_destroy,
    text_info,
    text_split_info,
    text_shape,
    text_micro_batch,
    NULL,
};

WEFT_PLUGIN(data, 1, "text", "0.1.0", "Plain text, JSONL and PGN, packed into sequences of isolated documents.",
            text_config, text_validate, text_table)
