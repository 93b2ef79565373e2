/* host/tools/check/tokenizer_sinks.c: a tokenizer that passes on what a sink answers. */
#include "tools/check/tokenizer_trial.h"

enum { POINTS = 4 };

/* Where the sink of n things fails: at the first, behind it, in the middle and at the last. */
static size_t failing_at(size_t n, int point) {
    const size_t points[POINTS] = {0, n > 1, n / 2, n - 1};
    return points[point];
}

static weft_status judge_failing(weft_status status, const char *slot, size_t taken, const char *of, weft_error *err) {
    err->text[0] = '\0'; /* what it says of the sink's failure is right */
    if (status != WEFT_OK) return WEFT_OK;
    return WEFT_BROKEN(err, "the sink takes no more after %zu %s and says so, and %s says WEFT_OK", taken, of, slot);
}

static weft_status encodes_to_failing(weft_tokenizer_desk *d, uint32_t flags, weft_error *err) {
    const weft_ids_sink sink = {&d->two, weft_trial_put_ids};
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, flags, err);
    for (int p = 0; p < POINTS && status == WEFT_OK && d->one.n > 0; p++) {
        const size_t most = failing_at(d->one.n, p);
        d->two.n = 0;
        d->two.most = most;
        status = d->self.table->encode(d->self.made, &sink, d->from, d->n, flags, err);
        status = judge_failing(status, "encode", most, "ids", err);
    }
    return status;
}

/* Of the ids in `one`. */
static weft_status decodes_to_failing(weft_tokenizer_desk *d, uint32_t flags, weft_error *err) {
    const weft_text_sink sink = {&d->again, weft_trial_put_text};
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, flags, err);
    for (int p = 0; p < POINTS && status == WEFT_OK && d->back.n > 0; p++) {
        const size_t most = failing_at(d->back.n, p);
        d->again.n = 0;
        d->again.most = most;
        status = d->self.table->decode(d->self.made, &sink, d->one.id, d->one.n, flags, err);
        status = judge_failing(status, "decode", most, "bytes", err);
    }
    return status;
}

weft_status weft_tokenizer_passes_failures_on(weft_tokenizer_desk *d, weft_error *err) {
    const weft_tokenizer_info *info = &d->self.info;
    const uint32_t both = (info->bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (info->eos >= 0 ? WEFT_ENCODE_EOS : 0u);
    weft_status status = encodes_to_failing(d, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = decodes_to_failing(d, 0, err);
    if (status == WEFT_OK) status = encodes_to_failing(d, WEFT_ENCODE_PLAIN | both, err);
    if (status == WEFT_OK) status = decodes_to_failing(d, WEFT_DECODE_KEEP_SPECIAL, err);
    return status;
}
