/* instruct.c: data plugin `instruct`: renders conversations by the model's chat template, and trains on the answers.
 * See docs/instruct.md. */
#include "instruct.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

WEFT_KEYS_TABLE(instruct_config, INSTRUCT_KEYS)

enum { MOST_FILES = 64, N_COUNTS = 8 };

struct weft_data {
    const weft_host *host;
    const weft_data_job *job;
    instruct_config config;
    int64_t now;
    data_made made;
    instruct_counts counts;
    uint64_t list_bytes; /* lists of records, during create */
};

static int64_t read_date(const char *text) {
    struct tm day = {0};
    const char *end = strptime(text, "%Y-%m-%d", &day);
    if (text[0] == '\0') return 0;
    day.tm_hour = 12;
    return end == NULL || *end != '\0' ? -1 : (int64_t)mktime(&day);
}

int instruct_list_has(const char *list, const char *name, size_t n) {
    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, name, n) == 0) return 1;
        at += length + (at[length] == ',');
    }
    return 0;
}

static weft_status instruct_validate(const void *config, weft_error *err) {
    const instruct_config *keys = config;
    int32_t lengths[WEFT_MAX_LENGTHS];
    const char *comma = strchr(keys->columns, ',');
    if (keys->path[0] == '\0')
        return weft_error_set(err, WEFT_E_USER, "path is empty. Allowed: a file of JSON, JSONL, CSV or TSV");
    if (keys->columns[0] != '\0' && (comma == NULL || strchr(comma + 1, ',') != NULL))
        return weft_error_set(err, WEFT_E_USER, "columns = %s is invalid. Allowed: two names, QUESTION, ANSWER",
                              keys->columns);
    if (read_date(keys->date) < 0)
        return weft_error_set(err, WEFT_E_USER, "date = %s is invalid. Allowed: a date as 2026-01-31", keys->date);
    if (keys->group_by_length > 0 && keys->packing)
        return weft_error_set(err, WEFT_E_USER,
                              "group_by_length = %lld requires packing = no: packed sequences have similar lengths",
                              (long long)keys->group_by_length);
    if (data_lengths_read(lengths, keys->lengths, keys->context) == 0)
        return weft_error_set(err, WEFT_E_USER,
                              "lengths = %s is not possible: give at most %d whole numbers, each larger than the one "
                              "before and smaller than context = %lld",
                              keys->lengths, WEFT_MAX_LENGTHS - 1, (long long)keys->context);
    if (data_validation_holds(keys->validation)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "validation = %s is not possible: give none, a fraction between 0 and 1, a whole number of "
                          "conversations, or a file",
                          keys->validation);
}

static int is_useful(const data_corpus *corpus, size_t d) {
    for (int64_t i = data_corpus_start(corpus, d) + 1; i < data_corpus_start(corpus, d + 1); i++)
        if (data_corpus_is_target(corpus, i)) return 1;
    return 0;
}

static char *copy_text(const weft_host *host, const char *text, size_t n) {
    char *out = host->alloc(host, n + 1, 16);
    if (out == NULL) return NULL;
    memcpy(out, text, n);
    out[n] = '\0';
    return out;
}

/* Opens an entry of `files`: "/data/b.jsonl:0.5". */
static weft_status open_listed(instruct_file *out, const weft_data *data, const char *item, size_t n, weft_error *err) {
    const char *colon = memrchr(item, ':', n);
    char *end = NULL, *path = NULL;
    double weight = 1.0;
    if (colon != NULL) {
        weight = strtod(colon + 1, &end);
        if (end != item + n || !(weight > 0.0 && weight <= 1000.0))
            return weft_error_set(err, WEFT_E_USER,
                                  "[data] files: %.*s has no weight between 0 and 1000 after its colon", (int)n, item);
        n = (size_t)(colon - item);
    }
    path = copy_text(data->host, item, n);
    if (path == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a file");
    out->weight = weight;
    return instruct_file_open(out, data->host, &data->config, "files", path, err);
}

static weft_status open_files(instruct_file *files, size_t *n, const weft_data *data, weft_error *err) {
    char *path = copy_text(data->host, data->config.path, strlen(data->config.path));
    weft_status status = WEFT_OK;
    if (path == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a file");
    *n = 1;
    files[0].weight = data->config.weight;
    status = instruct_file_open(&files[0], data->host, &data->config, "path", path, err);
    for (const char *at = data->config.files; *at != '\0' && status == WEFT_OK;) {
        const size_t length = strcspn(at, ",");
        if (*n == MOST_FILES)
            return weft_error_set(err, WEFT_E_USER, "[data] files has more than %d entries", MOST_FILES - 1);
        status = open_listed(&files[(*n)++], data, at, length, err);
        at += length + (at[length] == ',');
    }
    return status;
}

static weft_status put_text(void *context, const char *bytes, size_t n) {
    char *out = context;
    const size_t used = strlen(out);
    if (used + n >= 64) return WEFT_OK;
    memcpy(out + used, bytes, n);
    out[used + n] = '\0';
    return WEFT_OK;
}

/* Logs the end token in the loss, or warns if there is no end token: a model that never ends its answers is the most
 * common error. */
static void tell_end(const weft_data *data, const instruct_counts *counts) {
    char name[64] = "";
    const weft_text_sink sink = {name, put_text};
    weft_error err = WEFT_ERROR_INIT;
    const unsigned long long ended = counts->ended, answers = counts->answers;
    if (answers == 0) return;
    if (ended == 0) {
        weft_log(data->host, WEFT_LOG_WARN,
                 "no special token of this tokenizer ends the answers of this template: an end that is text is "
                 "trained with the answer, regardless of train_end");
        return;
    }
    (void)data->job->decode(data->job, &sink, &counts->end_id, 1, WEFT_DECODE_KEEP_SPECIAL, &err);
    weft_log(data->host, WEFT_LOG_INFO, "the end token %s (id %d) ends %llu of %llu answers and %s", name,
             counts->end_id, ended, answers, data->config.train_end ? "is trained" : "is not trained (train_end = no)");
}

static void tell_cuts(const weft_data *data, const char *path, const instruct_counts *counts) {
    const unsigned long long all = counts->records;
    if (counts->cut > 0)
        weft_log(data->host, WEFT_LOG_WARN,
                 "%s: %llu of %llu conversations are longer than context = %lld: %llu ids at their front are removed",
                 path, (unsigned long long)counts->cut, all, (long long)data->config.context,
                 (unsigned long long)counts->cut_tokens);
    if (counts->shortened > 0)
        weft_log(data->host, WEFT_LOG_WARN,
                 "%s: %llu answers are longer than context = %lld: %llu ids at their end are removed", path,
                 (unsigned long long)counts->shortened, (long long)data->config.context,
                 (unsigned long long)counts->shortened_tokens);
    if (counts->dropped > 0)
        weft_log(data->host, WEFT_LOG_WARN,
                 "%s: %llu of %llu conversations are longer than context = %lld and are dropped", path,
                 (unsigned long long)counts->dropped, all, (long long)data->config.context);
}

/* Returns record n of all files, from 1. */
static const instruct_record *nth_record(const instruct_file *files, uint64_t n) {
    for (n--; n >= files->records.n; files++) n -= files->records.n;
    return &((const instruct_record *)files->records.data)[n];
}

static void tell_empty(const weft_data *data, const instruct_file *files, const instruct_counts *counts) {
    const instruct_record *first = counts->empty == 0 ? NULL : nth_record(files, counts->first_empty);
    if (first != NULL)
        weft_log(data->host, WEFT_LOG_WARN,
                 "%llu of %llu conversations have an empty answer, of which %s is trained; the first at %s:%llu",
                 (unsigned long long)counts->empty, (unsigned long long)counts->records,
                 data->config.train_end ? "only the end token" : "no token", first->file->path,
                 (unsigned long long)first->line);
}

static weft_status judge_targets(const weft_data *data, const char *key, const char *path, const instruct_file *files,
                                 const instruct_counts *counts, weft_error *err) {
    const instruct_record *first = counts->idle == 0 ? NULL : nth_record(files, counts->first_idle);
    if (counts->silent == counts->records)
        return weft_error_set(err, WEFT_E_DATA,
                              "[data] %s = %s has no target: the answers of all %llu conversations are "
                              "empty",
                              key, path, (unsigned long long)counts->records);
    if (counts->idle + counts->dropped == counts->records)
        return weft_error_set(err, WEFT_E_DATA,
                              "[data] %s = %s has no target: none of its %llu conversations has an answer with a "
                              "target (%llu were too long and dropped)",
                              key, path, (unsigned long long)counts->records, (unsigned long long)counts->dropped);
    if (first != NULL)
        weft_log(data->host, WEFT_LOG_WARN,
                 "%llu of %llu conversations have no target and are dropped, the first at %s:%llu",
                 (unsigned long long)counts->idle, (unsigned long long)counts->records, first->file->path,
                 (unsigned long long)first->line);
    return WEFT_OK;
}

static weft_status encode_files(data_corpus *out, weft_data *data, const instruct_file *files, size_t n,
                                const char *key, const char *path, weft_error *err) {
    const instruct_encoder with = {data->host, &data->config, data->job, data->now};
    instruct_counts counts;
    weft_status status = WEFT_OK;
    uint64_t text = 0;
    for (size_t f = 0; f < n; f++) {
        text += files[f].n;
        data->list_bytes += files[f].records.n * sizeof(instruct_record);
    }
    data_made_note(&data->made, text + data->list_bytes);
    status = instruct_corpus_encode(out, &counts, &with, files, n, err);
    if (status != WEFT_OK) return status;
    data_made_note(&data->made, out->peak - data_corpus_bytes(out) + data->list_bytes);
    status = judge_targets(data, key, path, files, &counts, err);
    if (status != WEFT_OK) return status;
    tell_cuts(data, path, &counts);
    tell_empty(data, files, &counts);
    if (strcmp(key, "path") == 0) data->counts = counts;
    if (strcmp(key, "path") == 0) tell_end(data, &counts);
    return WEFT_OK;
}

/* Returns how often an epoch contains document d: the integer part of the weight, plus one with the probability of the
 * fraction. */
static size_t times(const weft_data *data, double weight, size_t d) {
    const weft_random4 r = weft_random(data->made.stream.seed, WEFT_RANDOM_SPLIT, 1, d);
    const double part = (double)r.v[0] / 4294967296.0;
    return (size_t)weight + (part < weight - floor(weight) ? 1u : 0u);
}

/* Lists documents with marks[d] == mark in order, repeated by the weight of their file. */
static size_t list_documents(size_t *out, const weft_data *data, const data_corpus *corpus, const uint8_t *marks,
                             uint8_t mark, const instruct_file *files) {
    size_t n = 0, f = 0, in_file = 0;
    for (size_t d = 0; d < corpus->n_documents; d++, in_file++) {
        size_t repeat = 1;
        if (files != NULL && in_file == files[f].records.n) in_file = 0, f++;
        if ((marks != NULL && marks[d] != mark) || !is_useful(corpus, d)) continue;
        if (files != NULL) repeat = times(data, files[f].weight, d);
        for (size_t i = 0; i < repeat; i++, n++)
            if (out != NULL) out[n] = d;
    }
    return n;
}

static weft_status pack(weft_data *data, int32_t split, const data_corpus *corpus, const uint8_t *marks, uint8_t mark,
                        const instruct_file *files, weft_error *err) {
    const data_packing packing = data->config.packing               ? DATA_BEST_FIT
                                 : data->config.group_by_length > 0 ? DATA_BY_LENGTH
                                                                    : DATA_ALONE;
    const size_t n = list_documents(NULL, data, corpus, marks, mark, files);
    weft_status status = WEFT_OK;
    size_t *documents = data->host->alloc(data->host, (n + 1) * sizeof *documents, 64);
    if (documents == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu conversations", n);
    (void)list_documents(documents, data, corpus, marks, mark, files);
    status = n > 0 ? data_rows_pack(&data->made.stream.rows[split], data->host, corpus, documents, n,
                                    data->config.context, packing, err)
                   : weft_error_set(err, WEFT_E_USER,
                                    "[data] weight leaves no conversation for training. Fix: set a larger weight");
    data->host->release(data->host, documents);
    data_made_note(&data->made, data->made.stream.rows[split].temporary + data->list_bytes);
    return status;
}

static weft_status choose(uint8_t *marks, const weft_data *data, double wanted, weft_error *err) {
    const data_corpus *corpus = &data->made.corpora[0];
    size_t n = 0;
    weft_status status = WEFT_OK;
    size_t *documents = data->host->alloc(data->host, corpus->n_documents * sizeof *documents, 64);
    if (documents == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu conversations", corpus->n_documents);
    n = list_documents(documents, data, corpus, NULL, 0, NULL);
    status = data_split_choose(marks, data->host, documents, n, wanted, data->made.stream.seed, err);
    data->host->release(data->host, documents);
    return status;
}

static weft_status split_by_number(weft_data *data, double wanted, const instruct_file *files, weft_error *err) {
    const size_t n = data->made.corpora[0].n_documents;
    weft_status status = WEFT_OK;
    uint8_t *marks = data->host->alloc(data->host, n, 64);
    if (marks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu conversations", n);
    memset(marks, 0, n);
    status = choose(marks, data, wanted, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_TRAIN, &data->made.corpora[0], marks, 0, files, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_VALIDATION, &data->made.corpora[0], marks, 1, NULL, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_ALL, &data->made.corpora[0], NULL, 0, NULL, err);
    data->host->release(data->host, marks);
    return status;
}

static weft_status read_validation(weft_data *data, weft_error *err) {
    instruct_file file = {0};
    char *path = copy_text(data->host, data->config.validation, strlen(data->config.validation));
    weft_status status = path == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a file")
                                      : instruct_file_open(&file, data->host, &data->config, "validation", path, err);
    if (status == WEFT_OK)
        status = encode_files(&data->made.corpora[1], data, &file, 1, "validation", data->config.validation, err);
    if (status == WEFT_OK) status = pack(data, WEFT_SPLIT_VALIDATION, &data->made.corpora[1], NULL, 0, NULL, err);
    instruct_file_close(&file, data->host);
    return status;
}

static weft_status make_rows(weft_data *data, weft_error *err) {
    const double wanted = data_validation_number(data->config.validation);
    instruct_file files[MOST_FILES];
    size_t n = 0;
    weft_status status = WEFT_OK;
    memset(files, 0, sizeof files);
    status = open_files(files, &n, data, err);
    if (status == WEFT_OK)
        status = encode_files(&data->made.corpora[0], data, files, n, "path", data->config.path, err);
    if (status == WEFT_OK && wanted > 0.0) status = split_by_number(data, wanted, files, err);
    else if (status == WEFT_OK) {
        status = pack(data, WEFT_SPLIT_TRAIN, &data->made.corpora[0], NULL, 0, files, err);
        if (status == WEFT_OK && !isnan(wanted)) status = read_validation(data, err);
    }
    for (size_t i = 0; i < MOST_FILES; i++) instruct_file_close(&files[i], data->host);
    return status;
}

/* Hashes the sequences, independent of file names. */
static uint64_t fingerprint(const weft_data *data) {
    uint64_t hash = data_mix(data_mix(2, data->made.stream.seed), (uint64_t)data->config.context);
    hash = data_mix(hash, (uint64_t)data->made.stream.group);
    hash = data_mix_corpus(hash, &data->made.corpora[0]);
    hash = data_mix_corpus(hash, &data->made.corpora[1]);
    for (int32_t i = 0; i + 1 < data->made.stream.n_lengths; i++)
        hash = data_mix(hash, (uint64_t)data->made.stream.lengths[i]);
    hash = data_mix_rows(hash, &data->made.stream.rows[WEFT_SPLIT_TRAIN]);
    return data_mix_rows(hash, &data->made.stream.rows[WEFT_SPLIT_VALIDATION]);
}

static weft_status make(void *context, weft_error *err) {
    weft_data *data = context;
    const weft_status status = make_rows(data, err);
    if (status == WEFT_OK) data->made.stream.fingerprint = fingerprint(data);
    return status;
}

static void instruct_destroy(weft_data *data) {
    const weft_host *host = data->host;
    data_made_free(&data->made, host);
    host->release(host, data);
}

static weft_status judge(const weft_data *data, const weft_data_job *job, weft_error *err) {
    const char *named = strcmp(data->config.template, "own") == 0 ? NULL : data->config.template;
    weft_status status = WEFT_OK;
    if (!WEFT_HAS(job, tokenizer))
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "this host does not support chat templates for data plugins");
    status = data_context_judge(data->config.context, job, err);
    if (status != WEFT_OK) return status;
    status = job->check_chat(job, named, err);
    if (status != WEFT_OK) (void)weft_error_prefix(err, "[data] template = %s: ", data->config.template);
    return status;
}

static weft_status instruct_create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                                   weft_error *err) {
    weft_status status = WEFT_OK;
    weft_data *data = host->alloc(host, sizeof *data, 64);
    const data_maker maker = {
        host, data == NULL ? NULL : &data->made, data == NULL ? NULL : &data->counts, sizeof data->counts, make, data};
    if (data == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the data");
    memset(data, 0, sizeof *data);
    data->host = host;
    data->job = job;
    data->config = *(const instruct_config *)config;
    data->now = read_date(data->config.date);
    data->made.stream.seed = job->seed;
    data->made.stream.group = data->config.group_by_length;
    data->made.stream.n_lengths =
        data_lengths_read(data->made.stream.lengths, data->config.lengths, data->config.context);
    status = judge(data, job, err);
    if (status == WEFT_OK) status = data_made_share(&maker, job, err);
    if (status == WEFT_OK) *out = data;
    else instruct_destroy(data);
    return status;
}

static void instruct_info(const weft_data *data, weft_data_info *out) {
    out->n_lengths = data->made.stream.n_lengths;
    memcpy(out->lengths, data->made.stream.lengths, sizeof data->made.stream.lengths);
    out->fingerprint = data->made.stream.fingerprint;
    if (WEFT_HAS(out, memory)) out->memory = data_made_bytes(&data->made);
    if (WEFT_HAS(out, peak)) out->peak = data->made.peak;
}

static void instruct_split_info(const weft_data *data, int32_t split, weft_split_info *out) {
    data_stream_split_info(&data->made.stream, split, out);
}

static weft_status instruct_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                                  weft_error *err) {
    return data_stream_shape(&data->made.stream, out, request, err);
}

static weft_status instruct_micro_batch(const weft_data *data, weft_micro_batch *out,
                                        const weft_micro_batch_request *request, weft_error *err) {
    return data_stream_micro_batch(&data->made.stream, out, request, err);
}

static const char *get_count(const weft_data *data, uint32_t i, uint64_t *out) {
    static const char *const names[N_COUNTS] = {"conversations read",
                                                "of them without a target",
                                                "of them with an empty answer",
                                                "of them too long, left out",
                                                "of them too long, cut at their front",
                                                "ids cut off there",
                                                "answers too long, cut at their end",
                                                "ids cut off there"};
    const instruct_counts *c = &data->counts;
    const uint64_t values[N_COUNTS] = {c->records, c->idle,       c->empty,     c->dropped,
                                       c->cut,     c->cut_tokens, c->shortened, c->shortened_tokens};
    if (i >= N_COUNTS) return NULL;
    *out = values[i];
    return names[i];
}

static const void *instruct_extension(const weft_data *data, const char *id) {
    static const weft_data_counts counts = {(uint32_t)sizeof counts, 0, get_count};
    (void)data;
    return strcmp(id, WEFT_DATA_COUNTS) == 0 ? &counts : NULL;
}

static const weft_data_plugin instruct_table = {
    (uint32_t)sizeof(weft_data_plugin),
    0,
    instruct_create,
    instruct_destroy,
    instruct_info,
    instruct_split_info,
    instruct_shape,
    instruct_micro_batch,
    instruct_extension,
};

WEFT_PLUGIN(data, 1, "instruct", "0.1.0", "Conversations by the model's chat template, trained on the answers.",
            instruct_config, instruct_validate, instruct_table)
