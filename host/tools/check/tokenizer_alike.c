/* host/tools/check/tokenizer_alike.c: a tokenizer that is asked again, in another instance, and beside one with other
 * keys. */
#include "tools/check/tokenizer_trial.h"

#include "tools/check/other_key.h"

#include <stdlib.h>

enum { KEYED_TEXTS = 12 };

static weft_status open_any(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_open(made, tested, err);
}

static void close_any(void *made) {
    weft_tokenizer_close(made);
}

static void add_info(weft_answer *to, const weft_tokenizer_info *info) {
    WEFT_ANSWER_ADD(to, info->vocab_size);
    WEFT_ANSWER_ADD(to, info->bos);
    WEFT_ANSWER_ADD(to, info->eos);
    WEFT_ANSWER_ADD(to, info->unk);
    WEFT_ANSWER_ADD(to, info->pad);
    WEFT_ANSWER_ADD(to, info->auto_bos);
    WEFT_ANSWER_ADD(to, info->auto_eos);
}

/* The text's ids, and what becomes of them. */
static weft_status add_round(weft_answer *to, weft_tokenizer_desk *d, const weft_tokenizer_instance *self,
                             uint32_t encoding, uint32_t decoding, weft_error *err) {
    weft_status status = weft_tokenizer_encode(self, &d->one, d->from, d->n, encoding, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(self, &d->back, d->one.id, d->one.n, decoding, err);
    if (status != WEFT_OK) return status;
    WEFT_ANSWER_ADD(to, d->one.n);
    weft_answer_add(to, d->one.id, d->one.n * sizeof d->one.id[0]);
    WEFT_ANSWER_ADD(to, d->back.n);
    weft_answer_add(to, d->back.bytes, d->back.n);
    return WEFT_OK;
}

static weft_status add_text(weft_answer *to, weft_tokenizer_desk *d, const weft_tokenizer_instance *self,
                            weft_error *err) {
    const uint32_t both = (self->info.bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (self->info.eos >= 0 ? WEFT_ENCODE_EOS : 0u);
    const weft_status status = add_round(to, d, self, WEFT_ENCODE_PLAIN, 0, err);
    if (status != WEFT_OK) return status;
    return add_round(to, d, self, WEFT_ENCODE_PLAIN | both, WEFT_DECODE_KEEP_SPECIAL, err);
}

static weft_status ask_any(weft_answer *to, void *made, weft_error *err) {
    const weft_tokenizer_instance *self = made;
    weft_tokenizer_desk *d = calloc(1, sizeof *d);
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts") : WEFT_OK;
    add_info(to, &self->info);
    for (uint32_t t = 0; t < KEYED_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        status = add_text(to, d, self, err);
    }
    free(d);
    return status;
}

static weft_status heeds_its_keys(weft_plugin_under_test *tested, weft_error *err) {
    const weft_answers answers = {sizeof(weft_tokenizer_instance), open_any, close_any, ask_any};
    return weft_other_keys(tested, &answers, err);
}

/* Asked first, by another instance, and once more. */
static weft_status answers_alike(weft_tokenizer_desk *d, const weft_tokenizer_instance *other, weft_error *err) {
    weft_answer first, second, again;
    weft_status status;
    weft_answer_begin(&first);
    weft_answer_begin(&second);
    weft_answer_begin(&again);
    status = add_text(&first, d, &d->self, err);
    if (status == WEFT_OK) status = add_text(&second, d, other, err);
    if (status == WEFT_OK) status = add_text(&again, d, &d->self, err);
    if (status == WEFT_OK && first.fingerprint != second.fingerprint)
        return WEFT_BROKEN(err, "a second instance gives it other ids, or another text for them");
    if (status == WEFT_OK && first.fingerprint != again.fingerprint)
        return WEFT_BROKEN(err, "asked again, it gives other ids, or another text for them");
    return status;
}

weft_status weft_tokenizer_rule_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_desk *d = calloc(1, sizeof *d);
    weft_tokenizer_instance other = {0};
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts")
                                   : heeds_its_keys(tested, err);
    if (status == WEFT_OK) status = weft_tokenizer_open(&d->self, tested, err);
    if (status == WEFT_OK) status = weft_tokenizer_open_in(&other, tested, WEFT_POISON_TWO, err);
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        weft_plugin_under_test_asks("text %u of %zu bytes", t, d->n);
        status = answers_alike(d, &other, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "text %u of %zu bytes: ", t, d->n);
    }
    if (d != NULL) weft_tokenizer_close(&d->self);
    weft_tokenizer_close(&other);
    free(d);
    return status;
}
