/* host/tools/check/tokenizer_letters.c: checks that no letter is lost in a tokenizer's ids, for texts of any length. */
#include "tools/check/tokenizer_trial.h"

#include "plugin/enter.h"

#include <stdlib.h>

enum { LONG_TEXT = 1100000 };

/* True for letters to replace. A normalizer may merge spaces, line ends and cases, but not these. */
static bool is_letter(char c) {
    return c >= 'a' && c <= 'y';
}

/* Returns the index of the first letter from `at` on; n: no letter. */
static size_t letter_from(const char *from, size_t at, size_t n) {
    while (at < n && !is_letter(from[at])) at++;
    return at;
}

static size_t last_message(const char *from, size_t n) {
    for (size_t at = n; at > 0; at--)
        if (is_letter(from[at - 1])) return at - 1;
    return n;
}

/* Checks that the ids of the text (in `one`) change with the letter at `at`. Restores the letter. */
static weft_status follows_letter(weft_tokenizer_desk *d, size_t at, const char *where, weft_error *err) {
    weft_status status = WEFT_OK;
    if (at >= d->n) return WEFT_OK;
    d->from[at]++;
    status = weft_tokenizer_encode(&d->self, &d->two, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    d->from[at]--;
    if (status == WEFT_OK && weft_trial_same_ids(&d->one, &d->two))
        return WEFT_BROKEN(err, "another letter at byte %zu%s has the same ids", at, where);
    return status;
}

weft_status weft_tokenizer_loses_nothing(weft_tokenizer_desk *d, weft_error *err) {
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = follows_letter(d, letter_from(d->from, 0, d->n), "", err);
    if (status == WEFT_OK) status = follows_letter(d, letter_from(d->from, d->n / 2, d->n), "", err);
    if (status == WEFT_OK) status = follows_letter(d, last_message(d->from, d->n), ", the last one,", err);
    if (status != WEFT_OK || d->n < 3) return status;
    d->from[d->n / 3] = '\0';
    status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = follows_letter(d, letter_from(d->from, d->n / 3, d->n), ", behind a NUL,", err);
    return status;
}

/* ---- other scripts ---- */

static bool has_id(const weft_trial_ids *in, int32_t id) {
    for (size_t i = 0; i < in->n; i++)
        if (in->id[i] == id) return true;
    return false;
}

/* Checks that a letter has ids, which differ from another letter's. Unknown letters may share an unknown-token id. */
static weft_status follows_script(weft_tokenizer_desk *d, const char *script, const char *one, const char *two,
                                  weft_error *err) {
    const int32_t unk = d->self.info.unk;
    weft_status status = WEFT_OK;
    weft_plugin_under_test_asks("a letter of %s by itself", script);
    status = weft_tokenizer_encode(&d->self, &d->one, one, strlen(one), WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = weft_tokenizer_encode(&d->self, &d->two, two, strlen(two), WEFT_ENCODE_PLAIN, err);
    if (status != WEFT_OK) return status;
    if (d->one.n == 0 || d->two.n == 0)
        return WEFT_BROKEN(err, "the %s letter %s by itself has no ids", script, d->one.n == 0 ? one : two);
    if (!weft_trial_same_ids(&d->one, &d->two)) return WEFT_OK;
    if (unk >= 0 && has_id(&d->one, unk)) return WEFT_OK;
    return WEFT_BROKEN(err, "the %s letters %s and %s have the same ids, and %s", script, one, two,
                       unk >= 0 ? "its unk is not among them" : "info has no unk for unknown letters");
}

weft_status weft_tokenizer_loses_no_script(const weft_plugin_under_test *tested, weft_error *err) {
    static const char *const letters[][3] = {{"Latin", "\u00f8", "\u00df"},        {"Greek", "\u03b1", "\u03b2"},
                                             {"Cyrillic", "\u0431", "\u0433"},     {"Hebrew", "\u05d0", "\u05d1"},
                                             {"Arabic", "\u0628", "\u062a"},       {"Devanagari", "\u0915", "\u0916"},
                                             {"Hangul", "\uac00", "\ub098"},       {"Han", "\u4e2d", "\u6587"},
                                             {"emoji", "\U0001f600", "\U0001f44d"}};
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_status status = weft_tokenizer_open(&d->self, tested, err);
    for (size_t i = 0; i < sizeof letters / sizeof letters[0] && status == WEFT_OK; i++)
        status = follows_script(d, letters[i][0], letters[i][1], letters[i][2], err);
    weft_tokenizer_close(&d->self);
    free(d);
    return status;
}

/* ---- long text ---- */

/* Ids of a long text. Decoded bytes are only hashed. */
typedef struct long_ids {
    int32_t *id;
    size_t n, room;
} long_ids;

static weft_status put_long(void *context, const int32_t *id, size_t n) {
    long_ids *to = context;
    if (n > to->room - to->n) {
        to->room = 2 * to->room + n;
        to->id = weft_realloc(to->id, to->room, sizeof *to->id);
    }
    memcpy(to->id + to->n, id, n * sizeof *id);
    to->n += n;
    return WEFT_OK;
}

static weft_status put_fingerprint(void *context, const char *bytes, size_t n) {
    uint64_t *to = context;
    for (size_t i = 0; i < n; i++) *to = (*to ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return WEFT_OK;
}

static weft_status long_round(const weft_tokenizer_instance *self, long_ids *got, uint64_t *back, const char *from,
                              weft_error *err) {
    const weft_ids_sink to_ids = {got, put_long};
    const weft_text_sink to_text = {back, put_fingerprint};
    weft_status status;
    got->n = 0;
    *back = 0xcbf29ce484222325u;
    WEFT_PLUGIN_CALL(status, self->table, encode, err, self->made, &to_ids, from, LONG_TEXT, WEFT_ENCODE_PLAIN);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->table, decode, err, self->made, &to_text, got->id, got->n, 0);
    return status;
}

static void draw_long(char *out) {
    static const char words[4][6] = {"the ", "weft ", "and ", "warp "};
    size_t n = 0;
    for (uint32_t at = 0; n < LONG_TEXT; at++)
        for (const char *word = words[weft_text_drawn(WEFT_TRIAL_TEXTS, at) % 4]; *word != '\0' && n < LONG_TEXT;
             word++)
            out[n++] = *word;
    out[LONG_TEXT - 1] = 'a';
}

/* Checks that the end of a text larger than any buffer affects the ids, and is decoded again. */
static weft_status follows_long_end(const weft_tokenizer_instance *self, char *from, long_ids got[2], weft_error *err) {
    uint64_t back[2];
    weft_status status = WEFT_OK;
    draw_long(from);
    weft_plugin_under_test_asks("a text of %d bytes", LONG_TEXT);
    status = long_round(self, &got[0], &back[0], from, err);
    from[LONG_TEXT - 1]++;
    if (status == WEFT_OK) status = long_round(self, &got[1], &back[1], from, err);
    if (status != WEFT_OK) return status;
    if (got[0].n == got[1].n && memcmp(got[0].id, got[1].id, got[0].n * sizeof(int32_t)) == 0)
        return WEFT_BROKEN(err, "another letter at the end of a text of %d bytes has the same ids", LONG_TEXT);
    if (back[0] == back[1])
        return WEFT_BROKEN(
            err, "another letter at the end of a text of %d bytes has different ids, which decode to the same bytes",
            LONG_TEXT);
    return WEFT_OK;
}

weft_status weft_tokenizer_loses_no_end(const weft_plugin_under_test *tested, weft_error *err) {
    char *from = weft_alloc(LONG_TEXT, 1);
    long_ids got[2] = {{weft_alloc(1, 1), 0, 0}, {weft_alloc(1, 1), 0, 0}};
    weft_tokenizer_instance self;
    weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK) status = follows_long_end(&self, from, got, err);
    weft_tokenizer_close(&self);
    free(got[1].id);
    free(got[0].id);
    free(from);
    return status;
}
