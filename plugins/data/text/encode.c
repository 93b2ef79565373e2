/* encode.c: encodes documents in parallel. The result is independent of the assignment to threads. */
#include "text.h"

#include <jansson.h>

/* Documents of one call of a thread. */
typedef struct task {
    size_t first, n;
    data_ids ids;
    data_array lengths; /* int64_t, one per document */
    weft_status status;
    weft_error err;
} task;

typedef struct encoding {
    const weft_host *host;
    const text_config *config;
    const weft_data_job *job;
    const text_source *source;
    data_corpus *corpus;
    task *tasks;
    size_t n_tasks;
    size_t list_bytes; /* of all spans and tasks */
} encoding;

typedef struct document_sink {
    const encoding *all;
    task *task;
    int32_t bad; /* an id outside of the vocabulary, or -1 */
    int has_bad;
} document_sink;

static weft_status put_ids(void *context, const int32_t *ids, size_t n) {
    document_sink *sink = context;
    if (data_ids_add(&sink->task->ids, sink->all->host, ids, n) != WEFT_OK) return WEFT_E_MEMORY;
    for (size_t i = 0; i < n && !sink->has_bad; i++)
        if (ids[i] < 0 || ids[i] >= sink->all->job->vocab_size) {
            sink->bad = ids[i];
            sink->has_bad = 1;
        }
    return WEFT_OK;
}

/* Encodes a document. Adds a message with its location if the tokenizer fails without one. */
static weft_status encode_text(const encoding *all, const weft_ids_sink *sink, const text_span *span, const char *text,
                               size_t n, weft_error *err) {
    const weft_status status = all->job->encode(all->job, sink, text, n, err);
    if (status == WEFT_OK) return WEFT_OK;
    if (err->text[0] == '\0')
        (void)weft_error_set(err, status, "%s",
                             status == WEFT_E_MEMORY ? "no memory for the ids" : "the tokenizer failed");
    (void)weft_error_prefix(err, "%s:%llu: ", all->source->path, (unsigned long long)span->line);
    return status;
}

static weft_status encode_one(const encoding *all, task *t, const text_span *span, weft_error *err) {
    document_sink into = {.all = all, .task = t, .bad = -1};
    const weft_ids_sink sink = {&into, put_ids};
    const char *text = all->source->bytes + span->offset;
    size_t n = span->bytes;
    json_t *holder = NULL;
    weft_status status = WEFT_OK;
    if (all->source->format == FORMAT_JSONL)
        status = text_json_document(&text, &n, &holder, all->source, span, all->config->field, err);
    if (status == WEFT_OK) status = encode_text(all, &sink, span, text, n, err);
    if (status == WEFT_OK && into.has_bad)
        status = weft_error_set(err, WEFT_E_USER,
                                "%s:%llu: the tokenizer gives the id %d, but the model's vocabulary has %lld "
                                "ids: tokenizer and model do not belong together",
                                all->source->path, (unsigned long long)span->line, into.bad,
                                (long long)all->job->vocab_size);
    json_decref(holder);
    return status;
}

static void run_task(int64_t index, void *context) {
    const encoding *all = context;
    task *t = &all->tasks[index];
    const text_span *spans = all->source->spans.data;
    t->err.struct_size = (uint32_t)sizeof t->err;
    t->ids = data_ids_empty(all->job->vocab_size);
    t->status = data_array_reserve(&t->lengths, all->host, t->n, sizeof(int64_t));
    if (t->status != WEFT_OK) (void)weft_error_set(&t->err, WEFT_E_MEMORY, "no memory for %zu documents", t->n);
    for (size_t i = 0; i < t->n && t->status == WEFT_OK; i++) {
        const size_t before = t->ids.array.n;
        t->status = encode_one(all, t, &spans[t->first + i], &t->err);
        ((int64_t *)t->lengths.data)[t->lengths.n++] = (int64_t)(t->ids.array.n - before);
    }
}

/* Splits the documents into tasks of about 64 KiB. The split depends only on the documents, not on the number of
 * threads. */
static size_t cut_tasks(const text_source *source, task *tasks) {
    const text_span *spans = source->spans.data;
    size_t n = 0, bytes = 0;
    for (size_t i = 0; i < source->spans.n; i++) {
        if (i == 0 || bytes >= 65536) {
            if (tasks != NULL) tasks[n].first = i;
            n++;
            bytes = 0;
        }
        bytes += spans[i].bytes;
        if (tasks != NULL) tasks[n - 1].n = i + 1 - tasks[n - 1].first;
    }
    return n;
}

/* Reports the first failure of n tasks in document order. */
static weft_status first_failure(const task *tasks, size_t n, weft_error *err) {
    for (size_t i = 0; i < n; i++)
        if (tasks[i].status != WEFT_OK) return weft_error_set(err, tasks[i].status, "%s", tasks[i].err.text);
    return WEFT_OK;
}

/* Appends the ids of tasks to the corpus in order, and releases the memory of their text. */
static weft_status take_ids(const encoding *all, weft_error *err) {
    const text_span *spans = all->source->spans.data;
    const data_array no_weights = {0};
    const task *end = &all->tasks[all->n_tasks - 1];
    const text_span *first = &spans[all->tasks[0].first], *last = &spans[end->first + end->n - 1];
    size_t largest = 0; /* bytes of ids that are copied */
    for (size_t i = 0; i < all->n_tasks; i++) {
        task *t = &all->tasks[i];
        const size_t bytes = all->corpus->ids.array.n > 0 ? t->ids.array.n * data_ids_width(&t->ids) : 0;
        if (data_corpus_add(all->corpus, all->host, &t->ids, &no_weights, &t->lengths) != WEFT_OK)
            return weft_error_set(err, WEFT_E_MEMORY, "no memory for the ids of %s", all->source->path);
        data_array_free(&t->ids.array, all->host);
        data_array_free(&t->lengths, all->host);
        if (bytes > largest) largest = bytes;
    }
    data_peak_raise(&all->corpus->peak,
                    data_corpus_bytes(all->corpus) + all->source->n - first->offset + largest + all->list_bytes);
    data_array_forget(&all->source->held, first->offset, last->offset + last->bytes);
    return WEFT_OK;
}

/* Runs tasks in groups. This shows progress, stops soon after a bad line, and limits temporary memory to one group. */
static weft_status run_tasks(const encoding *all, weft_error *err) {
    enum { GROUP = 64 };
    weft_status status = WEFT_OK;
    for (size_t at = 0; at < all->n_tasks && status == WEFT_OK; at += GROUP) {
        encoding part = *all;
        size_t done = 0;
        part.tasks += at;
        part.n_tasks = all->n_tasks - at < GROUP ? all->n_tasks - at : GROUP;
        all->host->parallel_for(all->host, (int64_t)part.n_tasks, run_task, &part);
        status = first_failure(part.tasks, part.n_tasks, err);
        if (status == WEFT_OK) status = take_ids(&part, err);
        done = status == WEFT_OK ? at + part.n_tasks : all->n_tasks;
        if (all->n_tasks > GROUP) all->host->progress(all->host, "encoding", (double)done, (double)all->n_tasks);
    }
    return status;
}

weft_status text_corpus_encode(data_corpus *out, const weft_host *host, const text_config *config,
                               const weft_data_job *job, const text_source *source, weft_error *err) {
    data_corpus corpus = {.ids = data_ids_empty(job->vocab_size)};
    encoding all = {.host = host,
                    .config = config,
                    .job = job,
                    .source = source,
                    .corpus = &corpus,
                    .n_tasks = cut_tasks(source, NULL)};
    weft_status status = WEFT_OK;
    all.tasks = host->alloc(host, all.n_tasks * sizeof *all.tasks, 64);
    if (all.tasks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to encode %s", source->path);
    memset(all.tasks, 0, all.n_tasks * sizeof *all.tasks);
    (void)cut_tasks(source, all.tasks);
    all.list_bytes = source->spans.n * sizeof(text_span) + all.n_tasks * sizeof *all.tasks;
    status = run_tasks(&all, err);
    for (size_t i = 0; i < all.n_tasks; i++) {
        data_array_free(&all.tasks[i].ids.array, host);
        data_array_free(&all.tasks[i].lengths, host);
    }
    host->release(host, all.tasks);
    data_corpus_end(&corpus);
    if (status == WEFT_OK) *out = corpus;
    else data_corpus_free(&corpus, host);
    return status;
}
