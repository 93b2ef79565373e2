/* bytes_job.c: see bytes_job.h. */
#include "bytes_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "plugin/services.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* the signatures of a job */

enum { ROWS = 2, BEGIN = 256, END = 257, IDS = 258 };

static weft_status encode(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                          weft_error *err) {
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = (unsigned char)text[i];
        const weft_status status = sink->put(sink->context, &id, 1);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

static weft_status encode_with(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                               uint32_t flags, weft_error *err) {
    return encode(job, sink, text, bytes, err);
}

static weft_status decode(const weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err) {
    for (size_t i = 0; i < n; i++) {
        const char byte = (char)ids[i];
        const weft_status status = ids[i] < 256 ? sink->put(sink->context, &byte, 1) : WEFT_OK;
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

static weft_status put_id(const weft_chat_sink *sink, int32_t id, int32_t answer) {
    return sink->put(sink->context, &id, &answer, 1);
}

/* BEGIN, then each message's bytes; an assistant's message is an answer, followed by END. */
static weft_status chat(const weft_data_job *job, const weft_chat_sink *sink, const weft_chat *chat, weft_error *err) {
    int32_t answers = 0;
    weft_status status = put_id(sink, BEGIN, -1);
    for (uint64_t i = 0; i < chat->n_messages && status == WEFT_OK; i++) {
        const weft_chat_message *message =
            (const weft_chat_message *)(const void *)((const char *)chat->messages + i * chat->stride);
        const int32_t answer = strcmp(message->role, "assistant") == 0 ? answers++ : -1;
        for (uint64_t b = 0; b < message->content_bytes && status == WEFT_OK; b++)
            status = put_id(sink, (unsigned char)message->content[b], answer);
        if (status == WEFT_OK && answer >= 0) status = put_id(sink, END, answer | WEFT_CHAT_END);
    }
    return status;
}

static weft_status check_chat(const weft_data_job *job, const char *named, weft_error *err) {
    return WEFT_OK;
}

static int32_t special_id(const weft_data_job *job, const char *name, size_t bytes) {
    return -1;
}

const weft_data_job *fuzz_bytes_job(void) {
    static const weft_tokenizer_info info = {
        .struct_size = (uint32_t)sizeof info, .vocab_size = IDS, .bos = BEGIN, .eos = END, .unk = -1, .pad = -1};
    static const weft_data_job job = {.struct_size = (uint32_t)sizeof job,
                                      .seed = 1,
                                      .vocab_size = IDS,
                                      .max_context = FUZZ_CONTEXT,
                                      .encode = encode,
                                      .encode_with = encode_with,
                                      .decode = decode,
                                      .chat = chat,
                                      .check_chat = check_chat,
                                      .special_id = special_id,
                                      .tokenizer = &info};
    return &job;
}

static void fail(const char *what, int at) {
    (void)fprintf(stderr, "fuzz: %s at place %d\n", what, at);
    abort();
}

static void check_micro_batch(const weft_micro_batch *micro_batch) {
    for (int i = 0; i < micro_batch->rows * micro_batch->length; i++) {
        if (micro_batch->ids[i] < 0 || micro_batch->ids[i] >= IDS) fail("an id that is none", i);
        if (micro_batch->weights[i] > 0 && (micro_batch->targets[i] < 0 || micro_batch->targets[i] >= IDS))
            fail("a target that is none", i);
        if (micro_batch->starts[i] < 0 || micro_batch->starts[i] > i % micro_batch->length)
            fail("a start behind its place", i);
        if (micro_batch->positions[i] < 0 || micro_batch->positions[i] >= FUZZ_CONTEXT)
            fail("a position that is none", i);
    }
}

/* Fetches the first sequences of each split. */
static void take_micro_batches(const weft_data_plugin *plugin, const weft_data *data) {
    int32_t ids[ROWS * FUZZ_CONTEXT], targets[ROWS * FUZZ_CONTEXT], starts[ROWS * FUZZ_CONTEXT];
    int32_t positions[ROWS * FUZZ_CONTEXT];
    float weights[ROWS * FUZZ_CONTEXT];
    for (int32_t split = WEFT_SPLIT_TRAIN; split <= WEFT_SPLIT_ALL; split++) {
        weft_split_info info = {.struct_size = (uint32_t)sizeof info};
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, ROWS, 0};
        weft_micro_batch micro_batch = {.struct_size = (uint32_t)sizeof micro_batch,
                                        .ids = ids,
                                        .targets = targets,
                                        .weights = weights,
                                        .starts = starts,
                                        .positions = positions};
        weft_error err = WEFT_ERROR_INIT;
        weft_status status = WEFT_OK;
        plugin->split_info(data, split, &info);
        if (info.rows == 0) continue;
        status = plugin->micro_batch(data, &micro_batch, &request, &err);
        fuzz_judge(status, &err);
        if (status == WEFT_OK) check_micro_batch(&micro_batch);
    }
}

void fuzz_take_data(fuzz_entry *entry, const char *const *overrides, size_t n) {
    const weft_plugin *plugin = fuzz_plugin(entry);
    const weft_data_plugin *table = plugin->table;
    weft_config *config = NULL;
    void *keys = fuzz_config(&config, plugin, overrides, n);
    weft_data *made = NULL;
    weft_error err = WEFT_ERROR_INIT;
    fuzz_judge(table->create(&made, weft_services(), keys, fuzz_bytes_job(), &err), &err);
    if (made != NULL) {
        take_micro_batches(table, made);
        table->destroy(made);
    }
    fuzz_config_free(config, keys);
}
