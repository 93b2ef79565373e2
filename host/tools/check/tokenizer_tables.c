/* host/tools/check/tokenizer_tables.c: tests the optional tables of a tokenizer: added tokens and conversations. */
#include "tools/check/tokenizer_trial.h"

#include "plugin/enter.h"

#include <stdlib.h>

static bool contains(const weft_trial_text *in, const char *what) {
    const size_t n = strlen(what);
    for (size_t at = 0; at + n <= in->n; at++)
        if (memcmp(in->bytes + at, what, n) == 0) return true;
    return false;
}

/* ---- added tokens ---- */

static const char *const added[] = {"<|weft-conform-a|>", "<|weft-conform-b|>"};

/* Checks that an added token is one new id, which decodes to an empty text, or to its name if kept. */
static weft_status is_a_token(weft_tokenizer_desk *d, const char *name, int32_t before, int32_t *id, weft_error *err) {
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, name, strlen(name), 0, err);
    if (status != WEFT_OK) return status;
    if (d->one.n != 1 || d->one.id[0] < before || d->one.id[0] >= d->self.info.vocab_size)
        return WEFT_BROKEN(
            err,
            "%s, which was added to a vocabulary of %d, is %zu ids in a text, the first %d: it is one, and "
            "info has %d",
            name, (int)before, d->one.n, d->one.n > 0 ? (int)d->one.id[0] : -1, (int)d->self.info.vocab_size);
    *id = d->one.id[0];
    status = weft_tokenizer_decode(&d->self, &d->back, id, 1, 0, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, id, 1, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status == WEFT_OK && (d->back.n != 0 || d->again.n != strlen(name) || !contains(&d->again, name)))
        return WEFT_BROKEN(err, "%s, which was added, is decoded to %zu bytes, and to %zu with its name", name,
                           d->back.n, d->again.n);
    if (status == WEFT_OK)
        status = weft_tokenizer_encode(&d->self, &d->two, name, strlen(name), WEFT_ENCODE_PLAIN, err);
    for (size_t i = 0; i < d->two.n && status == WEFT_OK; i++)
        if (d->two.id[i] == *id) status = WEFT_BROKEN(err, "WEFT_ENCODE_PLAIN encodes the name of %s as its id", name);
    return status;
}

/* A file's content. */
typedef struct whole_file {
    char *bytes;
    size_t n;
} whole_file;

static weft_status put_file(void *context, const char *bytes, size_t n) {
    whole_file *to = context;
    to->bytes = weft_realloc(to->bytes, to->n + n + 1, 1);
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    to->bytes[to->n] = '\0';
    return WEFT_OK;
}

/* Checks that a saved model contains the names: one of the files must include them. */
static weft_status are_in_files(weft_tokenizer_desk *d, const weft_tokenizer_add *table, weft_error *err) {
    bool found = d->self.table->file == NULL;
    for (uint32_t i = 0; !found && d->self.table->file(d->self.made, i) != NULL; i++) {
        whole_file file = {NULL, 0};
        const weft_text_sink sink = {&file, put_file};
        int32_t changed = 0;
        const weft_status status = table->file(d->self.made, i, &sink, &changed, err);
        found = status == WEFT_OK && changed == 1 && file.bytes != NULL && strstr(file.bytes, added[0]) != NULL &&
                strstr(file.bytes, added[1]) != NULL;
        free(file.bytes);
        if (status != WEFT_OK) return status;
    }
    return found ? WEFT_OK
                 : WEFT_BROKEN(
                       err, "%s and %s, which were added, are missing from its files, so a saved model would lack them",
                       added[0], added[1]);
}

static weft_status adds(weft_tokenizer_desk *d, const weft_tokenizer_add *table, weft_error *err) {
    const int32_t before = d->self.info.vocab_size;
    int32_t ids[2] = {-1, -1};
    weft_status status = table->add(d->self.made, added, 2, -1, err);
    if (status != WEFT_OK) return status;
    WEFT_PLUGIN_NOTIFY(d->self.table, info, d->self.made, &d->self.info);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) status = is_a_token(d, added[i], before, &ids[i], err);
    if (status == WEFT_OK && ids[0] >= ids[1])
        return WEFT_BROKEN(err, "%s is %d and %s, which was added after it, %d", added[0], (int)ids[0], added[1],
                           (int)ids[1]);
    return status == WEFT_OK ? are_in_files(d, table, err) : status;
}

/* Checks that an existing name (of BOS or EOS) is rejected. */
static weft_status refuses_taken(weft_tokenizer_desk *d, const weft_tokenizer_add *table, weft_error *err) {
    const int32_t id = d->self.info.eos >= 0 ? d->self.info.eos : d->self.info.bos;
    const char *names[1] = {d->again.bytes};
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (id < 0) return WEFT_OK;
    status = weft_tokenizer_decode(&d->self, &d->again, &id, 1, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status != WEFT_OK || d->again.n == 0 || d->again.n >= sizeof d->again.bytes) return status;
    d->again.bytes[d->again.n] = '\0';
    if (table->add(d->self.made, names, 1, -1, &said) == WEFT_OK)
        return WEFT_BROKEN(err, "%s is added although the tokenizer has it", d->again.bytes);
    return said.text[0] != '\0' ? WEFT_OK : WEFT_BROKEN(err, "add rejects %s without an error message", d->again.bytes);
}

/* ---- conversations ---- */

typedef struct marked {
    weft_trial_ids all;
    int32_t answers[WEFT_TRIAL_IDS];
} marked;

static weft_status put_marked(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    marked *to = context;
    if (n > WEFT_TRIAL_IDS - to->all.n) return WEFT_E_MEMORY;
    memcpy(to->answers + to->all.n, answers, n * sizeof *answers);
    return weft_trial_put_ids(&to->all, ids, n);
}

/* Decodes the ids of one answer, or of the text outside answers. */
static weft_status text_of(weft_tokenizer_desk *d, const marked *got, int32_t answer, weft_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < got->all.n; i++)
        if (got->answers[i] == answer) d->one.id[n++] = got->all.id[i];
    return weft_tokenizer_decode(&d->self, &d->back, d->one.id, n, 0, err);
}

static weft_status marks_answers(weft_tokenizer_desk *d, const weft_tokenizer_chat *table, const weft_chat *chat,
                                 marked *got, weft_error *err) {
    static const char *const said[] = {"crosses", "stays"};
    const weft_text_sink to_text = {&d->back, weft_trial_put_text};
    const weft_chat_sink to_ids = {got, put_marked};
    weft_status status;
    d->back.n = 0, d->back.most = sizeof d->back.bytes;
    got->all.n = 0, got->all.most = WEFT_TRIAL_IDS;
    status = table->render(d->self.made, &to_text, chat, err);
    if (status == WEFT_OK &&
        !(contains(&d->back, "thread") && contains(&d->back, said[0]) && contains(&d->back, said[1])))
        return WEFT_BROKEN(err, "render omits a message of the conversation");
    if (status == WEFT_OK) status = table->encode(d->self.made, &to_ids, chat, err);
    for (int32_t answer = 0; answer < 2 && status == WEFT_OK; answer++) {
        status = text_of(d, got, answer, err);
        if (status == WEFT_OK &&
            (!contains(&d->back, said[answer]) || contains(&d->back, said[1 - answer]) || contains(&d->back, "thread")))
            return WEFT_BROKEN(err, "the ids of answer %d of a conversation differ from the ids of its text",
                               (int)answer);
    }
    if (status == WEFT_OK) status = text_of(d, got, -1, err);
    if (status == WEFT_OK && (contains(&d->back, said[0]) || !contains(&d->back, "thread")))
        return WEFT_BROKEN(err, "ids outside of the answers differ from the ids of the questions");
    return status;
}

/* Renders with the template of the files, or else its first named template; a tokenizer may have neither. */
static weft_status converses(weft_tokenizer_desk *d, const weft_tokenizer_chat *table, weft_error *err) {
    const uint32_t size = (uint32_t)sizeof(weft_chat_message);
    const weft_chat_message messages[] = {{size, 0, "user", "Which thread?", 13, NULL, 0},
                                          {size, 0, "assistant", "That which crosses", 18, NULL, 0},
                                          {size, 0, "user", "The other thread?", 17, NULL, 0},
                                          {size, 0, "assistant", "One that stays", 14, NULL, 0}};
    weft_chat chat = {(uint32_t)sizeof chat, 0, messages, 4, size, 0, NULL, NULL, 0, 1};
    weft_error unheard = WEFT_ERROR_INIT;
    marked *got = NULL;
    weft_status status = WEFT_OK;
    if (table->check(d->self.made, NULL, &unheard) != WEFT_OK) chat.named = table->named(0);
    if (chat.named != NULL && WEFT_HAS(table, source) && table->source != NULL &&
        (table->source(0) == NULL || table->source(0)[0] == '\0'))
        return WEFT_BROKEN(err, "source has no text of the template %s", chat.named);
    if (table->check(d->self.made, chat.named, &unheard) != WEFT_OK) return WEFT_OK;
    got = weft_alloc(1, sizeof *got);
    status = marks_answers(d, table, &chat, got, err);
    free(got);
    return status;
}

/* ---- all tables ---- */

/* Runs a test in a new instance: tokens must precede the first encoding, and a failure makes it unusable. */
static weft_status in_new_instance(weft_tokenizer_desk *d, const weft_plugin_under_test *tested,
                                   weft_status (*does)(weft_tokenizer_desk *d, const weft_tokenizer_add *table,
                                                       weft_error *err),
                                   weft_error *err) {
    weft_status status;
    weft_tokenizer_close(&d->self);
    status = weft_tokenizer_open(&d->self, tested, err);
    return status == WEFT_OK ? does(d, weft_tokenizer_table(&d->self, WEFT_TOKENIZER_ADD), err) : status;
}

static weft_status try_tables(weft_tokenizer_desk *d, weft_plugin_under_test *tested, weft_error *err) {
    const bool has_add = weft_tokenizer_table(&d->self, WEFT_TOKENIZER_ADD) != NULL;
    const weft_tokenizer_chat *chat = weft_tokenizer_table(&d->self, WEFT_TOKENIZER_CHAT);
    weft_status status = WEFT_OK;
    if (!has_add && chat == NULL)
        return WEFT_MOOT(tested, err, "it adds no tokens and renders no conversations, and need not");
    if (chat != NULL) status = converses(d, chat, err);
    if (status == WEFT_OK && has_add) status = in_new_instance(d, tested, adds, err);
    return status == WEFT_OK && has_add ? in_new_instance(d, tested, refuses_taken, err) : status;
}

weft_status weft_tokenizer_serves_by_tables(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_status status = weft_tokenizer_open(&d->self, tested, err);
    if (status == WEFT_OK) status = try_tables(d, tested, err);
    weft_tokenizer_close(&d->self);
    free(d);
    return status;
}
