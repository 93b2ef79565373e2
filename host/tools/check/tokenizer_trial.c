/* host/tools/check/tokenizer_trial.c: see tokenizer_trial.h. */
#include "tools/check/tokenizer_trial.h"

#include "base/file.h"
#include "base/text.h"
#include "plugin/enter.h"
#include "tools/check/newer_abi.h"
#include "tools/common/plugins.h"

#include <stdlib.h>
#include <weft/random.h>

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
    const weft_call_record before = weft_plugin_enter(d->plugin, "render of a conversation");
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

/* Checks that zeros after the known fields change no result. */
static weft_status asks_nothing_more(desk *d, const weft_chat *plain, weft_error *err) {
    weft_chat *longer = weft_newer_abi_copy(plain, 1, sizeof *plain, 0);
    weft_chat_message *messages = weft_newer_abi_copy(plain->messages, MESSAGES, sizeof *messages, 0);
    weft_status status = WEFT_OK;
    longer->messages = messages;
    longer->stride += WEFT_NEWER_ABI_BYTES;
    status = render(d, &d->two, longer, err);
    if (status == WEFT_OK && !is_same(&d->one, &d->two))
        status = WEFT_BROKEN(err, "a conversation of a newer host, with longer structs that are zero there, has "
                                  "different ids: index the messages by the stride and not by sizeof");
    else if (status != WEFT_OK)
        (void)weft_error_prefix(err,
                                "a newer host's conversation, with longer structs that are zero there, is rejected: ");
    free(messages);
    free(longer);
    return status;
}

static weft_status must_refuse(desk *d, const weft_chat *chat, const char *what, const char *fix, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    return weft_rejected_check(render(d, &d->two, chat, &said), &said, "it", what, fix, err);
}

/* Checks that unknown non-zero fields are rejected, because ignoring them would lose a request. */
static weft_status asks_something_more(desk *d, const weft_chat *plain, weft_error *err) {
    static const char fix[] = ", and ignores it. Fix: reject it with weft_struct_known";
    weft_chat *longer = weft_newer_abi_structs(plain, 1, sizeof *plain);
    weft_chat_message *messages = weft_newer_abi_structs(plain->messages, MESSAGES, sizeof *messages);
    weft_chat with = *plain;
    weft_status status =
        must_refuse(d, longer, "a weft_chat that requests a feature beyond the end of SDK 1.0", fix, err);
    with.messages = messages;
    with.stride += WEFT_NEWER_ABI_BYTES;
    if (status == WEFT_OK)
        status =
            must_refuse(d, &with, "a weft_chat_message that requests a feature beyond the end of SDK 1.0", fix, err);
    free(messages);
    free(longer);
    return status;
}

static weft_status asks_less(desk *d, const weft_chat *plain, weft_error *err) {
    weft_chat_message messages[MESSAGES];
    weft_chat shorter = *plain;
    weft_status status = WEFT_OK;
    shorter.struct_size = WEFT_SHORTER_BYTES;
    status = must_refuse(d, &shorter, "a weft_chat that is shorter than SDK 1.0 has it", "", err);
    memcpy(messages, plain->messages, sizeof messages);
    messages[MESSAGES - 1].struct_size = WEFT_SHORTER_BYTES;
    shorter = *plain;
    shorter.messages = messages;
    return status == WEFT_OK
               ? must_refuse(d, &shorter, "a weft_chat_message that is shorter than SDK 1.0 has it", "", err)
               : status;
}

/* Selects the template of the tokenizer's files, or else its first named template. */
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
    desk *d = weft_alloc(1, sizeof *d);
    weft_status status = WEFT_OK;
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

weft_status weft_tokenizer_open_in(weft_tokenizer_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                                   weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_plugin_under_test_table(tested, tokenizer);
    if (tested->options->directory == NULL) status = weft_templates_find(directory, "new/common/try", err);
    else (void)snprintf(directory, sizeof directory, "%s", tested->options->directory);
    if (status != WEFT_OK) return status;
    weft_plugin_call_begin(&call, tested->loaded, "create");
    status = self->table->create(&self->made, weft_plugin_under_test_host(poison), tested->config, directory, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    self->refused = status != WEFT_OK;
    self->info.struct_size = (uint32_t)sizeof self->info;
    self->info.bos = self->info.eos = self->info.unk = self->info.pad = -1;
    if (status == WEFT_OK) WEFT_PLUGIN_NOTIFY(self->table, info, self->made, &self->info);
    return status;
}

weft_status weft_tokenizer_open(weft_tokenizer_instance *self, const weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_open_in(self, tested, WEFT_POISON_ONE, err);
}

void weft_tokenizer_close(weft_tokenizer_instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_NOTIFY(self->table, destroy, self->made);
    self->made = NULL;
}

const void *weft_tokenizer_table(const weft_tokenizer_instance *self, const char *id) {
    const void *table = NULL;
    if (self->table->extension != NULL) WEFT_PLUGIN_QUERY(table, self->table, extension, self->made, id);
    return table;
}

/* ---- texts and their results ---- */

uint32_t weft_text_drawn(uint32_t text, uint32_t at) {
    return weft_random(text, WEFT_RANDOM_SAMPLE, 2, at).v[0];
}

size_t weft_text_draw(char *out, uint32_t text) {
    static const char *const pieces[] = {"the ",
                                         "warp",
                                         " and",
                                         "\n",
                                         "  ",
                                         "1234",
                                         "Weft!",
                                         "\xc3\xa9",
                                         "\xe7\xb9\x94",
                                         "\xf0\x9f\xa7\xb5",
                                         "\xce\xb1\xce\xb2",
                                         "\t"};
    const size_t most = text == 0 ? 0 : 1 + weft_text_drawn(text, 0) % (WEFT_TRIAL_TEXT - 8);
    size_t n = 0;
    for (uint32_t at = 1; n < most; at++) {
        const uint32_t r = weft_text_drawn(text, at);
        const char *piece = pieces[r % 12];
        if (text % 4 == 3) out[n++] = (char)(unsigned char)(r >> 8);
        else
            for (; *piece != '\0' && n < most; piece++) out[n++] = *piece;
    }
    return n;
}

bool weft_trial_same_ids(const weft_trial_ids *a, const weft_trial_ids *b) {
    return a->n == b->n && memcmp(a->id, b->id, a->n * sizeof a->id[0]) == 0;
}

bool weft_trial_same_text(const weft_trial_text *a, const weft_trial_text *b) {
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

weft_status weft_trial_put_ids(void *context, const int32_t *id, size_t n) {
    weft_trial_ids *to = context;
    if (n > to->most - to->n) {
        to->most = WEFT_TRIAL_IDS; /* fails once: the tokenizer must remember the error */
        return WEFT_E_STOPPED;
    }
    memcpy(to->id + to->n, id, n * sizeof *id);
    to->n += n;
    return WEFT_OK;
}

weft_status weft_trial_put_text(void *context, const char *bytes, size_t n) {
    weft_trial_text *to = context;
    if (n > to->most - to->n) {
        to->most = sizeof to->bytes;
        return WEFT_E_STOPPED;
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    return WEFT_OK;
}

weft_status weft_tokenizer_encode(const weft_tokenizer_instance *self, weft_trial_ids *out, const char *from, size_t n,
                                  uint32_t flags, weft_error *err) {
    const weft_ids_sink sink = {out, weft_trial_put_ids};
    weft_status status;
    out->n = 0;
    out->most = WEFT_TRIAL_IDS;
    WEFT_PLUGIN_CALL(status, self->table, encode, err, self->made, &sink, from, n, flags);
    return status;
}

weft_status weft_tokenizer_decode(const weft_tokenizer_instance *self, weft_trial_text *out, const int32_t *id,
                                  size_t n, uint32_t flags, weft_error *err) {
    const weft_text_sink sink = {out, weft_trial_put_text};
    weft_status status;
    out->n = 0;
    out->most = sizeof out->bytes;
    WEFT_PLUGIN_CALL(status, self->table, decode, err, self->made, &sink, id, n, flags);
    return status;
}

weft_status weft_tokenizer_each_text(const weft_plugin_under_test *tested, weft_on_text holds, weft_error *err) {
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_status status = weft_tokenizer_open(&d->self, tested, err);
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        weft_plugin_under_test_asks("text %u of %zu bytes", t, d->n);
        status = holds(d, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "text %u of %zu bytes: ", t, d->n);
    }
    weft_tokenizer_close(&d->self);
    free(d);
    return status;
}
