/* host/tools/check/data_trial.c: see data_trial.h. */
#include "tools/check/data_trial.h"

#include "plugin/enter.h"
#include "run/validate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <weft/random.h>

enum { BYTES_BOS = 256, BYTES_EOS = 257 };

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

/* Renders each turn as its bytes and marks the answers; sufficient for building sequences. */
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

const weft_data_job *weft_bytes_job(void) {
    static weft_tokenizer_info info;
    static weft_data_job job;
    info.struct_size = (uint32_t)sizeof info;
    info.vocab_size = WEFT_BYTES_VOCABULARY;
    info.bos = BYTES_BOS;
    info.eos = BYTES_EOS;
    info.unk = info.pad = -1;
    info.auto_bos = info.auto_eos = 1;
    job.struct_size = (uint32_t)sizeof job;
    job.seed = 7;
    job.vocab_size = WEFT_BYTES_VOCABULARY;
    job.max_context = WEFT_BYTES_CONTEXT;
    job.encode = encode;
    job.encode_with = encode_with;
    job.decode = decode;
    job.chat = chat;
    job.check_chat = check_chat;
    job.special_id = special_id;
    job.tokenizer = &info;
    return &job;
}

const weft_data_job *weft_bytes_job_of_another_seed(void) {
    static weft_data_job job;
    job = *weft_bytes_job();
    job.seed++;
    return &job;
}

enum { MOST_ROWS = 5 };

/* ---- an instance ---- */

void weft_data_close(weft_data_instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_NOTIFY(self->table, destroy, self->made);
    self->made = NULL;
}

weft_status weft_data_open_for(weft_data_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                               const weft_data_job *job, weft_error *err) {
    weft_split_info *infos[3];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_plugin_under_test_table(tested, data);
    weft_plugin_call_begin(&call, tested->loaded, "create");
    status = self->table->create(&self->made, weft_plugin_under_test_host(poison), tested->config, job, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    self->refused = status != WEFT_OK;
    if (status == WEFT_E_USER || status == WEFT_E_DATA) return WEFT_E_UNSUPPORTED; /* the plugin needs another file */
    if (status != WEFT_OK) return status;
    self->info.struct_size = (uint32_t)sizeof self->info;
    WEFT_PLUGIN_NOTIFY(self->table, info, self->made, &self->info);
    for (int32_t s = 0; s < 3; s++) {
        infos[s] = &self->splits[s];
        self->splits[s].struct_size = (uint32_t)sizeof self->splits[s];
        WEFT_PLUGIN_NOTIFY(self->table, split_info, self->made, s, &self->splits[s]);
    }
    return weft_data_validate(&self->info, infos, WEFT_BYTES_CONTEXT, true, err);
}

weft_status weft_data_open(weft_data_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                           weft_error *err) {
    return weft_data_open_for(self, tested, poison, weft_bytes_job(), err);
}

int32_t weft_data_longest(const weft_data_instance *self) {
    return self->info.lengths[self->info.n_lengths - 1];
}

/* ---- micro-batches ---- */

void weft_data_micro_batch_free(weft_micro_batch *micro_batch) {
    free(micro_batch->ids);
    free(micro_batch->targets);
    free(micro_batch->weights);
    free(micro_batch->starts);
    free(micro_batch->positions);
    memset(micro_batch, 0, sizeof *micro_batch);
}

void weft_data_micro_batch_make(weft_micro_batch *micro_batch, const weft_data_instance *self) {
    const size_t n = (size_t)MOST_ROWS * (size_t)weft_data_longest(self);
    memset(micro_batch, 0, sizeof *micro_batch);
    micro_batch->struct_size = (uint32_t)sizeof *micro_batch;
    micro_batch->ids = weft_alloc(n, sizeof *micro_batch->ids);
    micro_batch->targets = weft_alloc(n, sizeof *micro_batch->targets);
    micro_batch->weights = weft_alloc(n, sizeof *micro_batch->weights);
    micro_batch->starts = weft_alloc(n, sizeof *micro_batch->starts);
    micro_batch->positions = weft_alloc(n, sizeof *micro_batch->positions);
}

weft_status weft_data_take(weft_micro_batch *micro_batch, const weft_data_instance *self,
                           const weft_micro_batch_request *request, weft_error *err) {
    const weft_micro_batch_bounds bounds = {WEFT_BYTES_VOCABULARY, WEFT_BYTES_CONTEXT, self->info.lengths,
                                            self->info.n_lengths};
    const size_t n = (size_t)MOST_ROWS * (size_t)weft_data_longest(self);
    weft_micro_batch asked;
    weft_status status = WEFT_OK;
    memset(micro_batch->ids, WEFT_MICRO_BATCH_POISON, n * sizeof *micro_batch->ids);
    memset(micro_batch->targets, WEFT_MICRO_BATCH_POISON, n * sizeof *micro_batch->targets);
    memset(micro_batch->weights, WEFT_MICRO_BATCH_POISON, n * sizeof *micro_batch->weights);
    memset(micro_batch->starts, WEFT_MICRO_BATCH_POISON, n * sizeof *micro_batch->starts);
    memset(micro_batch->positions, WEFT_MICRO_BATCH_POISON, n * sizeof *micro_batch->positions);
    micro_batch->rows = micro_batch->length = -1;
    micro_batch->n_targets = -1;
    WEFT_PLUGIN_CALL(status, self->table, shape, err, self->made, micro_batch, request);
    if (status == WEFT_OK) status = weft_micro_batch_validate_shape(micro_batch, request, &bounds, err);
    asked = *micro_batch;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->table, micro_batch, err, self->made, micro_batch, request);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "it fails without an error message");
    return status == WEFT_OK ? weft_micro_batch_validate(micro_batch, &asked, request, &bounds, err) : status;
}

/* Returns a number of the endless stream that exceeds 32 bits, or crosses that limit. 0: many epochs ahead. */
static uint64_t far_row(uint32_t number, uint64_t rows, uint32_t drawn) {
    static const uint64_t far[] = {0,
                                   ((uint64_t)1 << 31) - 2,
                                   ((uint64_t)1 << 32) - 2,
                                   (uint64_t)1 << 62,
                                   ((uint64_t)1 << 32) + 17,
                                   ((uint64_t)1 << 31) + 3};
    const uint32_t at = (number / 20 * 2 + number / 5 % 2) % 6;
    return far[at] != 0 ? far[at] : rows * 1000003u + drawn % 1000u;
}

weft_micro_batch_request weft_data_draw_request(const weft_data_instance *self, uint32_t number) {
    const weft_random4 r = weft_random(number, WEFT_RANDOM_SAMPLE, 3, 0);
    const int32_t split = number % 4 == 2 ? WEFT_SPLIT_VALIDATION : number % 4 == 3 ? WEFT_SPLIT_ALL : WEFT_SPLIT_TRAIN;
    const uint64_t rows = self->splits[split].rows;
    const bool is_far = split == WEFT_SPLIT_TRAIN && number % 5 == 4;
    const uint64_t first = is_far ? far_row(number, rows, r.v[1])
                                  : r.v[1] % ((split == WEFT_SPLIT_TRAIN ? 3 : 1) * rows + 1);
    const int32_t n = is_far ? MOST_ROWS : 1 + (int32_t)(r.v[0] % MOST_ROWS);
    const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, n, first};
    return request;
}

/* Compares sequence r of one micro-batch to sequence q of another. The shorter one counts as padded. */
bool weft_data_same_row(const weft_micro_batch *a, int32_t r, const weft_micro_batch *b, int32_t q) {
    const int32_t n = a->length < b->length ? a->length : b->length;
    const int32_t i = r * a->length, k = q * b->length;
    for (int32_t t = 0; t < n; t++)
        if (a->ids[i + t] != b->ids[k + t] || a->targets[i + t] != b->targets[k + t] ||
            memcmp(&a->weights[i + t], &b->weights[k + t], sizeof(float)) != 0 ||
            a->starts[i + t] != b->starts[k + t] || a->positions[i + t] != b->positions[k + t])
            return false;
    return true;
}

bool weft_data_same_micro_batch(const weft_micro_batch *a, const weft_micro_batch *b) {
    if (a->rows != b->rows || a->length != b->length || a->n_targets != b->n_targets) return false;
    for (int32_t r = 0; r < a->rows; r++)
        if (!weft_data_same_row(a, r, b, r)) return false;
    return true;
}

weft_status weft_data_desk_open(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(d, 0, sizeof *d);
    status = weft_data_open(&d->self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = weft_data_open(&d->other, tested, WEFT_POISON_TWO, err);
    if (status != WEFT_OK) return status;
    weft_data_micro_batch_make(&d->one, &d->self);
    weft_data_micro_batch_make(&d->two, &d->self);
    return WEFT_OK;
}

bool weft_data_desk_same(const weft_data_desk *d) {
    return d->self.info.fingerprint == d->other.info.fingerprint &&
           memcmp(d->self.splits, d->other.splits, sizeof d->self.splits) == 0;
}

void weft_data_desk_close(weft_data_desk *d) {
    weft_data_micro_batch_free(&d->one);
    weft_data_micro_batch_free(&d->two);
    weft_data_close(&d->self);
    weft_data_close(&d->other);
}

weft_status weft_data_each_request_of(weft_data_desk *d, weft_on_request holds, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(&d->self, i);
        weft_plugin_under_test_asks("sequences %llu and %d further ones of split %d",
                                    (unsigned long long)request.first_row, (int)request.rows - 1, (int)request.split);
        status = holds(d, &request, err);
        if (status != WEFT_OK)
            (void)weft_error_prefix(err, "sequences %llu and %d further ones: ", (unsigned long long)request.first_row,
                                    (int)request.rows - 1);
    }
    return status;
}

weft_status weft_data_each_request(const weft_plugin_under_test *tested, weft_on_request holds, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    if (status == WEFT_OK) status = weft_data_each_request_of(&d, holds, err);
    weft_data_desk_close(&d);
    return status;
}
