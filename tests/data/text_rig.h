/* text_rig.h: creates the data plugin `text` as the host does, with a tokenizer that has readable ids:
 *
 *     bytes     an id per byte; 256 for BOS and 257 for EOS, if enabled
 *     numbered  a document "D:N" has the N ids D * MOST_IDS + 0, 1, 2, ...: an id shows its document and position
 */
#ifndef WEFT_TEST_DATA_TEXT_RIG_H
#define WEFT_TEST_DATA_TEXT_RIG_H

#include "scratch.h"
#include "suite.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "config/value.h"
#include "plugin/plugin.h"
#include "plugin/services.h"
#include <weft/data.h>

#define MOST_IDS 1000 /* of a numbered document */
#define BOS      256
#define EOS      257

/* --- files --- */

/* Writes numbered documents 0, 1, ... of lengths[d] ids, one per line. */
static inline void write_numbered(const char *name, int first, const int *lengths, int n) {
    FILE *file = fopen(name, "wb");
    ck_assert_ptr_nonnull(file);
    for (int d = 0; d < n; d++) (void)fprintf(file, "%d:%d\n", first + d, lengths[d]);
    ck_assert_int_eq(fclose(file), 0);
}

/* --- random numbers, the same in every run --- */

static inline uint32_t chance(uint64_t *state, uint32_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* --- the host, with counters and failures --- */

typedef enum rig_order { RIG_FORWARD, RIG_BACKWARD, RIG_THREADS } rig_order;

typedef struct rig_host {
    weft_host host; /* must be first: the plugin's pointer is cast to the rig */
    rig_order order;
    int64_t fail_at; /* the allocation to fail, from 0; -1: no failure */
    int64_t allocations;
    char log[1024];
    int progress_open; /* 1 while a progress line is open */
    int progress_calls;
} rig_host;

static inline void rig_log(const weft_host *host, int32_t level, const char *text) {
    rig_host *self = (rig_host *)(uintptr_t)host;
    (void)level;
    (void)snprintf(self->log, sizeof self->log, "%s", text);
}

static inline void *rig_alloc(const weft_host *host, size_t bytes, size_t alignment) {
    rig_host *self = (rig_host *)(uintptr_t)host;
    if (__atomic_fetch_add(&self->allocations, 1, __ATOMIC_RELAXED) == self->fail_at) return NULL;
    return weft_services()->alloc(weft_services(), bytes, alignment);
}

static inline void rig_parallel_for(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context),
                                    void *context) {
    const rig_host *self = (const rig_host *)(const void *)host;
    if (self->order == RIG_THREADS) {
        weft_services()->parallel_for(weft_services(), n, body, context);
        return;
    }
    for (int64_t i = 0; i < n; i++) body(self->order == RIG_FORWARD ? i : n - 1 - i, context);
}

static inline void rig_progress(const weft_host *host, const char *what, double done, double total) {
    rig_host *self = (rig_host *)(uintptr_t)host;
    (void)what;
    ck_assert(done > 0 && done <= total);
    self->progress_open = done < total;
    self->progress_calls++;
}

/* --- the tokenizer --- */

typedef struct rig_tokenizer {
    int numbered, bos, eos;
    int foreign; /* this byte becomes the id `foreign_id`; 0: disabled */
    int32_t foreign_id;
    weft_status fails; /* result of encode for a document with the byte '!'; 0: disabled */
    int silent;        /* ... without an error message */
    int keeps;         /* record encoded documents; requires a single thread */
    const char *cuts;  /* a file that encode truncates */
    char *seen;        /* recorded documents: 8 bytes of length, then the bytes */
    size_t seen_bytes, seen_documents;
} rig_tokenizer;

static inline void rig_keep(rig_tokenizer *self, const char *text, size_t bytes) {
    self->seen = realloc(self->seen, self->seen_bytes + 8 + bytes);
    ck_assert_ptr_nonnull(self->seen);
    memcpy(self->seen + self->seen_bytes, &bytes, 8);
    memcpy(self->seen + self->seen_bytes + 8, text, bytes);
    self->seen_bytes += 8 + bytes;
    self->seen_documents++;
}

static inline weft_status rig_put_bytes(const rig_tokenizer *self, const weft_ids_sink *sink, const char *text,
                                        size_t n) {
    int32_t ids[61]; /* several calls of the sink for a long document */
    size_t used = 0;
    weft_status status = WEFT_OK;
    if (self->bos) ids[used++] = BOS;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        ids[used++] = self->foreign != 0 && text[i] == self->foreign ? self->foreign_id : (unsigned char)text[i];
        if (used == 60) {
            status = sink->put(sink->context, ids, used);
            used = 0;
        }
    }
    if (self->eos) ids[used++] = EOS;
    return status == WEFT_OK ? sink->put(sink->context, ids, used) : status;
}

static inline weft_status rig_put_numbers(const weft_ids_sink *sink, const char *text, size_t n) {
    char copy[64];
    int32_t ids[MOST_IDS];
    int document = 0, count = 0;
    ck_assert_uint_lt(n, sizeof copy);
    memcpy(copy, text, n);
    copy[n] = '\0';
    ck_assert_msg(sscanf(copy, "%d:%d", &document, &count) == 2, "\"%s\"", copy);
    ck_assert_int_le(count, MOST_IDS);
    for (int i = 0; i < count; i++) ids[i] = document * MOST_IDS + i;
    return sink->put(sink->context, ids, (size_t)count);
}

static inline weft_status rig_encode(const weft_data_job *job, const weft_ids_sink *sink, const char *text,
                                     size_t bytes, weft_error *err) {
    rig_tokenizer *self = job->context;
    if (self->cuts != NULL) ck_assert_int_eq(truncate(self->cuts, 0), 0);
    if (self->keeps) rig_keep(self, text, bytes);
    if (self->fails != WEFT_OK && memchr(text, '!', bytes) != NULL) {
        if (!self->silent) (void)weft_error_set(err, self->fails, "an exclamation mark is too much");
        return self->fails;
    }
    return self->numbered ? rig_put_numbers(sink, text, bytes) : rig_put_bytes(self, sink, text, bytes);
}

/* --- the data --- */

/* Loads the plugin once per process. */
static inline const weft_plugin *rig_plugin(void) {
    static weft_plugins *plugins;
    static const weft_loaded *loaded;
    const weft_plugins_settings options = {.path = NULL};
    weft_error err = WEFT_ERROR_INIT;
    if (loaded != NULL) return loaded->plugin;
    ck_assert_msg(weft_plugins_create(&plugins, &options, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(weft_plugins_get(plugins, &loaded, "data", "text", &err) == WEFT_OK, "%s", err.text);
    return loaded->plugin;
}

typedef struct rig {
    weft_config *config;
    const weft_plugin *plugin;
    const weft_data_plugin *table;
    weft_data *data;
    unsigned char filled[256]; /* the config struct */
    weft_data_job job;
    rig_host host;
    rig_tokenizer tokenizer;
    int64_t bytes; /* allocated before the data were created */
} rig;

/* Returns defaults, which a test may change before rig_make. */
static inline rig rig_of(int numbered) {
    rig self;
    memset(&self, 0, sizeof self);
    self.tokenizer.numbered = numbered;
    self.host.host = *weft_services();
    self.host.host.log = rig_log;
    self.host.host.alloc = rig_alloc;
    self.host.host.parallel_for = rig_parallel_for;
    self.host.host.progress = rig_progress;
    self.host.fail_at = -1;
    self.job.struct_size = (uint32_t)sizeof self.job;
    self.job.seed = 1;
    self.job.vocab_size = numbered ? INT32_MAX : 258;
    self.job.max_context = 1 << 24;
    self.job.encode = rig_encode;
    return self;
}

/* The same with a tokenizer that records each document. */
static inline rig rig_recording(void) {
    rig r = rig_of(0);
    r.tokenizer.keeps = 1;
    r.tokenizer.bos = r.tokenizer.eos = 1; /* each document has a target */
    return r;
}

/* overrides: "data.path=x", ..., NULL. */
static inline weft_status rig_make(rig *self, const char *const *overrides, weft_error *err) {
    weft_status status;
    size_t n = 0;
    while (overrides[n] != NULL) n++;
    self->job.context = &self->tokenizer;
    self->bytes = weft_services_bytes();
    self->plugin = rig_plugin();
    self->table = self->plugin->table;
    ck_assert_uint_le(self->plugin->config_size, sizeof self->filled);
    ck_assert_msg(weft_config_load(&self->config, NULL, overrides, n, err) == WEFT_OK, "%s", err->text);
    status = weft_config_fill(self->config, self->filled, "data", self->plugin->keys, self->plugin->n_keys,
                              self->plugin->key_stride, err);
    if (status == WEFT_OK) status = weft_config_finish(self->config, err);
    if (status == WEFT_OK) status = self->plugin->validate(self->filled, err);
    if (status == WEFT_OK) status = self->table->create(&self->data, &self->host.host, self->filled, &self->job, err);
    return status;
}

/* Frees everything, and checks for leaks of the plugin. */
static inline void rig_end(rig *self) {
    if (self->data != NULL) self->table->destroy(self->data);
    ck_assert_int_eq(weft_services_bytes(), self->bytes);
    ck_assert_int_eq(self->host.progress_open, 0);
    weft_config_free(self->config);
    free(self->tokenizer.seen);
    memset(self, 0, sizeof *self);
}

#define RIG_MAKE(self, ...)                                                                                            \
    do {                                                                                                               \
        const char *const overrides_[] = {__VA_ARGS__, NULL};                                                          \
        weft_error err_ = WEFT_ERROR_INIT;                                                                             \
        const weft_status status_ = rig_make(self, overrides_, &err_);                                                 \
        ck_assert_msg(status_ == WEFT_OK, "status %d: %s", (int)status_, err_.text);                                   \
    } while (0)

static inline weft_split_info rig_split(const rig *self, int32_t split) {
    weft_split_info info;
    memset(&info, 0xEE, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    info.flags = 0;
    self->table->split_info(self->data, split, &info);
    ck_assert_uint_eq(info.struct_size, sizeof info);
    return info;
}

static inline weft_data_info rig_info(const rig *self) {
    weft_data_info info = {.struct_size = (uint32_t)sizeof info};
    self->table->info(self->data, &info);
    return info;
}

/* --- micro-batches --- */

/* A micro-batch of rows x length positions, with guard values after it. */
typedef struct rig_micro_batch {
    weft_micro_batch micro_batch;
    int32_t *memory;
    size_t places;
} rig_micro_batch;

enum { RIG_GUARD = 16, RIG_PARTS = 5 };

static inline void rig_micro_batch_free(rig_micro_batch *self) {
    free(self->memory);
    memset(self, 0, sizeof *self);
}

/* Checks the guards, the start of each position's document, and that positions without a target are empty. */
static inline void rig_micro_batch_check(const rig_micro_batch *self, const weft_micro_batch *shape) {
    const weft_micro_batch *micro_batch = &self->micro_batch;
    int64_t targets = 0;
    for (size_t part = 0; part < RIG_PARTS; part++)
        for (size_t i = 0; i < RIG_GUARD; i++)
            must(self->memory[part * (self->places + RIG_GUARD) + self->places + i] == 0x6B6B6B6B);
    for (size_t at = 0; at < self->places; at++) {
        const int32_t place = (int32_t)(at % (size_t)micro_batch->length);
        if (micro_batch->weights[at] == 0.0f) {
            must(micro_batch->ids[at] == 0 && micro_batch->targets[at] == 0 && micro_batch->positions[at] == 0);
            must(micro_batch->starts[at] == place);
            continue;
        }
        targets++;
        must(micro_batch->weights[at] == 1.0f);
        must(micro_batch->starts[at] >= 0 && micro_batch->starts[at] <= place);
        must(micro_batch->positions[at] == place - micro_batch->starts[at]);
    }
    must(micro_batch->n_targets == targets);
    must(shape->rows == micro_batch->rows && shape->length == micro_batch->length && shape->n_targets == targets);
}

/* Reads a micro-batch and checks the rules for all micro-batches. The caller frees it. */
static inline rig_micro_batch rig_read(const rig *self, int32_t split, uint64_t first_row, int32_t rows) {
    const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, rows, first_row};
    const weft_data_info info = rig_info(self);
    weft_micro_batch shape = {.struct_size = (uint32_t)sizeof shape};
    weft_error err = WEFT_ERROR_INIT;
    rig_micro_batch out = {0};
    size_t step = 0;
    int32_t l = 0;
    if (self->table->shape(self->data, &shape, &request, &err) != WEFT_OK) ck_abort_msg("%s", err.text);
    while (l < info.n_lengths && info.lengths[l] != shape.length) l++;
    must(l < info.n_lengths);
    out.places = (size_t)rows * (size_t)shape.length;
    step = out.places + RIG_GUARD;
    out.memory = malloc(RIG_PARTS * step * sizeof *out.memory);
    must(out.memory != NULL);
    memset(out.memory, 0x6B, RIG_PARTS * step * sizeof *out.memory);
    out.micro_batch.struct_size = (uint32_t)sizeof out.micro_batch;
    out.micro_batch.ids = out.memory;
    out.micro_batch.targets = out.memory + step;
    out.micro_batch.starts = out.memory + 2 * step;
    out.micro_batch.positions = out.memory + 3 * step;
    out.micro_batch.weights = (float *)(void *)(out.memory + 4 * step);
    if (self->table->micro_batch(self->data, &out.micro_batch, &request, &err) != WEFT_OK) ck_abort_msg("%s", err.text);
    must(out.micro_batch.rows == rows);
    rig_micro_batch_check(&out, &shape);
    return out;
}

/* Hashes the content of a sequence. */
static inline uint64_t rig_row_hash(const rig_micro_batch *from, int32_t row) {
    const size_t length = (size_t)from->micro_batch.length, step = from->places + RIG_GUARD;
    uint64_t hash = 1469598103934665603u;
    for (size_t part = 0; part < RIG_PARTS; part++)
        for (size_t t = 0; t < length; t++) {
            hash = (hash ^ (uint32_t)from->memory[part * step + (size_t)row * length + t]) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 29;
        }
    return hash;
}

#endif
