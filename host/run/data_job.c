/* host/run/data_job.c: see data_job.h. */
#include "run/data_job.h"

#include "plugin/enter.h"

const weft_tokenizer_chat *weft_text_chat(const weft_text *text) {
    const weft_tokenizer_chat *table = weft_text_extension(text, WEFT_TOKENIZER_CHAT);
    return table == NULL || !WEFT_WHOLE(table, weft_tokenizer_chat) ? NULL : table;
}

const weft_tokenizer_special *weft_text_special(const weft_text *text) {
    const weft_tokenizer_special *table = weft_text_extension(text, WEFT_TOKENIZER_SPECIAL);
    return table == NULL || !WEFT_WHOLE(table, weft_tokenizer_special) ? NULL : table;
}

static weft_status no_chat(weft_error *err) {
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "this run's tokenizer plugin renders no conversations (it has no "
                          "extension " WEFT_TOKENIZER_CHAT ")");
}

weft_status weft_text_encode_chat(const weft_text *text, const weft_chat_sink *sink, const weft_chat *chat,
                                  weft_error *err) {
    const weft_tokenizer_chat *table = weft_text_chat(text);
    weft_doing before;
    if (table == NULL) return no_chat(err);
    before = weft_plugin_enter(text->plugin, "chat encode");
    return weft_plugin_leave(before, table->encode(text->tokenizer, sink, chat, err), err);
}

static weft_status encode_document(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                                   weft_error *err) {
    const weft_text *with = job->context;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, with->plugin, encode, err, with->tokenizer, sink, text, bytes, with->document_flags);
    return status;
}

static weft_status encode_with(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                               uint32_t flags, weft_error *err) {
    const weft_text *with = job->context;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, with->plugin, encode, err, with->tokenizer, sink, text, bytes, flags);
    return status;
}

static weft_status decode(const weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err) {
    const weft_text *with = job->context;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, with->plugin, decode, err, with->tokenizer, sink, ids, n, flags);
    return status;
}

/* Data that name a template are learned with it, so the saved model has it in its files. Several threads may say so. */
static void keep_template(weft_text *text, const char *named) {
    const weft_tokenizer_chat *table = weft_text_chat(text);
    if (named == NULL || table == NULL || table->source == NULL) return;
    for (uint32_t i = 0; table->named(i) != NULL; i++)
        if (strcmp(table->named(i), named) == 0)
            __atomic_store_n(&text->chat_source, table->source(i), __ATOMIC_RELAXED);
}

static weft_status chat(const weft_data_job *job, const weft_chat_sink *sink, const weft_chat *conversation,
                        weft_error *err) {
    const weft_status status = weft_text_encode_chat(job->context, sink, conversation, err);
    if (status == WEFT_OK) keep_template(job->context, conversation->named);
    return status;
}

static weft_status check_chat(const weft_data_job *job, const char *named, weft_error *err) {
    const weft_text *with = job->context;
    const weft_tokenizer_chat *table = weft_text_chat(with);
    weft_doing before;
    if (table == NULL) return no_chat(err);
    before = weft_plugin_enter(with->plugin, "chat check");
    return weft_plugin_leave(before, table->check(with->tokenizer, named, err), err);
}

static int32_t special_id(const weft_data_job *job, const char *name, size_t bytes) {
    const weft_text *with = job->context;
    const weft_tokenizer_special *table = weft_text_special(with);
    return table == NULL ? -1 : table->id(with->tokenizer, name, bytes);
}

void weft_data_job_fill(weft_data_job *job, weft_text *text, uint64_t seed, const weft_model_info *model) {
    memset(job, 0, sizeof *job);
    job->struct_size = (uint32_t)sizeof *job;
    job->seed = seed;
    job->vocab_size = model->vocab_size;
    job->max_context = model->max_context;
    job->encode = encode_document;
    job->context = text;
    job->encode_with = encode_with;
    job->decode = decode;
    job->chat = chat;
    job->check_chat = check_chat;
    job->special_id = special_id;
    job->tokenizer = &text->info;
}
