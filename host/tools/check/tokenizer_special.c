/* host/tools/check/tokenizer_special.c: a tokenizer with special tokens, which are left out or written. */
#include "tools/check/tokenizer_trial.h"

#include "plugin/enter.h"

static const weft_tokenizer_special *special_table(const weft_tokenizer_instance *self) {
    const void *table = NULL;
    if (self->table->extension != NULL)
        WEFT_PLUGIN_ASK(table, self->table, extension, self->made, WEFT_TOKENIZER_SPECIAL);
    return table;
}

/* Whether decoding is to leave the id out. */
static bool is_special(const weft_tokenizer_instance *self, int32_t id) {
    const weft_tokenizer_special *table = special_table(self);
    return id >= 0 && (table == NULL || table->is_special(self->made, id) == 1);
}

/* By itself: nothing, or its name. */
static weft_status is_written(weft_tokenizer_desk *d, int32_t id, const char *what, weft_error *err) {
    const weft_tokenizer_special *table = special_table(&d->self);
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, &id, 1, 0, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, &id, 1, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status != WEFT_OK) return status;
    if (d->back.n != 0)
        return WEFT_BROKEN(err, "%s, id %d, gives %zu bytes without WEFT_DECODE_KEEP_SPECIAL, and is to be left out",
                           what, (int)id, d->back.n);
    if (d->again.n == 0)
        return WEFT_BROKEN(err, "%s, id %d, gives nothing with WEFT_DECODE_KEEP_SPECIAL, and is to give its name", what,
                           (int)id);
    if (table != NULL && table->id(d->self.made, d->again.bytes, d->again.n) != id)
        return WEFT_BROKEN(err, "%s, id %d, is written as \"%.*s\", which is not the name of that id", what, (int)id,
                           (int)(d->again.n < 64 ? d->again.n : 64), d->again.bytes);
    return WEFT_OK;
}

/* Before a text, in its middle and behind it: as if it were not there. */
static weft_status is_left_out(weft_tokenizer_desk *d, int32_t id, const char *what, weft_error *err) {
    const size_t half = d->one.n / 2;
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    d->two.id[0] = d->two.id[half + 1] = d->two.id[d->one.n + 2] = id;
    memcpy(d->two.id + 1, d->one.id, half * sizeof d->one.id[0]);
    memcpy(d->two.id + half + 2, d->one.id + half, (d->one.n - half) * sizeof d->one.id[0]);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, d->two.id, d->one.n + 3, 0, err);
    if (status == WEFT_OK && (d->back.n != d->again.n || memcmp(d->back.bytes, d->again.bytes, d->back.n) != 0))
        return WEFT_BROKEN(err,
                           "without WEFT_DECODE_KEEP_SPECIAL its ids give %zu bytes, and with %s among them %zu, or "
                           "others",
                           d->back.n, what, d->again.n);
    return status;
}

static weft_status heeds_keep(weft_tokenizer_desk *d, weft_error *err) {
    const struct {
        const char *what;
        int32_t id;
    } tokens[] = {{"BOS", d->self.info.bos}, {"EOS", d->self.info.eos}};
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    for (int32_t i = 0; i < 2 && status == WEFT_OK && d->one.n + 3 <= WEFT_TRIAL_IDS; i++) {
        if (!is_special(&d->self, tokens[i].id)) continue;
        status = is_written(d, tokens[i].id, tokens[i].what, err);
        if (status == WEFT_OK) status = is_left_out(d, tokens[i].id, tokens[i].what, err);
    }
    return status;
}

weft_status weft_tokenizer_rule_special(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_instance self;
    weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK && !is_special(&self, self.info.bos) && !is_special(&self, self.info.eos))
        status = WEFT_MOOT(tested, err, "it has neither a BOS nor an EOS that is special, and need not");
    weft_tokenizer_close(&self);
    return status == WEFT_OK ? weft_tokenizer_each_text(tested, heeds_keep, err) : status;
}
