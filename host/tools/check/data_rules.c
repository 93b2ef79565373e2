/* host/tools/check/data_rules.c: rules for data plugins. The plugins run with a byte tokenizer. */
#include "base/child.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "plugin/enter.h"
#include "run/validate.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/data.h>
#include <weft/random.h>

/* ---- job of the plugins under test: ids below 256 are bytes, 256 is BOS, 257 EOS ---- */

enum { BYTES_BOS = 256, BYTES_EOS = 257, BYTES_VOCABULARY = 258, BYTES_CONTEXT = 1 << 16 };

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

static const weft_data_job *bytes_job(void) {
    static weft_tokenizer_info info;
    static weft_data_job job;
    info.struct_size = (uint32_t)sizeof info;
    info.vocab_size = BYTES_VOCABULARY;
    info.bos = BYTES_BOS;
    info.eos = BYTES_EOS;
    info.unk = info.pad = -1;
    info.auto_bos = info.auto_eos = 1;
    job.struct_size = (uint32_t)sizeof job;
    job.seed = 7;
    job.vocab_size = BYTES_VOCABULARY;
    job.max_context = BYTES_CONTEXT;
    job.encode = encode;
    job.encode_with = encode_with;
    job.decode = decode;
    job.chat = chat;
    job.check_chat = check_chat;
    job.special_id = special_id;
    job.tokenizer = &info;
    return &job;
}

static const weft_data_job *bytes_job_of_another_seed(void) {
    static weft_data_job job;
    job = *bytes_job();
    job.seed++;
    return &job;
}

enum { MOST_ROWS = 5, REQUESTS = 60 };

/* ---- an instance ---- */

typedef struct instance {
    const weft_data_plugin *table;
    weft_data *made;
    weft_data_info info;
    weft_split_info splits[3];
    bool refused; /* its `create` failed */
} instance;

static void instance_close(instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_NOTIFY(self->table, destroy, self->made);
    self->made = NULL;
}

/* WEFT_E_UNSUPPORTED: the plugin needs another file. Close it also after a failure. */
static weft_status instance_open_for(instance *self, const weft_plugin_under_test *tested, uint8_t poison,
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
    return weft_data_validate(&self->info, infos, BYTES_CONTEXT, true, err);
}

static weft_status instance_open(instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                                 weft_error *err) {
    return instance_open_for(self, tested, poison, bytes_job(), err);
}

/* Returns the maximum of its lengths. */
static int32_t longest(const instance *self) {
    return self->info.lengths[self->info.n_lengths - 1];
}

/* ---- micro-batches ---- */

static void micro_batch_free(weft_micro_batch *micro_batch) {
    free(micro_batch->ids);
    free(micro_batch->targets);
    free(micro_batch->weights);
    free(micro_batch->starts);
    free(micro_batch->positions);
    memset(micro_batch, 0, sizeof *micro_batch);
}

/* Allocates buffers for the largest requested micro-batch. */
static void micro_batch_make(weft_micro_batch *micro_batch, const instance *self) {
    const size_t n = (size_t)MOST_ROWS * (size_t)longest(self);
    memset(micro_batch, 0, sizeof *micro_batch);
    micro_batch->struct_size = (uint32_t)sizeof *micro_batch;
    micro_batch->ids = weft_alloc(n, sizeof *micro_batch->ids);
    micro_batch->targets = weft_alloc(n, sizeof *micro_batch->targets);
    micro_batch->weights = weft_alloc(n, sizeof *micro_batch->weights);
    micro_batch->starts = weft_alloc(n, sizeof *micro_batch->starts);
    micro_batch->positions = weft_alloc(n, sizeof *micro_batch->positions);
}

/* Fetches the micro-batch of a request and validates it as a run does. */
static weft_status take(weft_micro_batch *micro_batch, const instance *self, const weft_micro_batch_request *request,
                        weft_error *err) {
    const weft_micro_batch_bounds bounds = {BYTES_VOCABULARY, BYTES_CONTEXT, self->info.lengths, self->info.n_lengths};
    const size_t n = (size_t)MOST_ROWS * (size_t)longest(self);
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

/* Draws a request: from each split, and far beyond the first epoch. */
static weft_micro_batch_request draw_request(const instance *self, uint32_t number) {
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
static bool same_row(const weft_micro_batch *a, int32_t r, const weft_micro_batch *b, int32_t q) {
    const int32_t n = a->length < b->length ? a->length : b->length;
    const int32_t i = r * a->length, k = q * b->length;
    for (int32_t t = 0; t < n; t++)
        if (a->ids[i + t] != b->ids[k + t] || a->targets[i + t] != b->targets[k + t] ||
            memcmp(&a->weights[i + t], &b->weights[k + t], sizeof(float)) != 0 ||
            a->starts[i + t] != b->starts[k + t] || a->positions[i + t] != b->positions[k + t])
            return false;
    return true;
}

static bool same_micro_batch(const weft_micro_batch *a, const weft_micro_batch *b) {
    if (a->rows != b->rows || a->length != b->length || a->n_targets != b->n_targets) return false;
    for (int32_t r = 0; r < a->rows; r++)
        if (!same_row(a, r, b, r)) return false;
    return true;
}

/* Two instances of the same data, with one micro-batch each. */
typedef struct desk {
    instance self, other;
    weft_micro_batch one, two;
} desk;

static weft_status desk_open(desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(d, 0, sizeof *d);
    status = instance_open(&d->self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&d->other, tested, WEFT_POISON_TWO, err);
    if (status != WEFT_OK) return status;
    micro_batch_make(&d->one, &d->self);
    micro_batch_make(&d->two, &d->self);
    return WEFT_OK;
}

/* True if both instances have the same fingerprint and counts. */
static bool desk_same(const desk *d) {
    return d->self.info.fingerprint == d->other.info.fingerprint &&
           memcmp(d->self.splits, d->other.splits, sizeof d->self.splits) == 0;
}

static void desk_close(desk *d) {
    micro_batch_free(&d->one);
    micro_batch_free(&d->two);
    instance_close(&d->self);
    instance_close(&d->other);
}

typedef weft_status (*on_request)(desk *d, const weft_micro_batch_request *request, weft_error *err);

static weft_status each_request_of(desk *d, on_request holds, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = draw_request(&d->self, i);
        weft_plugin_under_test_asks("sequences %llu and %d further ones of split %d",
                                    (unsigned long long)request.first_row, (int)request.rows - 1, (int)request.split);
        status = holds(d, &request, err);
        if (status != WEFT_OK)
            (void)weft_error_prefix(err, "sequences %llu and %d further ones: ", (unsigned long long)request.first_row,
                                    (int)request.rows - 1);
    }
    return status;
}

static weft_status each_request(const weft_plugin_under_test *tested, on_request holds, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, tested, err);
    if (status == WEFT_OK) status = each_request_of(&d, holds, err);
    desk_close(&d);
    return status;
}

/* ---- bytes that one process makes by `share` and that another one maps ---- */

#define SHARED "shared" /* in the rule's own directory */

static weft_status put_shared(void *context, const void *bytes, size_t n) {
    return fwrite(bytes, 1, n, context) == n ? WEFT_OK : WEFT_E_SYSTEM;
}

static weft_status make_file(weft_share_make *make, void *context, weft_error *err) {
    FILE *file = fopen(SHARED, "wb");
    const weft_bytes_sink sink = {file, put_shared};
    weft_status status = WEFT_OK;
    if (file == NULL) return weft_error_set(err, WEFT_E_SYSTEM, SHARED " cannot be written: %s", strerror(errno));
    status = make(context, &sink, err);
    return fclose(file) == 0 || status != WEFT_OK ? status : WEFT_E_SYSTEM;
}

/* job->context: whether this process makes the bytes. The map stays until the process ends. */
static weft_status share(const weft_data_job *job, weft_share_make *make, void *context, const void **bytes, size_t *n,
                         weft_error *err) {
    struct stat info = {.st_size = 0};
    weft_status status = job->context != NULL ? make_file(make, context, err) : WEFT_OK;
    const int file = status == WEFT_OK ? open(SHARED, O_RDONLY | O_CLOEXEC) : -1;
    if (status != WEFT_OK) return status;
    if (file >= 0 && fstat(file, &info) == 0 && info.st_size > 0)
        *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) (void)close(file);
    *n = (size_t)info.st_size;
    return info.st_size > 0 && *bytes != MAP_FAILED ? WEFT_OK : WEFT_BROKEN(err, "it shares no bytes");
}

static const weft_data_job *sharing_job(bool makes) {
    static weft_data_job job;
    job = *bytes_job();
    job.share = share;
    job.context = makes ? &job : NULL;
    return &job;
}

/* In another process: writes the file, and to `end` why that failed. */
static void make_there(int end, void *context) {
    instance made;
    weft_error err = WEFT_ERROR_INIT;
    if (instance_open_for(&made, context, WEFT_POISON_ONE, sharing_job(true), &err) != WEFT_OK)
        (void)dprintf(end, "%s", err.text);
    instance_close(&made);
}

static weft_status make_shared(weft_plugin_under_test *tested, weft_error *err) {
    weft_child child = {0};
    weft_status status = weft_child_run(&child, make_there, tested, sizeof err->text, tested->options->seconds, err);
    if (status == WEFT_OK && child.n > 0) status = weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", child.text);
    else if (status == WEFT_OK && (!child.in_time || child.status != 0))
        status = WEFT_BROKEN(err, "a process in which it creates the bytes of share fails");
    else if (status == WEFT_OK && access(SHARED, F_OK) != 0)
        status = WEFT_MOOT(tested, err, "its create does not call share, and need not");
    free(child.text);
    return status;
}

static weft_status micro_batch_is_shared(desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = take(&d->one, &d->self, request, err);
    if (status == WEFT_OK) status = take(&d->two, &d->other, request, err);
    if (status == WEFT_OK && !same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(
            err,
            "the bytes that another process made by share and the plugin's own files have different micro-batches");
    return status;
}

/* The instance that maps is the first of this process: make has left nothing here. */
static weft_status shares_its_rows(weft_plugin_under_test *tested, weft_error *err) {
    desk d = {0};
    weft_status status = make_shared(tested, err);
    if (status != WEFT_OK) return status;
    weft_plugin_under_test_asks("to map the bytes that another process has created by share");
    status = instance_open_for(&d.self, tested, WEFT_POISON_TWO, sharing_job(false), err);
    if (status == WEFT_OK) micro_batch_make(&d.one, &d.self);
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK; i++) { /* before it can find its files' data */
        const weft_micro_batch_request request = draw_request(&d.self, i);
        status = take(&d.one, &d.self, &request, err);
    }
    if (status == WEFT_OK) status = instance_open(&d.other, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && !desk_same(&d))
        status = WEFT_BROKEN(err, "the bytes that another process made by share and the plugin's own files have "
                                  "different fingerprints or counts");
    if (status == WEFT_OK) micro_batch_make(&d.two, &d.self);
    if (status == WEFT_OK) status = each_request_of(&d, micro_batch_is_shared, err);
    desk_close(&d);
    return status;
}

/* ---- corrupt input files ---- */

static weft_status check_refusal(weft_wrong wrong, const char *path, weft_status status, const weft_error *said,
                                 weft_error *err) {
    if (status != WEFT_E_UNSUPPORTED && status != WEFT_E_SYSTEM) /* instance_open maps user errors to these codes */
        return WEFT_BROKEN(err, "%s as path: %s", weft_wrong_name(wrong), said->text);
    if (strstr(said->text, path) == NULL)
        return WEFT_BROKEN(err, "it rejects path %s with a message that does not contain the path: %s",
                           weft_wrong_name(wrong), said->text);
    return WEFT_OK;
}

static weft_status read_wrong(const weft_plugin_under_test *tested, weft_wrong wrong, const char *path,
                              weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    instance self;
    const weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, &said);
    const uint64_t targets = status == WEFT_OK ? self.splits[WEFT_SPLIT_TRAIN].targets : 0;
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_plugin_under_test_refused(status, self.made, weft_wrong_name(wrong), err);
    if (self.refused) self.made = NULL;
    instance_close(&self);
    if (left != WEFT_OK) return left;
    if (status != WEFT_OK) return check_refusal(wrong, path, status, &said, err);
    if (weft_wrong_is_nothing(wrong) || targets == 0)
        return WEFT_BROKEN(err, "it accepts %s as path, with %llu targets", weft_wrong_name(wrong),
                           (unsigned long long)targets);
    return WEFT_OK;
}

/* Replaces the file by corrupt files of the same name, for plugins that read the extension. */
static weft_status each_wrong(weft_plugin_under_test *wrong, const char **path, weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char here[WEFT_PATH_BYTES], made[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (getcwd(here, sizeof here) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "getcwd of the working directory fails: %s", strerror(errno));
    status = weft_path_join(made, here, slash == NULL ? right : slash + 1, err);
    *path = made;
    for (int w = 0; w < WEFT_N_WRONG && status == WEFT_OK; w++) {
        weft_plugin_under_test_asks("%s as path", weft_wrong_name((weft_wrong)w));
        status = weft_wrong_make(made, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(wrong, (weft_wrong)w, made, err);
    }
    *path = right;
    return status;
}

/* Copies the keys. *path: the address of the training file's name in the copy; NULL: it has no such key. */
static weft_plugin_under_test copy_keys(const weft_plugin_under_test *tested, const char ***path) {
    const size_t size = tested->loaded->plugin->config_size;
    const weft_key *key = weft_plugin_under_test_key(tested, "path", WEFT_KEY_PATH);
    weft_plugin_under_test copy = *tested;
    copy.config = weft_alloc(size + 8, 1);
    memcpy(copy.config, tested->config, size);
    *path = key == NULL ? NULL : (const char **)weft_plugin_under_test_value(&copy, key);
    if (key != NULL && (**path == NULL || (**path)[0] != '/')) *path = NULL;
    return copy;
}

static weft_status refuses_wrong_files(weft_plugin_under_test *tested, weft_error *err) {
    const char **path = NULL;
    weft_plugin_under_test wrong = copy_keys(tested, &path);
    const weft_status status = path == NULL
                                   ? WEFT_MOOT(tested, err, "it has no key path that names a file, and need not")
                                   : each_wrong(&wrong, path, err);
    free(wrong.config);
    return status;
}

/* ---- fingerprints of different data ---- */

enum { MOST_TEXT = 1 << 26 };

static bool same_counts(const instance *a, const instance *b) {
    bool is_same = a->info.n_lengths == b->info.n_lengths;
    for (int32_t i = 0; i < a->info.n_lengths && is_same; i++) is_same = a->info.lengths[i] == b->info.lengths[i];
    for (int32_t s = 0; s < 3 && is_same; s++)
        is_same = a->splits[s].rows == b->splits[s].rows && a->splits[s].targets == b->splits[s].targets;
    return is_same;
}

/* Sets *differ if the two instances return different sequences for the drawn requests. */
static weft_status find_other_rows(bool *differ, desk *d, weft_error *err) {
    weft_status status = WEFT_OK;
    *differ = !same_counts(&d->self, &d->other);
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK && !*differ; i++) {
        const weft_micro_batch_request request = draw_request(&d->self, i);
        status = take(&d->one, &d->self, &request, err);
        if (status == WEFT_OK) status = take(&d->two, &d->other, &request, err);
        *differ = status == WEFT_OK && !same_micro_batch(&d->one, &d->two);
    }
    return status;
}

static weft_status is_distinguished(desk *d, const char *what, weft_error *err) {
    bool differ = false;
    weft_status status = WEFT_OK;
    if (d->self.info.fingerprint != d->other.info.fingerprint) return WEFT_OK;
    status = find_other_rows(&differ, d, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "with %s: ", what);
    if (!differ) return WEFT_OK;
    return WEFT_BROKEN(err,
                       "with %s it returns different sequences and the same fingerprint, %016llx: a resumed run would "
                       "not detect the change",
                       what, (unsigned long long)d->self.info.fingerprint);
}

/* Increments the next lowercase letter after `from`; *at: its index. Returns false if no letter follows. */
static bool change_letter(char *text, size_t bytes, size_t from, size_t *at) {
    for (*at = from; *at < bytes && (text[*at] < 'a' || text[*at] > 'y'); ++*at) {
    }
    if (*at < bytes) text[*at]++;
    return *at < bytes;
}

/* Checks one changed text. A text that the plugin rejects is not evidence and passes. */
static weft_status reports_text(desk *d, const weft_plugin_under_test *changed, const char *what, weft_error *err) {
    weft_error refused = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_plugin_under_test_asks("%s", what);
    instance_close(&d->other);
    status = instance_open(&d->other, changed, WEFT_POISON_ONE, &refused);
    if (status == WEFT_OK) return is_distinguished(d, what, err);
    if (status == WEFT_E_UNSUPPORTED) return WEFT_OK;
    return weft_error_set(err, status, "with %s: %s", what, refused.text);
}

static weft_status reports_letters(desk *d, const weft_plugin_under_test *changed, const char *made, char *text,
                                   size_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    char what[64];
    size_t at = 0;
    for (size_t eighth = 1; eighth < 8 && status == WEFT_OK; eighth += 3) {
        if (!change_letter(text, bytes, bytes / 8 * eighth, &at)) continue;
        (void)snprintf(what, sizeof what, "another letter at byte %zu", at);
        status = weft_file_replace(made, text, bytes, err);
        if (status == WEFT_OK) status = reports_text(d, changed, what, err);
        text[at]--;
    }
    return status;
}

/* Returns the start of the line that ends before `end`. */
static size_t line_before(const char *text, size_t end) {
    while (end > 0 && text[end - 1] != '\n') end--;
    return end;
}

/* Swaps the last two lines. All bytes remain, so an order-independent sum does not change. */
static weft_status reports_order(desk *d, const weft_plugin_under_test *changed, const char *made, const char *text,
                                 size_t bytes, weft_error *err) {
    const size_t end = bytes > 0 && text[bytes - 1] == '\n' ? bytes - 1 : bytes;
    const size_t last = line_before(text, end);
    const size_t first = last > 0 ? line_before(text, last - 1) : 0;
    char *swapped = NULL;
    weft_status status = WEFT_OK;
    if (last == 0 || first == 0) return WEFT_OK; /* fewer than two lines, or a header and one line */
    swapped = weft_alloc(bytes, 1);
    memcpy(swapped, text, bytes);
    memcpy(swapped + first, text + last, end - last);
    swapped[first + (end - last)] = '\n';
    memcpy(swapped + first + (end - last) + 1, text + first, last - 1 - first);
    status = weft_file_replace(made, swapped, bytes, err);
    free(swapped);
    return status == WEFT_OK ? reports_text(d, changed, "its last two lines in reverse order", err) : status;
}

/* Changes letters at the start, middle and end of a copy of the file, one at a time, and swaps two lines. */
static weft_status reports_texts(desk *d, const weft_plugin_under_test *changed, const char **path, weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char made[WEFT_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    weft_error unread = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (getcwd(made, sizeof made) == NULL || strlen(made) + strlen(slash) >= sizeof made)
        return weft_error_set(err, WEFT_E_SYSTEM, "getcwd of the working directory fails: %s", strerror(errno));
    (void)strcat(made, slash);
    if (weft_text_read(&text, &bytes, right, MOST_TEXT, &unread) != WEFT_OK)
        return WEFT_OK; /* no file, or a huge one */
    *path = made;
    status = reports_letters(d, changed, made, text, bytes, err);
    if (status == WEFT_OK) status = reports_order(d, changed, made, text, bytes, err);
    *path = right;
    free(text);
    return status;
}

static weft_status reports_seed(desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    instance_close(&d->other);
    status = instance_open_for(&d->other, tested, WEFT_POISON_ONE, bytes_job_of_another_seed(), err);
    if (status == WEFT_E_UNSUPPORTED) status = WEFT_E_PLUGIN; /* any seed is valid, so this is an error of the plugin */
    return status == WEFT_OK ? is_distinguished(d, "another seed", err) : weft_error_prefix(err, "with another seed: ");
}

static weft_status separates_rows(desk *d, weft_plugin_under_test *tested, weft_error *err) {
    const char **path = NULL;
    weft_plugin_under_test changed = copy_keys(tested, &path);
    weft_status status = reports_seed(d, tested, err);
    if (status == WEFT_OK && path != NULL) status = reports_texts(d, &changed, path, err);
    instance_close(&d->other); /* first, because it may read the keys */
    free(changed.config);
    return status;
}

/* ---- targets per split and sequence ---- */

enum { MOST_COUNTED = 200000, MOST_COMPARED = 20000 }; /* sequences of a split */

static const char *const split_names[] = {"training", "validation", "all"};

/* Returns the FNV-1a hash of a sequence's content, in a micro-batch of one sequence. */
static uint64_t row_hash(const weft_micro_batch *micro_batch) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t t = 0; t < micro_batch->length; t++) {
        const uint32_t words[] = {(uint32_t)micro_batch->ids[t], (uint32_t)micro_batch->targets[t],
                                  (uint32_t)micro_batch->starts[t], micro_batch->weights[t] > 0.0f};
        for (int i = 0; i < 4; i++) hash = (hash ^ words[i]) * 0x100000001b3u;
    }
    return hash ^ hash >> 29;
}

/* Totals of n sequences: their targets, and an order-independent sum of hashes. */
typedef struct tally {
    uint64_t targets, rows;
} tally;

static weft_status count(desk *d, tally *out, int32_t split, uint64_t first, uint64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = (tally){0, 0};
    for (uint64_t row = 0; status == WEFT_OK && row < n; row++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 1, first + row};
        weft_plugin_under_test_asks("sequence %llu of split %s", (unsigned long long)request.first_row,
                                    split_names[split]);
        status = take(&d->one, &d->self, &request, err);
        if (status != WEFT_OK)
            return weft_error_prefix(err, "sequence %llu of split %s: ", (unsigned long long)request.first_row,
                                     split_names[split]);
        out->targets += (uint64_t)d->one.n_targets;
        out->rows += row_hash(&d->one);
    }
    return status;
}

/* Checks that an epoch is a permutation of all sequences, also if sequence numbers exceed 32 bits. */
static weft_status epochs_alike(desk *d, const tally *first, weft_error *err) {
    const uint64_t n = d->self.splits[WEFT_SPLIT_TRAIN].rows;
    const uint64_t within[] = {n, (uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 62};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 4 && status == WEFT_OK && n <= MOST_COMPARED; i++) {
        const uint64_t begin = within[i] / n * n;
        tally other;
        status = count(d, &other, WEFT_SPLIT_TRAIN, begin, n, err);
        if (status == WEFT_OK && (other.targets != first->targets || other.rows != first->rows))
            status = WEFT_BROKEN(err,
                                 "the epoch from sequence %llu of the stream on has different sequences than the first "
                                 "one. Allowed: a permutation of the same %llu",
                                 (unsigned long long)begin, (unsigned long long)n);
    }
    return status;
}

static weft_status split_counts(desk *d, int32_t split, weft_error *err) {
    const weft_split_info *info = &d->self.splits[split];
    tally counted;
    weft_status status = WEFT_OK;
    if (info->rows > MOST_COUNTED)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "the %llu sequences of split %s are too many to be counted here",
                              (unsigned long long)info->rows, split_names[split]);
    status = count(d, &counted, split, 0, info->rows, err);
    if (status == WEFT_OK && counted.targets != info->targets)
        return WEFT_BROKEN(err, "the %llu sequences of split %s have %llu targets, and split_info returns %llu",
                           (unsigned long long)info->rows, split_names[split], (unsigned long long)counted.targets,
                           (unsigned long long)info->targets);
    return status == WEFT_OK && split == WEFT_SPLIT_TRAIN ? epochs_alike(d, &counted, err) : status;
}

static weft_status counts_hold(weft_plugin_under_test *tested, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, tested, err);
    for (int32_t split = 0; split < 3 && status == WEFT_OK; split++) status = split_counts(&d, split, err);
    desk_close(&d);
    return status;
}

/* Checks sequences after the end of a finite split: just after it, and where 32-bit numbers overflow. */
static weft_status pads_behind(desk *d, int32_t split, weft_error *err) {
    const uint64_t n = d->self.splits[split].rows;
    const uint64_t firsts[] = {n, n + 1000, (uint64_t)1 << 31, ((uint64_t)1 << 32) - 1, (uint64_t)1 << 62};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 5 && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 3, firsts[i]};
        if (firsts[i] < n) continue;
        weft_plugin_under_test_asks("sequences %llu and 2 further ones of split %s", (unsigned long long)firsts[i],
                                    split_names[split]);
        status = take(&d->one, &d->self, &request, err);
        if (status == WEFT_OK && d->one.n_targets != 0)
            status = WEFT_BROKEN(err,
                                 "after the %llu sequences of split %s there are %lld targets, from sequence %llu on",
                                 (unsigned long long)n, split_names[split], (long long)d->one.n_targets,
                                 (unsigned long long)firsts[i]);
    }
    return status;
}

static weft_status ends_in_padding(weft_plugin_under_test *tested, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, tested, err);
    for (int32_t split = WEFT_SPLIT_VALIDATION; split <= WEFT_SPLIT_ALL && status == WEFT_OK; split++)
        status = pads_behind(&d, split, err);
    desk_close(&d);
    return status;
}

/* ---- targets and inputs ---- */

/* Counts of targets, of targets equal to the id at their position, and of positions before a different id of the same
 * document, if both can be distinguished. */
typedef struct sight {
    uint64_t targets, seen, changes;
} sight;

static void look(sight *out, const weft_micro_batch *micro_batch) {
    const int32_t n = micro_batch->rows * micro_batch->length;
    for (int32_t i = 0; i < n; i++) {
        const bool goes_on = i + 1 < n && (i + 1) % micro_batch->length != 0 &&
                             micro_batch->starts[i + 1] == micro_batch->starts[i];
        if (!(micro_batch->weights[i] != 0.0f)) continue;
        out->targets++;
        out->seen += micro_batch->targets[i] == micro_batch->ids[i];
        out->changes += goes_on && micro_batch->ids[i + 1] != micro_batch->ids[i];
    }
}

static weft_status requests_unseen(weft_plugin_under_test *tested, weft_error *err) {
    desk d;
    sight all = {0, 0, 0};
    weft_status status = desk_open(&d, tested, err);
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = draw_request(&d.self, i);
        status = take(&d.one, &d.self, &request, err);
        if (status == WEFT_OK) look(&all, &d.one);
    }
    if (status == WEFT_OK && all.changes > 0 && all.seen == all.targets)
        status = WEFT_BROKEN(err,
                             "each of %llu targets is the id of its own position, an input of the model: the model "
                             "learns to copy. The target of a position is the id at the next position",
                             (unsigned long long)all.targets);
    desk_close(&d);
    return status;
}

/* ---- threads ---- */

/* Run time of all threads, long enough to overlap: shared memory is visible only in overlapping calls. */
#define SECONDS 0.5

typedef struct taker {
    const instance *self;
    const weft_micro_batch *wanted; /* [REQUESTS] */
    weft_micro_batch got;
    uint32_t first;
    double until; /* time of weft_clock_seconds */
    int differs;  /* request number + 1; 0: equal */
} taker;

static void take_all(void *context) {
    taker *t = context;
    for (uint32_t i = 0; t->differs == 0 && (i < 20 * REQUESTS || weft_clock_seconds() < t->until); i++) {
        const uint32_t number = (i + t->first) % REQUESTS;
        const weft_micro_batch_request request = draw_request(t->self, number);
        weft_error err = WEFT_ERROR_INIT;
        if (take(&t->got, t->self, &request, &err) != WEFT_OK || !same_micro_batch(&t->got, &t->wanted[number]))
            t->differs = (int)number + 1;
    }
}

static weft_status take_at_once(const instance *self, const weft_micro_batch *wanted, weft_error *err) {
    taker takers[WEFT_RULE_THREADS];
    const double until = weft_clock_seconds() + SECONDS;
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_RULE_THREADS; i++) {
        takers[i] = (taker){.self = self, .wanted = wanted, .first = i * 17, .until = until};
        micro_batch_make(&takers[i].got, self);
    }
    status = weft_rule_threads(take_all, takers, sizeof takers[0], "shape or micro-batch", err);
    for (int i = 0; i < WEFT_RULE_THREADS; i++) {
        if (takers[i].differs != 0 && status == WEFT_OK)
            status = WEFT_BROKEN(err, "micro-batch %d differs if %d threads request it", takers[i].differs - 1,
                                 WEFT_RULE_THREADS);
        micro_batch_free(&takers[i].got);
    }
    return status;
}

static weft_status threads_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_micro_batch wanted[REQUESTS];
    instance self;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    memset(wanted, 0, sizeof wanted);
    for (uint32_t i = 0; i < REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = draw_request(&self, i);
        micro_batch_make(&wanted[i], &self);
        status = take(&wanted[i], &self, &request, err);
    }
    weft_plugin_under_test_asks("by %d threads at once", WEFT_RULE_THREADS);
    if (status == WEFT_OK) status = take_at_once(&self, wanted, err);
    for (uint32_t i = 0; i < REQUESTS; i++) micro_batch_free(&wanted[i]);
    instance_close(&self);
    return status;
}

/* ---- independence from instances with other keys ---- */

static weft_status open_any(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return instance_open(made, tested, WEFT_POISON_ONE, err);
}

static void close_any(void *made) {
    instance_close(made);
}

static void add_micro_batch(weft_answer *to, const weft_micro_batch *micro_batch) {
    const size_t n = (size_t)micro_batch->rows * (size_t)micro_batch->length;
    WEFT_ANSWER_ADD(to, micro_batch->length);
    weft_answer_add(to, micro_batch->ids, n * sizeof *micro_batch->ids);
    weft_answer_add(to, micro_batch->targets, n * sizeof *micro_batch->targets);
    weft_answer_add(to, micro_batch->weights, n * sizeof *micro_batch->weights);
}

static weft_status query_any(weft_answer *to, void *made, weft_error *err) {
    instance *self = made;
    weft_micro_batch micro_batch;
    weft_status status = WEFT_OK;
    micro_batch_make(&micro_batch, self);
    WEFT_ANSWER_ADD(to, self->info.fingerprint);
    WEFT_ANSWER_ADD(to, self->splits);
    for (uint32_t i = 0; i < 8 && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = draw_request(self, i);
        status = take(&micro_batch, self, &request, err);
        if (status == WEFT_OK) add_micro_batch(to, &micro_batch);
    }
    micro_batch_free(&micro_batch);
    return status;
}

static const weft_answers answers = {sizeof(instance), open_any, close_any, query_any};

/* ---- instances ---- */

static weft_status rule_made(weft_plugin_under_test *tested, weft_error *err) {
    desk d = {0};
    weft_status status = weft_other_keys(tested, &answers, err);
    if (status == WEFT_OK) status = desk_open(&d, tested, err);
    if (status == WEFT_OK && !desk_same(&d))
        status = WEFT_BROKEN(
            err, "the same files and keys have a different fingerprint, or different counts, in a second instance");
    if (status == WEFT_OK) status = separates_rows(&d, tested, err);
    desk_close(&d);
    return status;
}

/* ---- micro-batches ---- */

static weft_status micro_batch_holds(desk *d, const weft_micro_batch_request *request, weft_error *err) {
    return take(&d->one, &d->self, request, err);
}

static weft_status micro_batch_stays(desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_micro_batch_request further = *request;
    weft_status status = take(&d->one, &d->self, request, err);
    further.first_row += 7;
    if (status == WEFT_OK) status = take(&d->two, &d->other, request, err);
    if (status == WEFT_OK && !same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(err, "a second instance returns a different micro-batch for the same call");
    if (status == WEFT_OK) status = take(&d->two, &d->self, &further, err);
    if (status == WEFT_OK) status = take(&d->two, &d->self, request, err);
    if (status == WEFT_OK && !same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(err, "a second call returns a different micro-batch");
    return status;
}

/* Checks that a sequence does not depend on the micro-batch that contains it. */
static weft_status row_stays(desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = take(&d->one, &d->self, request, err);
    for (int32_t r = 0; r < request->rows && status == WEFT_OK; r++) {
        weft_micro_batch_request alone = *request;
        alone.rows = 1;
        alone.first_row += (uint64_t)r;
        status = take(&d->two, &d->self, &alone, err);
        if (status == WEFT_OK && !same_row(&d->one, r, &d->two, 0))
            return WEFT_BROKEN(
                err, "sequence %d of the micro-batch differs from the same sequence in a micro-batch of its own",
                (int)r);
    }
    return status;
}

WEFT_RULE_BY(rule_micro_batch, each_request, micro_batch_holds)
WEFT_RULE_BY(rule_same, each_request, micro_batch_stays)
WEFT_RULE_BY(rule_row, each_request, row_stays)

/* ---- memory ---- */

/* Fetches micro-batches of each split between create and destroy, because any slot may leak. */
static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, tested, err);
    for (uint32_t number = 1; number <= 3 && status == WEFT_OK; number++) { /* training, validation, all */
        const weft_micro_batch_request request = draw_request(&d.self, number);
        status = take(&d.one, &d.self, &request, err);
    }
    desk_close(&d);
    return status;
}

WEFT_RULE_BY(releases, weft_plugin_under_test_releases, create_and_destroy)

/* ---- newer-ABI host ---- */

/* Compares a micro-batch of the plugin (`one`) to the same one through the newer-ABI shim (`two`). */
static weft_status micro_batch_later(desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = take(&d->one, &d->self, request, err);
    if (status != WEFT_OK) return status;
    status = take(&d->two, &d->other, request, err);
    return weft_newer_abi_check(status, status == WEFT_OK && same_micro_batch(&d->one, &d->two), "micro-batches", err);
}

static weft_status made_later(desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    instance_close(&d->other);
    status = instance_open(&d->other, weft_newer_abi(tested), WEFT_POISON_ONE, err);
    return weft_newer_abi_check(status, status == WEFT_OK && desk_same(d) && longest(&d->self) == longest(&d->other),
                                "counts, lengths or a different fingerprint", err);
}

static weft_status rule_later(weft_plugin_under_test *tested, weft_error *err) {
    desk d;
    weft_status status = desk_open(&d, tested, err);
    if (status == WEFT_OK) status = made_later(&d, tested, err);
    if (status == WEFT_OK) status = each_request_of(&d, micro_batch_later, err);
    desk_close(&d);
    return status;
}

/* ---- the rules ---- */

const weft_rule weft_rules_data[] = {
    {"R70", "has the same counts and fingerprint in each instance, and another fingerprint for other data", rule_made,
     false},
    {"R71", "fills each position with a valid value", rule_micro_batch, false},
    {"R72", "returns the same micro-batch on each call", rule_same, false},
    {"R73", "returns the same sequence in any micro-batch", rule_row, false},
    {"R74", "has the declared number of targets per split, and the same sequences in each epoch", counts_hold, false},
    {"R75", "pads past the end of a split that is read once", ends_in_padding, false},
    {"R76", "frees its memory", releases, false},
    {"R77", "returns the same micro-batch in several threads at once", threads_alike, false},
    {"R78", "returns the same micro-batches with a host that has longer structs", rule_later, false},
    {"R79", "rejects an invalid file and names it", refuses_wrong_files, false},
    {"R115", "has targets that the model does not see as inputs", requests_unseen, false},
    {"R120", "returns the same sequences from bytes that another process made by share", shares_its_rows, false},
    {NULL, NULL, NULL, false}};
