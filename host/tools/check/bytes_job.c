/* host/tools/check/bytes_job.c: see bytes_job.h. */
#include "tools/check/bytes_job.h"

#include <stdbool.h>

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
