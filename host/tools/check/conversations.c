/* host/tools/check/conversations.c: see conversations.h. */
#include "tools/check/conversations.h"

#include "tools/check/newer_abi_struct.h"
#include "tools/check/rule.h"

#include "plugin/enter.h"

#include <stdlib.h>

enum { MOST_TEXT = 1 << 14, MESSAGES = 3 };

typedef struct rendered {
    char text[MOST_TEXT];
    size_t n_text;
    int32_t ids[MOST_TEXT], answers[MOST_TEXT];
    size_t n_ids;
} rendered;

static weft_status put_text(void *context, const char *bytes, size_t n) {
    rendered *to = context;
    if (n > MOST_TEXT - to->n_text) return WEFT_E_STOPPED;
    memcpy(to->text + to->n_text, bytes, n);
    to->n_text += n;
    return WEFT_OK;
}

static weft_status put_ids(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    rendered *to = context;
    if (n > MOST_TEXT - to->n_ids) return WEFT_E_STOPPED;
    memcpy(to->ids + to->n_ids, ids, n * sizeof *ids);
    memcpy(to->answers + to->n_ids, answers, n * sizeof *answers);
    to->n_ids += n;
    return WEFT_OK;
}

typedef struct desk {
    const weft_tokenizer_plugin *plugin;
    const weft_tokenizer_chat *chat;
    const weft_tokenizer *made;
    const char *named;
    rendered one, two;
} desk;

static weft_status render(desk *d, rendered *out, const weft_chat *chat, weft_error *err) {
    const weft_text_sink text = {out, put_text};
    const weft_chat_sink ids = {out, put_ids};
    const weft_doing before = weft_plugin_enter(d->plugin, "render of a conversation");
    weft_status status = WEFT_OK;
    out->n_text = out->n_ids = 0;
    status = d->chat->render(d->made, &text, chat, err);
    if (status == WEFT_OK) status = d->chat->encode(d->made, &ids, chat, err);
    return weft_plugin_leave(before, status, err);
}

static bool is_same(const rendered *a, const rendered *b) {
    return a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0 && a->n_ids == b->n_ids &&
           memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0 &&
           memcmp(a->answers, b->answers, a->n_ids * sizeof *a->answers) == 0;
}

/* Zeros ask for nothing. */
static weft_status asks_nothing_more(desk *d, const weft_chat *plain, weft_error *err) {
    weft_chat *longer = weft_newer_abi_copy(plain, 1, sizeof *plain, 0);
    weft_chat_message *messages = weft_newer_abi_copy(plain->messages, MESSAGES, sizeof *messages, 0);
    weft_status status = WEFT_E_MEMORY;
    if (longer != NULL && messages != NULL) {
        longer->messages = messages;
        longer->stride += WEFT_NEWER_ABI_BYTES;
        status = render(d, &d->two, longer, err);
        if (status == WEFT_OK && !is_same(&d->one, &d->two))
            status = WEFT_BROKEN(err, "a conversation of a later host, whose structs are longer and zero there, gives "
                                      "other ids: it walks the messages at its own sizeof and not by the stride");
        else if (status != WEFT_OK)
            (void)weft_error_prefix(err, "a later host's conversation, whose structs are longer and zero there, is "
                                         "refused: ");
    } else (void)weft_error_set(err, status, "no memory for a conversation");
    free(messages);
    free(longer);
    return status;
}

static weft_status must_refuse(desk *d, const weft_chat *chat, const char *what, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    const weft_status status = render(d, &d->two, chat, &said);
    if (status == WEFT_OK) return WEFT_BROKEN(err, "it takes %s", what);
    return said.text[0] == '\0' ? WEFT_BROKEN(err, "it refuses %s without a sentence", what) : WEFT_OK;
}

/* What is asked for and not understood would be lost. */
static weft_status asks_something_more(desk *d, const weft_chat *plain, weft_error *err) {
    static const char what[] = " that asks for something behind its end, as SDK 1.0 has it, and does without: it "
                               "refuses it, by weft_struct_known";
    weft_chat *longer = weft_newer_abi_structs(plain, 1, sizeof *plain);
    weft_chat_message *messages = weft_newer_abi_structs(plain->messages, MESSAGES, sizeof *messages);
    weft_chat with = *plain;
    char said[256];
    weft_status status = WEFT_OK;
    (void)snprintf(said, sizeof said, "a weft_chat%s", what);
    status = must_refuse(d, longer, said, err);
    with.messages = messages;
    with.stride += WEFT_NEWER_ABI_BYTES;
    (void)snprintf(said, sizeof said, "a weft_chat_message%s", what);
    if (status == WEFT_OK) status = must_refuse(d, &with, said, err);
    free(messages);
    free(longer);
    return status;
}

static weft_status asks_less(desk *d, const weft_chat *plain, weft_error *err) {
    weft_chat_message messages[MESSAGES];
    weft_chat shorter = *plain;
    weft_status status = WEFT_OK;
    shorter.struct_size = WEFT_SHORTER_BYTES;
    status = must_refuse(d, &shorter, "a weft_chat that is shorter than SDK 1.0 has it", err);
    memcpy(messages, plain->messages, sizeof messages);
    messages[MESSAGES - 1].struct_size = WEFT_SHORTER_BYTES;
    shorter = *plain;
    shorter.messages = messages;
    return status == WEFT_OK ? must_refuse(d, &shorter, "a weft_chat_message that is shorter than SDK 1.0 has it", err)
                             : status;
}

/* The template of the tokenizer's files, or the first one that it knows by name. */
static bool finds_template(desk *d) {
    weft_error err = WEFT_ERROR_INIT;
    d->named = NULL;
    if (d->chat->check(d->made, NULL, &err) == WEFT_OK) return true;
    d->named = d->chat->named(0);
    return d->named != NULL && d->chat->check(d->made, d->named, &err) == WEFT_OK;
}

weft_status weft_conversations_later(const weft_tokenizer_plugin *table, const weft_tokenizer *made, weft_error *err) {
    const uint32_t size = (uint32_t)sizeof(weft_chat_message);
    const weft_chat_message messages[MESSAGES] = {{size, 0, "user", "Which thread goes across?", 25, NULL, 0},
                                                  {size, 0, "assistant", "The weft.", 9, NULL, 0},
                                                  {size, 0, "user", "And along?", 10, NULL, 0}};
    weft_chat chat = {(uint32_t)sizeof chat, 0, messages, MESSAGES, size, 0, NULL, NULL, 0, 1};
    desk *d = calloc(1, sizeof *d);
    weft_status status = WEFT_OK;
    if (d == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a conversation");
    d->plugin = table;
    d->made = made;
    if (table->extension != NULL) d->chat = table->extension(made, WEFT_TOKENIZER_CHAT);
    if (d->chat != NULL && finds_template(d)) {
        chat.named = d->named;
        status = render(d, &d->one, &chat, err);
        if (status == WEFT_OK) status = asks_nothing_more(d, &chat, err);
        if (status == WEFT_OK) status = asks_something_more(d, &chat, err);
        if (status == WEFT_OK) status = asks_less(d, &chat, err);
    }
    free(d);
    return status;
}
