/* corpus.c: encodes all conversations in parallel. The result is independent of the assignment to threads. */
#include "instruct.h"

typedef struct task {
    size_t first, n; /* records */
    instruct_ids out;
    data_array lengths; /* int64_t, one per record */
    instruct_counts counts;
    weft_status status;
    weft_error err;
} task;

typedef struct encoding {
    const instruct_encoder *with;
    const instruct_record **records;
    size_t n_records;
    task *tasks;
    size_t n_tasks;
    size_t text; /* bytes of files in memory */
} encoding;

static void run_task(int64_t index, void *context) {
    const encoding *all = context;
    task *t = &all->tasks[index];
    t->err.struct_size = (uint32_t)sizeof t->err;
    t->status = data_array_reserve(&t->lengths, all->with->host, t->n, sizeof(int64_t));
    if (t->status != WEFT_OK) (void)weft_error_set(&t->err, WEFT_E_MEMORY, "no memory for %zu conversations", t->n);
    for (size_t i = 0; i < t->n && t->status == WEFT_OK; i++) {
        const size_t before = t->out.ids.n;
        t->status = instruct_encode(&t->out, &t->counts, all->with, all->records[t->first + i], &t->err);
        ((int64_t *)t->lengths.data)[t->lengths.n++] = (int64_t)(t->out.ids.n - before);
    }
}

/* Splits the records into tasks of about 64 KiB. The split depends only on the records, not on the number of
 * threads. */
static size_t cut_tasks(const encoding *all, task *tasks) {
    size_t n = 0, bytes = 0;
    for (size_t i = 0; i < all->n_records; i++) {
        if (i == 0 || bytes >= 65536) {
            if (tasks != NULL) tasks[n].first = i;
            n++;
            bytes = 0;
        }
        bytes += all->records[i]->n;
        if (tasks != NULL) tasks[n - 1].n = i + 1 - tasks[n - 1].first;
    }
    return n;
}

static void add_counts(instruct_counts *to, const instruct_counts *from) {
    if (to->first_idle == 0 && from->first_idle != 0) to->first_idle = to->records + from->first_idle;
    if (to->first_empty == 0 && from->first_empty != 0) to->first_empty = to->records + from->first_empty;
    to->records += from->records;
    to->answers += from->answers;
    to->ended += from->ended;
    to->cut += from->cut;
    to->cut_tokens += from->cut_tokens;
    to->shortened += from->shortened;
    to->shortened_tokens += from->shortened_tokens;
    to->dropped += from->dropped;
    to->idle += from->idle;
    to->empty += from->empty;
    to->silent += from->silent;
    if (from->ended > 0) to->end_id = from->end_id;
}

/* Releases the text of n records, and returns its bytes. Records of one file follow one another. */
static size_t forget_records(const instruct_record *const *records, size_t n) {
    size_t bytes = 0;
    for (size_t i = 0, first = 0; i < n; i++) {
        const instruct_file *file = records[i]->file;
        bytes += records[i]->n;
        if (i + 1 < n && records[i + 1]->file == file) continue;
        data_array_forget(&file->held, (size_t)(records[first]->bytes - file->bytes),
                          (size_t)(records[i]->bytes - file->bytes) + records[i]->n);
        first = i + 1;
    }
    return bytes;
}

/* Notes the memory before the tasks' ids are copied: text, lists, the ids of all tasks, and a copy of one task's. */
static void note_memory(data_corpus *out, const encoding *all, size_t lists) {
    uint64_t ids = 0, largest = 0;
    for (size_t i = 0; i < all->n_tasks; i++) {
        const size_t n = all->tasks[i].out.ids.n;
        ids += n * (sizeof(int32_t) + 1);
        if (n > largest) largest = n;
    }
    data_peak_raise(&out->peak, data_corpus_bytes(out) + all->text + lists + ids + largest * data_ids_width(&out->ids));
}

/* Appends the results of tasks to the corpus in order. */
static weft_status take_ids(data_corpus *out, instruct_counts *counts, const encoding *all, weft_error *err) {
    const weft_host *host = all->with->host;
    for (size_t i = 0; i < all->n_tasks; i++) {
        task *t = &all->tasks[i];
        data_ids ids = data_ids_empty(all->with->job->vocab_size);
        weft_status status = data_ids_add(&ids, host, t->out.ids.data, t->out.ids.n);
        if (status == WEFT_OK) status = data_corpus_add(out, host, &ids, &t->out.weights, &t->lengths);
        data_array_free(&ids.array, host);
        if (status != WEFT_OK)
            return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu ids", out->ids.array.n + t->out.ids.n);
        data_array_free(&t->out.ids, host);
        data_array_free(&t->out.weights, host);
        data_array_free(&t->lengths, host);
        add_counts(counts, &t->counts);
    }
    return WEFT_OK;
}

/* Runs tasks in groups. This shows progress, stops soon after a bad record, and limits temporary memory to one
 * group. */
static weft_status run_tasks(data_corpus *out, instruct_counts *counts, const encoding *all, weft_error *err) {
    enum { GROUP = 64 };
    const weft_host *host = all->with->host;
    const size_t lists = all->n_records * sizeof *all->records + all->n_tasks * sizeof *all->tasks;
    size_t text = all->text;
    weft_status status = WEFT_OK;
    for (size_t at = 0; at < all->n_tasks && status == WEFT_OK; at += GROUP) {
        encoding part = *all;
        part.tasks += at;
        part.n_tasks = all->n_tasks - at < GROUP ? all->n_tasks - at : GROUP;
        part.text = text;
        host->parallel_for(host, (int64_t)part.n_tasks, run_task, &part);
        for (size_t i = 0; i < part.n_tasks && status == WEFT_OK; i++)
            if (part.tasks[i].status != WEFT_OK)
                status = weft_error_set(err, part.tasks[i].status, "%s", part.tasks[i].err.text);
        if (status == WEFT_OK) {
            const task *last = &part.tasks[part.n_tasks - 1];
            note_memory(out, &part, lists);
            status = take_ids(out, counts, &part, err);
            text -= forget_records(&all->records[part.tasks[0].first], last->first + last->n - part.tasks[0].first);
        }
        if (all->n_tasks > GROUP)
            host->progress(host, "encoding", status == WEFT_OK ? (double)(at + part.n_tasks) : (double)all->n_tasks,
                           (double)all->n_tasks);
    }
    return status;
}

static weft_status list_records(encoding *all, const instruct_file *files, size_t n_files, weft_error *err) {
    const weft_host *host = all->with->host;
    for (size_t f = 0; f < n_files; f++) {
        all->n_records += files[f].records.n;
        all->text += files[f].n;
    }
    all->records = host->alloc(host, all->n_records * sizeof *all->records, 64);
    if (all->records == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu records", all->n_records);
    for (size_t f = 0, at = 0; f < n_files; f++)
        for (size_t i = 0; i < files[f].records.n; i++)
            all->records[at++] = &((const instruct_record *)files[f].records.data)[i];
    all->n_tasks = cut_tasks(all, NULL);
    all->tasks = host->alloc(host, all->n_tasks * sizeof *all->tasks, 64);
    if (all->tasks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu records", all->n_records);
    memset(all->tasks, 0, all->n_tasks * sizeof *all->tasks);
    (void)cut_tasks(all, all->tasks);
    return WEFT_OK;
}

weft_status instruct_corpus_encode(data_corpus *out, instruct_counts *counts, const instruct_encoder *with,
                                   const instruct_file *files, size_t n_files, weft_error *err) {
    encoding all = {.with = with};
    data_corpus corpus = {.ids = data_ids_empty(with->job->vocab_size)};
    const weft_host *host = with->host;
    weft_status status = list_records(&all, files, n_files, err);
    memset(counts, 0, sizeof *counts);
    counts->end_id = -1;
    if (status == WEFT_OK) status = run_tasks(&corpus, counts, &all, err);
    for (size_t i = 0; all.tasks != NULL && i < all.n_tasks; i++) {
        data_array_free(&all.tasks[i].out.ids, host);
        data_array_free(&all.tasks[i].out.weights, host);
        data_array_free(&all.tasks[i].lengths, host);
    }
    host->release(host, all.tasks);
    host->release(host, (void *)(uintptr_t)all.records);
    data_corpus_end(&corpus);
    if (status == WEFT_OK) *out = corpus;
    else data_corpus_free(&corpus, host);
    return status;
}
