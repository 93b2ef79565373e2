/* host/run/data_job.c: see data_job.h. */
#include "run/data_job.h"

#include "plugin/enter.h"
#include "plugin/process.h"

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
    weft_status status, changed;
    uint64_t fp;
    if (table == NULL) return no_chat(err);
    before = weft_plugin_enter(text->plugin, "chat encode");
    fp = weft_process_fp();
    status = table->encode(text->tokenizer, sink, chat, err);
    changed = weft_process_restore_fp(fp, "its chat encode ran", status == WEFT_OK ? err : NULL);
    return weft_plugin_leave(before, status == WEFT_OK ? changed : status, err);
}

/* A sink between a tokenizer and the plugin that gets the ids. */
typedef struct checked {
    const weft_ids_sink *to;
    int32_t n_ids, wrong; /* wrong: the first id that is none of the tokenizer's own */
    bool has_wrong;
} checked;

static weft_status put_checked(void *context, const int32_t *ids, size_t n) {
    checked *self = context;
    for (size_t i = 0; i < n && !self->has_wrong; i++) {
        self->has_wrong = ids[i] < 0 || ids[i] >= self->n_ids;
        self->wrong = ids[i];
    }
    return self->has_wrong ? WEFT_E_PLUGIN : self->to->put(self->to->context, ids, n);
}

/* Calls the tokenizer for a data plugin. Its mistakes are reported as its own, not as the caller's. */
static weft_status encode_checked(const weft_text *with, const weft_ids_sink *sink, const char *text, size_t bytes,
                                  uint32_t flags, weft_error *err) {
    checked between = {.to = sink, .n_ids = with->info.vocab_size};
    const weft_ids_sink checks = {&between, put_checked};
    const weft_doing before = weft_plugin_enter(with->plugin, "encode");
    const uint64_t fp = weft_process_fp();
    weft_status status = with->plugin->encode(with->tokenizer, &checks, text, bytes, flags, err);
    const weft_status changed = weft_process_restore_fp(fp, "its encode ran", status == WEFT_OK ? err : NULL);
    if (between.has_wrong)
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "gives the id %d in its encode, and by its info has the ids 0 to %d",
                                (int)between.wrong, (int)between.n_ids - 1);
    return weft_plugin_leave(before, status == WEFT_OK ? changed : status, err);
}

static weft_text *text_of(const weft_data_job *job) {
    return ((const weft_data_source *)job->context)->text;
}

static weft_status encode_document(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                                   weft_error *err) {
    const weft_text *with = text_of(job);
    return encode_checked(with, sink, text, bytes, with->document_flags, err);
}

static weft_status encode_with(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                               uint32_t flags, weft_error *err) {
    const weft_text *with = text_of(job);
    return encode_checked(with, sink, text, bytes, flags, err);
}

static weft_status decode(const weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err) {
    const weft_text *with = text_of(job);
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, with->plugin, decode, err, with->tokenizer, sink, ids, n, flags);
    return status;
}

/* Data that name a template are learned with it, so the saved model has it in its files. Several threads may say so. */
static void keep_template(weft_text *text, const char *named) {
    const weft_tokenizer_chat *table = weft_text_chat(text);
    __atomic_store_n(&text->chats, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; named != NULL && table != NULL && table->named(i) != NULL; i++) {
        if (strcmp(table->named(i), named) != 0) continue;
        __atomic_store_n(&text->chat_named, table->named(i), __ATOMIC_RELAXED);
        if (table->source != NULL) __atomic_store_n(&text->chat_source, table->source(i), __ATOMIC_RELAXED);
    }
}

static weft_status chat(const weft_data_job *job, const weft_chat_sink *sink, const weft_chat *conversation,
                        weft_error *err) {
    const weft_status status = weft_text_encode_chat(text_of(job), sink, conversation, err);
    if (status == WEFT_OK) keep_template(text_of(job), conversation->named);
    return status;
}

static weft_status check_chat(const weft_data_job *job, const char *named, weft_error *err) {
    const weft_text *with = text_of(job);
    const weft_tokenizer_chat *table = weft_text_chat(with);
    weft_doing before;
    if (table == NULL) return no_chat(err);
    before = weft_plugin_enter(with->plugin, "chat check");
    return weft_plugin_leave(before, table->check(with->tokenizer, named, err), err);
}

static int32_t special_id(const weft_data_job *job, const char *name, size_t bytes) {
    const weft_text *with = text_of(job);
    const weft_tokenizer_special *table = weft_text_special(with);
    return table == NULL ? -1 : table->id(with->tokenizer, name, bytes);
}

/* ---- shared memory ---- */

/* The host's own end of the shared bytes: what making them has set in the text. */
typedef struct trailer {
    int32_t chats, named; /* named: index of the template; -1: none */
} trailer;

typedef struct making {
    weft_text *text;
    weft_share_make *make;
    void *context;
} making;

static weft_status make_with_trailer(void *context, const weft_bytes_sink *sink, weft_error *err) {
    const making *self = context;
    const weft_tokenizer_chat *table = weft_text_chat(self->text);
    weft_status status = self->make(self->context, sink, err);
    trailer end = {.named = -1};
    if (status != WEFT_OK) return status;
    end.chats = __atomic_load_n(&self->text->chats, __ATOMIC_RELAXED);
    for (uint32_t i = 0; table != NULL && self->text->chat_named != NULL && table->named(i) != NULL; i++)
        if (strcmp(table->named(i), self->text->chat_named) == 0) end.named = (int32_t)i;
    return sink->put(sink->context, &end, sizeof end);
}

static weft_status share(const weft_data_job *job, weft_share_make *make, void *context, const void **bytes, size_t *n,
                         weft_error *err) {
    const weft_data_source *source = job->context;
    const weft_tokenizer_chat *table = weft_text_chat(source->text);
    making all = {source->text, make, context};
    const void *made = NULL;
    size_t size = 0;
    trailer end;
    const weft_status status = weft_data_share_make(source->share, make_with_trailer, &all, &made, &size, err);
    if (status != WEFT_OK) return status;
    memcpy(&end, (const char *)made + size - sizeof end, sizeof end);
    if (end.chats != 0) keep_template(source->text, end.named < 0 ? NULL : table->named((uint32_t)end.named));
    *bytes = made;
    *n = size - sizeof end;
    return WEFT_OK;
}

void weft_data_job_fill(weft_data_job *job, weft_data_source *source, uint64_t seed, const weft_model_info *model) {
    memset(job, 0, sizeof *job);
    job->struct_size = (uint32_t)sizeof *job;
    job->seed = seed;
    job->vocab_size = model->vocab_size;
    job->max_context = model->max_context;
    job->encode = encode_document;
    job->context = source;
    job->encode_with = encode_with;
    job->decode = decode;
    job->chat = chat;
    job->check_chat = check_chat;
    job->special_id = special_id;
    job->tokenizer = &source->text->info;
    job->share = source->share != NULL ? share : NULL;
}
