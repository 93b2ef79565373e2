/* Conversations for the tokenizer that `weft plugins new` writes, which supports none itself: it concatenates the
 * contents, and each assistant's content is an answer. Included after <weft/tokenizer.h>; a mutant of the tokenizer
 * defines one of the names below differently. */
#ifndef CHAT_STRIDE
#define CHAT_STRIDE(chat) ((chat)->stride)
#endif
#ifndef CHAT_KNOWN
#define CHAT_KNOWN(p, size) weft_struct_known(p, size)
#endif
#ifndef CHAT_WHOLE
#define CHAT_WHOLE(p, type) WEFT_WHOLE(p, type)
#endif

static weft_status chat_judge(const weft_chat *chat, weft_error *err) {
    uint64_t i;
    if (!CHAT_WHOLE(chat, weft_chat)) return weft_error_set(err, WEFT_E_PLUGIN, "a chat that is too short");
    if (!CHAT_KNOWN(chat, sizeof *chat)) return weft_error_set(err, WEFT_E_UNSUPPORTED, "a chat that asks for more");
    for (i = 0; i < chat->n_messages; i++) {
        const char *at = (const char *)chat->messages + i * CHAT_STRIDE(chat);
        const weft_chat_message *m = (const weft_chat_message *)(const void *)at;
        if (!CHAT_WHOLE(m, weft_chat_message)) return weft_error_set(err, WEFT_E_PLUGIN, "a message is too short");
        if (!CHAT_KNOWN(m, sizeof *m)) return weft_error_set(err, WEFT_E_UNSUPPORTED, "a message asks for more");
    }
    return WEFT_OK;
}

static const weft_chat_message *chat_message(const weft_chat *chat, uint64_t i) {
    const char *at = (const char *)chat->messages + i * CHAT_STRIDE(chat);
    return (const weft_chat_message *)(const void *)at;
}

static weft_status chat_check(const weft_tokenizer *tokenizer, const char *named, weft_error *err) {
    (void)tokenizer;
    return named == NULL ? WEFT_OK : weft_error_set(err, WEFT_E_DATA, "no template is called %s", named);
}

static weft_status chat_render(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const weft_chat *chat,
                               weft_error *err) {
    weft_status status = chat_judge(chat, err);
    uint64_t i;
    (void)tokenizer;
    for (i = 0; i < chat->n_messages && status == WEFT_OK; i++)
        status = sink->put(sink->context, chat_message(chat, i)->content, chat_message(chat, i)->content_bytes);
    return status;
}

static weft_status chat_encode(const weft_tokenizer *tokenizer, const weft_chat_sink *sink, const weft_chat *chat,
                               weft_error *err) {
    weft_status status = chat_judge(chat, err);
    int32_t answers = 0;
    uint64_t i, k;
    (void)tokenizer;
    for (i = 0; i < chat->n_messages && status == WEFT_OK; i++) {
        const weft_chat_message *m = chat_message(chat, i);
        const int32_t answer = strcmp(m->role, "assistant") == 0 ? answers++ : -1;
        for (k = 0; k < m->content_bytes && status == WEFT_OK; k++) {
            const int32_t id = (int32_t)(unsigned char)m->content[k];
            status = sink->put(sink->context, &id, &answer, 1);
        }
    }
    return status;
}

static const char *chat_named(uint32_t i) {
    (void)i;
    return NULL;
}

static const void *chat_extension(const weft_tokenizer *tokenizer, const char *id) {
    static const weft_tokenizer_chat table = {
        (uint32_t)sizeof table, 0, chat_check, chat_render, chat_encode, chat_named, NULL};
    (void)tokenizer;
    return strcmp(id, WEFT_TOKENIZER_CHAT) == 0 ? &table : NULL;
}
