/* host/conform/data_rules.c: what data have to keep to. They are made with a tokenizer of bytes. */
#include "conform/rule.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"
#include "conform/later.h"
#include "conform/other_key.h"
#include "conform/wrong_files.h"
#include "plugin/call.h"
#include "plugin/enter.h"
#include "session/judge_data.h"
#include "step/judge_leaf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/random.h>

enum {
    VOCABULARY = 258,
    BYTES_BOS = 256,
    BYTES_EOS = 257,
    MOST_CONTEXT = 1 << 16,
    REQUESTS = 60,
    MOST_ROWS = 5,
    MOST_TEXT = 1 << 26,
    THREADS = 4
};

/* ---- a tokenizer of bytes ---- */

static weft_status encode_with(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                               uint32_t flags, weft_error *err) {
    const int32_t bos = BYTES_BOS, eos = BYTES_EOS;
    weft_status status = (flags & WEFT_ENCODE_BOS) != 0 ? sink->put(sink->context, &bos, 1) : WEFT_OK;
    (void)job;
    (void)err;
    for (size_t i = 0; i < bytes && status == WEFT_OK; i++) {
        const int32_t id = (unsigned char)text[i];
        status = sink->put(sink->context, &id, 1);
    }
    return status == WEFT_OK && (flags & WEFT_ENCODE_EOS) != 0 ? sink->put(sink->context, &eos, 1) : status;
}

static weft_status encode(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                          weft_error *err) {
    return encode_with(job, sink, text, bytes, WEFT_ENCODE_BOS | WEFT_ENCODE_EOS, err);
}

static weft_status decode(const weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err) {
    weft_status status = WEFT_OK;
    (void)job;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        const char byte = (char)(unsigned char)ids[i];
        if (ids[i] >= 0 && ids[i] < BYTES_BOS) status = sink->put(sink->context, &byte, 1);
    }
    return status;
}

static weft_status check_chat(const weft_data_job *job, const char *named, weft_error *err) {
    (void)job;
    (void)named;
    (void)err;
    return WEFT_OK;
}

/* Each turn as its own bytes, answers marked; enough to make rows of. */
static weft_status chat(const weft_data_job *job, const weft_chat_sink *sink, const weft_chat *from, weft_error *err) {
    weft_status status = WEFT_OK;
    (void)job;
    (void)err;
    for (uint64_t m = 0; m < from->n_messages && status == WEFT_OK; m++) {
        const char *at = (const char *)from->messages + m * from->stride;
        const weft_chat_message *message = (const weft_chat_message *)(const void *)at;
        const bool is_answer = message->role != NULL && strcmp(message->role, "assistant") == 0;
        for (uint64_t i = 0; i <= message->content_bytes && status == WEFT_OK; i++) {
            const int32_t id = i == message->content_bytes ? BYTES_EOS : (unsigned char)message->content[i];
            const int32_t answer = is_answer ? (int32_t)(m / 2) : -1;
            status = sink->put(sink->context, &id, &answer, 1);
        }
    }
    return status;
}

static int32_t special_id(const weft_data_job *job, const char *name, size_t bytes) {
    (void)job;
    if (bytes == 3 && memcmp(name, "<s>", 3) == 0) return BYTES_BOS;
    return bytes == 4 && memcmp(name, "</s>", 4) == 0 ? BYTES_EOS : -1;
}

static const weft_data_job *bytes_job(void) {
    static weft_tokenizer_info info;
    static weft_data_job job;
    info.struct_size = (uint32_t)sizeof info;
    info.vocab_size = VOCABULARY;
    info.bos = BYTES_BOS;
    info.eos = BYTES_EOS;
    info.unk = info.pad = -1;
    info.auto_bos = info.auto_eos = 1;
    job.struct_size = (uint32_t)sizeof job;
    job.seed = 7;
    job.vocab_size = VOCABULARY;
    job.max_context = MOST_CONTEXT;
    job.encode = encode;
    job.encode_with = encode_with;
    job.decode = decode;
    job.chat = chat;
    job.check_chat = check_chat;
    job.special_id = special_id;
    job.tokenizer = &info;
    return &job;
}

static const weft_data_job *job_of_another_seed(void) {
    static weft_data_job job;
    job = *bytes_job();
    job.seed++;
    return &job;
}

/* ---- an instance ---- */

typedef struct instance {
    const weft_data_plugin *table;
    weft_data *made;
    weft_data_info info;
    weft_split_info splits[3];
    bool refused; /* its create has failed */
} instance;

static void instance_close(instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_TELL(self->table, destroy, self->made);
    self->made = NULL;
}

static weft_status instance_open_for(instance *self, const weft_subject *subject, uint8_t poison,
                                     const weft_data_job *job, weft_error *err) {
    weft_split_info *infos[3];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_subject_table(subject, data);
    weft_plugin_call_begin(&call, subject->loaded, "create");
    status = self->table->create(&self->made, weft_subject_host(poison), subject->config, job, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    self->refused = status != WEFT_OK;
    if (status == WEFT_E_USER || status == WEFT_E_DATA) return WEFT_E_UNSUPPORTED; /* another file is what it needs */
    if (status != WEFT_OK) return status;
    self->info.struct_size = (uint32_t)sizeof self->info;
    WEFT_PLUGIN_TELL(self->table, info, self->made, &self->info);
    for (int32_t s = 0; s < 3; s++) {
        infos[s] = &self->splits[s];
        self->splits[s].struct_size = (uint32_t)sizeof self->splits[s];
        WEFT_PLUGIN_TELL(self->table, split_info, self->made, s, &self->splits[s]);
    }
    return weft_data_judge(&self->info, infos, MOST_CONTEXT, true, err);
}

static weft_status instance_open(instance *self, const weft_subject *subject, uint8_t poison, weft_error *err) {
    return instance_open_for(self, subject, poison, bytes_job(), err);
}

static int32_t longest(const instance *self) {
    return self->info.lengths[self->info.n_lengths - 1];
}

/* ---- leaves ---- */

static void leaf_free(weft_leaf *leaf) {
    free(leaf->ids);
    free(leaf->targets);
    free(leaf->weights);
    free(leaf->starts);
    free(leaf->positions);
    memset(leaf, 0, sizeof *leaf);
}

static weft_status leaf_make(weft_leaf *leaf, const instance *self, weft_error *err) {
    const size_t n = (size_t)MOST_ROWS * (size_t)longest(self);
    memset(leaf, 0, sizeof *leaf);
    leaf->struct_size = (uint32_t)sizeof *leaf;
    leaf->ids = malloc(n * sizeof *leaf->ids);
    leaf->targets = malloc(n * sizeof *leaf->targets);
    leaf->weights = malloc(n * sizeof *leaf->weights);
    leaf->starts = malloc(n * sizeof *leaf->starts);
    leaf->positions = malloc(n * sizeof *leaf->positions);
    if (leaf->ids != NULL && leaf->targets != NULL && leaf->weights != NULL && leaf->starts != NULL &&
        leaf->positions != NULL)
        return WEFT_OK;
    leaf_free(leaf);
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for a leaf");
}

/* The leaf of a request, judged as in a run. */
static weft_status take(weft_leaf *leaf, const instance *self, const weft_leaf_request *request, weft_error *err) {
    const weft_leaf_bounds bounds = {VOCABULARY, MOST_CONTEXT, self->info.lengths, self->info.n_lengths};
    const size_t n = (size_t)MOST_ROWS * (size_t)longest(self);
    weft_leaf asked;
    weft_status status = WEFT_OK;
    memset(leaf->ids, WEFT_LEAF_POISON, n * sizeof *leaf->ids);
    memset(leaf->targets, WEFT_LEAF_POISON, n * sizeof *leaf->targets);
    memset(leaf->weights, WEFT_LEAF_POISON, n * sizeof *leaf->weights);
    memset(leaf->starts, WEFT_LEAF_POISON, n * sizeof *leaf->starts);
    memset(leaf->positions, WEFT_LEAF_POISON, n * sizeof *leaf->positions);
    leaf->rows = leaf->length = -1;
    leaf->n_targets = -1;
    WEFT_PLUGIN_CALL(status, self->table, shape, err, self->made, leaf, request);
    if (status == WEFT_OK) status = weft_leaf_judge_shape(leaf, request, &bounds, err);
    asked = *leaf;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->table, leaf, err, self->made, leaf, request);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "it fails without a sentence");
    return status == WEFT_OK ? weft_leaf_judge(leaf, &asked, request, &bounds, err) : status;
}

static weft_leaf_request drawn_request(const instance *self, uint32_t number) {
    const weft_random4 r = weft_random(number, WEFT_RANDOM_SAMPLE, 3, 0);
    const int32_t split = number % 4 == 2 ? WEFT_SPLIT_VALIDATION : number % 4 == 3 ? WEFT_SPLIT_ALL : WEFT_SPLIT_TRAIN;
    const uint64_t rows = self->splits[split].rows;
    const bool is_far = split == WEFT_SPLIT_TRAIN && number % 5 == 4;
    const uint64_t first = is_far ? rows * 1000003u + r.v[1] % 1000u
                                  : r.v[1] % ((split == WEFT_SPLIT_TRAIN ? 3 : 1) * rows + 1);
    const weft_leaf_request request = {(uint32_t)sizeof request, 0, split, 1 + (int32_t)(r.v[0] % MOST_ROWS), first};
    return request;
}

/* Row r of a leaf against row q of another; the shorter one is padded. */
static bool same_row(const weft_leaf *a, int32_t r, const weft_leaf *b, int32_t q) {
    const int32_t n = a->length < b->length ? a->length : b->length;
    const int32_t i = r * a->length, k = q * b->length;
    for (int32_t t = 0; t < n; t++)
        if (a->ids[i + t] != b->ids[k + t] || a->targets[i + t] != b->targets[k + t] ||
            memcmp(&a->weights[i + t], &b->weights[k + t], sizeof(float)) != 0 ||
            a->starts[i + t] != b->starts[k + t] || a->positions[i + t] != b->positions[k + t])
            return false;
    return true;
}

static bool same_leaf(const weft_leaf *a, const weft_leaf *b) {
    if (a->rows != b->rows || a->length != b->length || a->n_targets != b->n_targets) return false;
    for (int32_t r = 0; r < a->rows; r++)
        if (!same_row(a, r, b, r)) return false;
    return true;
}

typedef struct desk {
    instance self, other;
    weft_leaf one, two;
} desk;

static weft_status desk_open(desk *d, const weft_subject *subject, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(d, 0, sizeof *d);
    status = instance_open(&d->self, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&d->other, subject, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = leaf_make(&d->one, &d->self, err);
    return status == WEFT_OK ? leaf_make(&d->two, &d->self, err) : status;
}

static void desk_close(desk *d) {
    leaf_free(&d->one);
    leaf_free(&d->two);
    instance_close(&d->self);
    instance_close(&d->other);
}

typedef weft_status (*on_request)(desk *d, const weft_leaf_request *request, weft_error *err);

static weft_status each_request_of(desk *d, on_request holds, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK; i++) {
        const weft_leaf_request request = drawn_request(&d->self, i);
        weft_subject_asks("rows %llu and %d further ones of split %d", (unsigned long long)request.first_row,
                          (int)request.rows - 1, (int)request.split);
        status = holds(d, &request, err);
        if (status != WEFT_OK)
            (void)weft_error_prefix(err, "rows %llu and %d further ones: ", (unsigned long long)request.first_row,
                                    (int)request.rows - 1);
    }
    return status;
}

static weft_status each_request(const weft_subject *subject, on_request holds, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, subject, err);
    if (status == WEFT_OK) status = each_request_of(&d, holds, err);
    desk_close(&d);
    return status;
}

/* ---- the rules ---- */

static weft_status made_alike(const desk *d, weft_error *err) {
    if (d->self.info.fingerprint == d->other.info.fingerprint &&
        memcmp(d->self.splits, d->other.splits, sizeof d->self.splits) == 0)
        return WEFT_OK;
    return WEFT_BROKEN(err, "the same files and keys have another fingerprint, or other counts, in a second instance");
}

/* ---- beside one with other keys ---- */

static weft_status open_any(void *made, const weft_subject *subject, weft_error *err) {
    return instance_open(made, subject, WEFT_POISON_ONE, err);
}

static void close_any(void *made) {
    instance_close(made);
}

static void add_leaf(weft_answer *to, const weft_leaf *leaf) {
    const size_t n = (size_t)leaf->rows * (size_t)leaf->length;
    weft_answer_add(to, &leaf->length, sizeof leaf->length);
    weft_answer_add(to, leaf->ids, n * sizeof *leaf->ids);
    weft_answer_add(to, leaf->targets, n * sizeof *leaf->targets);
    weft_answer_add(to, leaf->weights, n * sizeof *leaf->weights);
}

static weft_status ask_any(weft_answer *to, void *made, weft_error *err) {
    instance *self = made;
    weft_leaf leaf;
    weft_status status = leaf_make(&leaf, self, err);
    weft_answer_add(to, &self->info.fingerprint, sizeof self->info.fingerprint);
    weft_answer_add(to, self->splits, sizeof self->splits);
    for (uint32_t i = 0; i < 8 && status == WEFT_OK; i++) {
        const weft_leaf_request request = drawn_request(self, i);
        status = take(&leaf, self, &request, err);
        if (status == WEFT_OK) add_leaf(to, &leaf);
    }
    leaf_free(&leaf);
    return status;
}

static weft_status heeds_its_keys(const weft_subject *subject, weft_error *err) {
    const weft_answers answers = {sizeof(instance), open_any, close_any, ask_any};
    return weft_other_keys(subject, &answers, err);
}

static weft_status leaf_holds(desk *d, const weft_leaf_request *request, weft_error *err) {
    return take(&d->one, &d->self, request, err);
}

static weft_status leaf_stays(desk *d, const weft_leaf_request *request, weft_error *err) {
    weft_leaf_request further = *request;
    weft_status status = take(&d->one, &d->self, request, err);
    further.first_row += 7;
    if (status == WEFT_OK) status = take(&d->two, &d->other, request, err);
    if (status == WEFT_OK && !same_leaf(&d->one, &d->two))
        return WEFT_BROKEN(err, "another instance, which was asked the same before, gives another leaf");
    if (status == WEFT_OK) status = take(&d->two, &d->self, &further, err);
    if (status == WEFT_OK) status = take(&d->two, &d->self, request, err);
    if (status == WEFT_OK && !same_leaf(&d->one, &d->two)) return WEFT_BROKEN(err, "asked again it gives another leaf");
    return status;
}

/* A row does not depend on the leaf that it is in. */
static weft_status row_stays(desk *d, const weft_leaf_request *request, weft_error *err) {
    weft_status status = take(&d->one, &d->self, request, err);
    for (int32_t r = 0; r < request->rows && status == WEFT_OK; r++) {
        weft_leaf_request alone = *request;
        alone.rows = 1;
        alone.first_row += (uint64_t)r;
        status = take(&d->two, &d->self, &alone, err);
        if (status == WEFT_OK && !same_row(&d->one, r, &d->two, 0))
            return WEFT_BROKEN(err, "row %d of the leaf is another one than when it is asked for alone", (int)r);
    }
    return status;
}

static weft_status epoch_counts(weft_subject *subject, weft_error *err) {
    desk d;
    uint64_t targets = 0;
    weft_status status = desk_open(&d, subject, err);
    const weft_split_info *split = &d.self.splits[WEFT_SPLIT_TRAIN];
    if (status == WEFT_OK && split->rows > 200000)
        status = weft_error_set(err, WEFT_E_UNSUPPORTED, "an epoch of %llu rows is too long to be counted here",
                                (unsigned long long)split->rows);
    for (uint64_t row = 0; status == WEFT_OK && row < split->rows; row++) {
        const weft_leaf_request request = {(uint32_t)sizeof request, 0, WEFT_SPLIT_TRAIN, 1, row};
        status = take(&d.one, &d.self, &request, err);
        targets += status == WEFT_OK ? (uint64_t)d.one.n_targets : 0;
    }
    if (status == WEFT_OK && targets != split->targets)
        status = WEFT_BROKEN(err, "the rows of an epoch have %llu targets, and split_info says %llu",
                             (unsigned long long)targets, (unsigned long long)split->targets);
    desk_close(&d);
    return status;
}

/* Rows past the end of a split that is read once. */
static weft_status ends_in_padding(weft_subject *subject, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, subject, err);
    for (int32_t split = WEFT_SPLIT_VALIDATION; split <= WEFT_SPLIT_ALL && status == WEFT_OK; split++) {
        const weft_leaf_request request = {(uint32_t)sizeof request, 0, split, 3, d.self.splits[split].rows};
        status = take(&d.one, &d.self, &request, err);
        if (status == WEFT_OK && d.one.n_targets != 0)
            status = WEFT_BROKEN(err, "behind the %llu rows of split %s there are %lld targets",
                                 (unsigned long long)request.first_row, split == WEFT_SPLIT_ALL ? "all" : "validation",
                                 (long long)d.one.n_targets);
    }
    desk_close(&d);
    return status;
}

/* With leaves of each split in between, as a slot may keep what it takes. */
static weft_status come_and_go(weft_subject *subject, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, subject, err);
    for (uint32_t number = 1; number <= 3 && status == WEFT_OK; number++) { /* training, validation, all */
        const weft_leaf_request request = drawn_request(&d.self, number);
        status = take(&d.one, &d.self, &request, err);
    }
    desk_close(&d);
    return status;
}

static weft_status gives_back(weft_subject *subject, weft_error *err) {
    return weft_subject_gives_back(subject, come_and_go, err);
}

/* `one` of the data as they are against `two` of the same in a later host. */
static weft_status leaf_later(desk *d, const weft_leaf_request *request, weft_error *err) {
    weft_status status = take(&d->one, &d->self, request, err);
    if (status != WEFT_OK) return status;
    status = take(&d->two, &d->other, request, err);
    return weft_later_judge(status, status == WEFT_OK && same_leaf(&d->one, &d->two), "leaves", err);
}

static weft_status made_later(desk *d, const weft_subject *subject, weft_error *err) {
    const weft_subject *later = weft_later(subject);
    weft_status status = WEFT_OK;
    if (later == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for data");
    instance_close(&d->other);
    status = instance_open(&d->other, later, WEFT_POISON_ONE, err);
    return weft_later_judge(status,
                            status == WEFT_OK && d->self.info.fingerprint == d->other.info.fingerprint &&
                                memcmp(d->self.splits, d->other.splits, sizeof d->self.splits) == 0 &&
                                longest(&d->self) == longest(&d->other),
                            "counts, lengths or another fingerprint", err);
}

/* ---- several threads ---- */

typedef struct worker {
    pthread_t thread;
    const instance *self;
    const weft_leaf *wanted; /* [REQUESTS] */
    weft_leaf got;
    uint32_t first;
    int differs; /* a request's number + 1; 0: none */
    bool is_done;
} worker;

static void *take_all(void *context) {
    worker *w = context;
    for (uint32_t i = 0; i < 20 * REQUESTS && w->differs == 0; i++) {
        const uint32_t number = (i + w->first) % REQUESTS;
        const weft_leaf_request request = drawn_request(w->self, number);
        weft_error err = WEFT_ERROR_INIT;
        if (take(&w->got, w->self, &request, &err) != WEFT_OK || !same_leaf(&w->got, &w->wanted[number]))
            w->differs = (int)number + 1;
    }
    w->is_done = true;
    return NULL;
}

static weft_status run_workers(const instance *self, const weft_leaf *wanted, weft_error *err) {
    worker workers[THREADS];
    weft_status status = WEFT_OK;
    uint32_t n = 0;
    memset(workers, 0, sizeof workers);
    for (; n < THREADS && status == WEFT_OK; n++) {
        workers[n].self = self;
        workers[n].wanted = wanted;
        workers[n].first = n * 17;
        status = leaf_make(&workers[n].got, self, err);
        if (status != WEFT_OK || pthread_create(&workers[n].thread, NULL, take_all, &workers[n]) != 0) break;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (!workers[i].is_done && status == WEFT_OK) status = WEFT_LOST_THREAD(err, "shape or leaf");
        if (workers[i].differs != 0 && status == WEFT_OK)
            status = WEFT_BROKEN(err, "leaf %d is another one while %d threads ask", workers[i].differs - 1, THREADS);
    }
    for (uint32_t i = 0; i < THREADS; i++) leaf_free(&workers[i].got);
    return status;
}

static weft_status threads_alike(weft_subject *subject, weft_error *err) {
    weft_leaf wanted[REQUESTS];
    instance self;
    weft_status status = instance_open(&self, subject, WEFT_POISON_ONE, err);
    memset(wanted, 0, sizeof wanted);
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK; i++) {
        const weft_leaf_request request = drawn_request(&self, i);
        status = leaf_make(&wanted[i], &self, err);
        if (status == WEFT_OK) status = take(&wanted[i], &self, &request, err);
    }
    weft_subject_asks("by %d threads at once", THREADS);
    if (status == WEFT_OK) status = run_workers(&self, wanted, err);
    for (uint32_t i = 0; i < REQUESTS; i++) leaf_free(&wanted[i]);
    instance_close(&self);
    return status;
}

static weft_status rule_leaf(weft_subject *subject, weft_error *err) {
    return each_request(subject, leaf_holds, err);
}
static weft_status rule_same(weft_subject *subject, weft_error *err) {
    return each_request(subject, leaf_stays, err);
}
static weft_status rule_row(weft_subject *subject, weft_error *err) {
    return each_request(subject, row_stays, err);
}

static weft_status rule_later(weft_subject *subject, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, subject, err);
    if (status == WEFT_OK) status = made_later(&d, subject, err);
    if (status == WEFT_OK) status = each_request_of(&d, leaf_later, err);
    desk_close(&d);
    return status;
}

/* ---- wrong files ---- */

/* Where the keys have the file that is learned from; NULL: no such key. */
static const char **path_in(const weft_subject *subject, void *config) {
    const weft_key *key = weft_subject_key(subject, "path", WEFT_KEY_PATH);
    return key == NULL ? NULL : (const char **)(void *)((char *)config + key->offset);
}

static weft_status judge_refusal(weft_wrong wrong, const char *path, weft_status status, const weft_error *said,
                                 weft_error *err) {
    if (status != WEFT_E_UNSUPPORTED && status != WEFT_E_SYSTEM) /* what instance_open makes of a user's mistake */
        return WEFT_BROKEN(err, "%s as path: %s", weft_wrong_name(wrong), said->text);
    if (strstr(said->text, path) == NULL)
        return WEFT_BROKEN(err, "it refuses %s as path by a sentence that does not name it: %s", weft_wrong_name(wrong),
                           said->text);
    return WEFT_OK;
}

static weft_status read_wrong(const weft_subject *subject, weft_wrong wrong, const char *path, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    instance self;
    const weft_status status = instance_open(&self, subject, WEFT_POISON_ONE, &said);
    const uint64_t targets = status == WEFT_OK ? self.splits[WEFT_SPLIT_TRAIN].targets : 0;
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_subject_refused(status, self.made, weft_wrong_name(wrong), err);
    if (self.refused) self.made = NULL;
    instance_close(&self);
    if (left != WEFT_OK) return left;
    if (status != WEFT_OK) return judge_refusal(wrong, path, status, &said, err);
    if (weft_wrong_is_nothing(wrong) || targets == 0)
        return WEFT_BROKEN(err, "it takes %s as path, with %llu targets to learn", weft_wrong_name(wrong),
                           (unsigned long long)targets);
    return WEFT_OK;
}

/* As another file of the same name, for what goes by its ending. */
static weft_status each_wrong(weft_subject *wrong, const char **path, weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char here[WEFT_PATH_BYTES], made[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (getcwd(here, sizeof here) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    status = weft_path_join(made, here, slash == NULL ? right : slash + 1, err);
    *path = made;
    for (int w = 0; w < WEFT_N_WRONG && status == WEFT_OK; w++) {
        weft_subject_asks("%s as path", weft_wrong_name((weft_wrong)w));
        status = weft_wrong_make(made, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(wrong, (weft_wrong)w, made, err);
    }
    *path = right;
    return status;
}

static weft_status refuses_wrong_files(weft_subject *subject, weft_error *err) {
    const size_t size = subject->loaded->plugin->config_size;
    weft_subject wrong = *subject;
    const char **path = NULL;
    weft_status status = WEFT_OK;
    wrong.config = malloc(size + 8);
    if (wrong.config == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys");
    memcpy(wrong.config, subject->config, size);
    path = path_in(subject, wrong.config);
    if (path == NULL || *path == NULL || (*path)[0] != '/')
        status = WEFT_MOOT(subject, err, "it has no key path that names a file, and need not");
    else status = each_wrong(&wrong, path, err);
    free(wrong.config);
    return status;
}

/* ---- what the fingerprint is of ---- */

static bool same_counts(const instance *a, const instance *b) {
    bool is_same = a->info.n_lengths == b->info.n_lengths;
    for (int32_t i = 0; i < a->info.n_lengths && is_same; i++) is_same = a->info.lengths[i] == b->info.lengths[i];
    for (int32_t s = 0; s < 3 && is_same; s++)
        is_same = a->splits[s].rows == b->splits[s].rows && a->splits[s].targets == b->splits[s].targets;
    return is_same;
}

/* Whether the two instances give other rows, in what is drawn. */
static weft_status find_other_rows(bool *differ, desk *d, weft_error *err) {
    weft_status status = WEFT_OK;
    *differ = !same_counts(&d->self, &d->other);
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK && !*differ; i++) {
        const weft_leaf_request request = drawn_request(&d->self, i);
        status = take(&d->one, &d->self, &request, err);
        if (status == WEFT_OK) status = take(&d->two, &d->other, &request, err);
        *differ = status == WEFT_OK && !same_leaf(&d->one, &d->two);
    }
    return status;
}

static weft_status is_told_apart(desk *d, const char *what, weft_error *err) {
    bool differ = false;
    weft_status status = WEFT_OK;
    if (d->self.info.fingerprint != d->other.info.fingerprint) return WEFT_OK;
    status = find_other_rows(&differ, d, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "with %s: ", what);
    if (!differ) return WEFT_OK;
    return WEFT_BROKEN(err,
                       "with %s it gives other rows and the same fingerprint, %016llx: a resume would go on with them "
                       "and not notice",
                       what, (unsigned long long)d->self.info.fingerprint);
}

/* The file with another letter, the next one behind `from`; *at: where. False: there is none behind it. */
static bool change_letter(char *text, size_t bytes, size_t from, size_t *at) {
    for (*at = from; *at < bytes && (text[*at] < 'a' || text[*at] > 'y'); ++*at) {
    }
    if (*at < bytes) text[*at]++;
    return *at < bytes;
}

/* A text that the data do not take says nothing. */
static weft_status tells_text(desk *d, const weft_subject *changed, const char *what, weft_error *err) {
    weft_error refused = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_subject_asks("%s", what);
    instance_close(&d->other);
    status = instance_open(&d->other, changed, WEFT_POISON_ONE, &refused);
    if (status == WEFT_OK) return is_told_apart(d, what, err);
    if (status == WEFT_E_UNSUPPORTED) return WEFT_OK;
    return weft_error_set(err, status, "with %s: %s", what, refused.text);
}

static weft_status tells_letters(desk *d, const weft_subject *changed, const char *made, char *text, size_t bytes,
                                 weft_error *err) {
    weft_status status = WEFT_OK;
    char what[64];
    size_t at = 0;
    for (size_t eighth = 1; eighth < 8 && status == WEFT_OK; eighth += 3) {
        if (!change_letter(text, bytes, bytes / 8 * eighth, &at)) continue;
        (void)snprintf(what, sizeof what, "another letter at byte %zu", at);
        status = weft_file_replace(made, text, bytes, err);
        if (status == WEFT_OK) status = tells_text(d, changed, what, err);
        text[at]--;
    }
    return status;
}

/* Where the line that ends before `end` begins. */
static size_t line_before(const char *text, size_t end) {
    while (end > 0 && text[end - 1] != '\n') end--;
    return end;
}

/* The last two lines change places, so that their sum stays: no letter of them is another one. */
static weft_status tells_order(desk *d, const weft_subject *changed, const char *made, const char *text, size_t bytes,
                               weft_error *err) {
    const size_t end = bytes > 0 && text[bytes - 1] == '\n' ? bytes - 1 : bytes;
    const size_t last = line_before(text, end);
    const size_t first = last > 0 ? line_before(text, last - 1) : 0;
    char *swapped = NULL;
    weft_status status = WEFT_OK;
    if (last == 0 || first == 0) return WEFT_OK; /* one line, or a head and a line */
    swapped = malloc(bytes);
    if (swapped == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a text");
    memcpy(swapped, text, bytes);
    memcpy(swapped + first, text + last, end - last);
    swapped[first + (end - last)] = '\n';
    memcpy(swapped + first + (end - last) + 1, text + first, last - 1 - first);
    status = weft_file_replace(made, swapped, bytes, err);
    free(swapped);
    return status == WEFT_OK ? tells_text(d, changed, "its last two lines the other way round", err) : status;
}

/* Letters at the begin, in the middle and at the end of the file that `path` names, each by itself, and two of its
 * lines, in a copy. */
static weft_status tells_texts(desk *d, const weft_subject *changed, const char **path, weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char made[WEFT_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    weft_error unread = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (getcwd(made, sizeof made) == NULL || strlen(made) + strlen(slash) >= sizeof made)
        return weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    (void)strcat(made, slash);
    if (weft_text_read(&text, &bytes, right, MOST_TEXT, &unread) != WEFT_OK)
        return WEFT_OK; /* no file, or a huge one */
    *path = made;
    status = tells_letters(d, changed, made, text, bytes, err);
    if (status == WEFT_OK) status = tells_order(d, changed, made, text, bytes, err);
    *path = right;
    free(text);
    return status;
}

static weft_status tells_seed(desk *d, const weft_subject *subject, weft_error *err) {
    weft_status status = WEFT_OK;
    instance_close(&d->other);
    status = instance_open_for(&d->other, subject, WEFT_POISON_ONE, job_of_another_seed(), err);
    if (status == WEFT_E_UNSUPPORTED) status = WEFT_E_PLUGIN; /* a seed is nobody's mistake */
    return status == WEFT_OK ? is_told_apart(d, "another seed", err) : weft_error_prefix(err, "with another seed: ");
}

static weft_status tells_rows_apart(desk *d, weft_subject *subject, weft_error *err) {
    const size_t size = subject->loaded->plugin->config_size;
    weft_subject changed = *subject;
    const char **path = NULL;
    weft_status status = tells_seed(d, subject, err);
    if (status != WEFT_OK) return status;
    changed.config = malloc(size + 8);
    if (changed.config == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys");
    memcpy(changed.config, subject->config, size);
    path = path_in(subject, changed.config);
    if (path != NULL && *path != NULL && (*path)[0] == '/') status = tells_texts(d, &changed, path, err);
    instance_close(&d->other); /* before the keys that it may read */
    free(changed.config);
    return status;
}

static weft_status rule_made(weft_subject *subject, weft_error *err) {
    desk d = {0};
    weft_status status = heeds_its_keys(subject, err);
    if (status == WEFT_OK) status = desk_open(&d, subject, err);
    if (status == WEFT_OK) status = made_alike(&d, err);
    if (status == WEFT_OK) status = tells_rows_apart(&d, subject, err);
    desk_close(&d);
    return status;
}

const weft_rule weft_rules_data[] = {
    {"R70", "data", "has the same counts and fingerprint in each instance, and another one for other rows", rule_made,
     false},
    {"R71", "data", "fills each place of a leaf with what may stand there", rule_leaf, false},
    {"R72", "data", "gives the same leaf whenever it is asked", rule_same, false},
    {"R73", "data", "gives a row alike in any leaf", rule_row, false},
    {"R74", "data", "has as many targets in an epoch as it says", epoch_counts, false},
    {"R75", "data", "pads behind the end of a split that is read once", ends_in_padding, false},
    {"R76", "data", "gives its memory back", gives_back, false},
    {"R77", "data", "gives the same leaf to several threads at once", threads_alike, false},
    {"R78", "data", "gives the same leaves to a host whose structs are longer", rule_later, false},
    {"R79", "data", "takes no wrong file, and names the one that it refuses", refuses_wrong_files, false},
    {NULL, NULL, NULL, NULL, false}};
