/* host/tools/check/tokenizer_trial.c: see tokenizer_trial.h. */
#include "tools/check/tokenizer_trial.h"

#include "base/join.h"
#include "base/templates.h"
#include "plugin/call.h"
#include "plugin/enter.h"

#include <stdlib.h>
#include <weft/random.h>

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
    if (status == WEFT_OK) WEFT_PLUGIN_TELL(self->table, info, self->made, &self->info);
    return status;
}

weft_status weft_tokenizer_open(weft_tokenizer_instance *self, const weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_open_in(self, tested, WEFT_POISON_ONE, err);
}

void weft_tokenizer_close(weft_tokenizer_instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_TELL(self->table, destroy, self->made);
    self->made = NULL;
}

/* ---- texts and what becomes of them ---- */

uint32_t weft_text_drawn(uint32_t text, uint32_t at) {
    return weft_random(text, WEFT_RANDOM_SAMPLE, 2, at).v[0];
}

/* Words, other scripts, bytes that are no UTF-8 and zeros; text 0 is empty. */
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

weft_status weft_trial_put_ids(void *context, const int32_t *id, size_t n) {
    weft_trial_ids *to = context;
    if (n > to->most - to->n) {
        to->most = WEFT_TRIAL_IDS; /* it says so once: what it said may not be forgotten */
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
    weft_tokenizer_desk *d = calloc(1, sizeof *d);
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts")
                                   : weft_tokenizer_open(&d->self, tested, err);
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        weft_plugin_under_test_asks("text %u of %zu bytes", t, d->n);
        status = holds(d, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "text %u of %zu bytes: ", t, d->n);
    }
    if (d != NULL) weft_tokenizer_close(&d->self);
    free(d);
    return status;
}
