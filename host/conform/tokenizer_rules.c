/* host/conform/tokenizer_rules.c: what a tokenizer has to keep to. */
#include "conform/rule.h"

#include "base/join.h"
#include "base/templates.h"
#include "conform/conversations.h"
#include "conform/later.h"
#include "conform/other_key.h"
#include "conform/wrong_files.h"
#include "plugin/call.h"
#include "plugin/enter.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/random.h>
#include <weft/tokenizer.h>

enum { TEXTS = 64, MOST_TEXT = 3000, MOST_IDS = 8 * MOST_TEXT, LONG_TEXT = 1100000, THREADS = 4 };

typedef struct instance {
    const weft_tokenizer_plugin *table;
    weft_tokenizer *made;
    weft_tokenizer_info info;
    bool refused; /* its create has failed */
} instance;

static weft_status instance_open_in(instance *self, const weft_subject *subject, uint8_t poison, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_subject_table(subject, tokenizer);
    if (subject->options->directory == NULL) status = weft_templates_find(directory, "new/common/try", err);
    else (void)snprintf(directory, sizeof directory, "%s", subject->options->directory);
    if (status != WEFT_OK) return status;
    weft_plugin_call_begin(&call, subject->loaded, "create");
    status = self->table->create(&self->made, weft_subject_host(poison), subject->config, directory, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    self->refused = status != WEFT_OK;
    self->info.struct_size = (uint32_t)sizeof self->info;
    self->info.bos = self->info.eos = self->info.unk = self->info.pad = -1;
    if (status == WEFT_OK) WEFT_PLUGIN_TELL(self->table, info, self->made, &self->info);
    return status;
}

static weft_status instance_open(instance *self, const weft_subject *subject, weft_error *err) {
    return instance_open_in(self, subject, WEFT_POISON_ONE, err);
}

static void instance_close(instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_TELL(self->table, destroy, self->made);
    self->made = NULL;
}

/* ---- texts and what becomes of them ---- */

static uint32_t drawn(uint32_t text, uint32_t at) {
    return weft_random(text, WEFT_RANDOM_SAMPLE, 2, at).v[0];
}

/* Words, other scripts, bytes that are no UTF-8 and zeros; text 0 is empty. */
static size_t draw_text(char *out, uint32_t text) {
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
    const size_t most = text == 0 ? 0 : 1 + drawn(text, 0) % (MOST_TEXT - 8);
    size_t n = 0;
    for (uint32_t at = 1; n < most; at++) {
        const uint32_t r = drawn(text, at);
        const char *piece = pieces[r % 12];
        if (text % 4 == 3) out[n++] = (char)(unsigned char)(r >> 8);
        else
            for (; *piece != '\0' && n < most; piece++) out[n++] = *piece;
    }
    return n;
}

typedef struct ids {
    int32_t id[MOST_IDS];
    size_t n, most; /* most: after so many the sink fails, once */
} ids;

static weft_status put_ids(void *context, const int32_t *id, size_t n) {
    ids *to = context;
    if (n > to->most - to->n) {
        to->most = MOST_IDS; /* it says so once: what it said may not be forgotten */
        return WEFT_E_STOPPED;
    }
    memcpy(to->id + to->n, id, n * sizeof *id);
    to->n += n;
    return WEFT_OK;
}

typedef struct text {
    char bytes[MOST_IDS * 4];
    size_t n, most; /* most: after so many the sink fails, once */
} text;

static weft_status put_text(void *context, const char *bytes, size_t n) {
    text *to = context;
    if (n > to->most - to->n) {
        to->most = sizeof to->bytes;
        return WEFT_E_STOPPED;
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    return WEFT_OK;
}

static weft_status encode(const instance *self, ids *out, const char *from, size_t n, uint32_t flags, weft_error *err) {
    const weft_ids_sink sink = {out, put_ids};
    weft_status status;
    out->n = 0;
    out->most = MOST_IDS;
    WEFT_PLUGIN_CALL(status, self->table, encode, err, self->made, &sink, from, n, flags);
    return status;
}

static weft_status decode(const instance *self, text *out, const int32_t *id, size_t n, uint32_t flags,
                          weft_error *err) {
    const weft_text_sink sink = {out, put_text};
    weft_status status;
    out->n = 0;
    out->most = sizeof out->bytes;
    WEFT_PLUGIN_CALL(status, self->table, decode, err, self->made, &sink, id, n, flags);
    return status;
}

/* Room for one trial. */
typedef struct desk {
    instance self;
    char from[MOST_TEXT];
    size_t n; /* bytes of it */
    ids one, two;
    text back, again;
} desk;

typedef weft_status (*on_text)(desk *d, weft_error *err);

static weft_status each_text(const weft_subject *subject, on_text holds, weft_error *err) {
    desk *d = calloc(1, sizeof *d);
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts")
                                   : instance_open(&d->self, subject, err);
    for (uint32_t t = 0; t < TEXTS && status == WEFT_OK; t++) {
        d->n = draw_text(d->from, t);
        weft_subject_asks("text %u of %zu bytes", t, d->n);
        status = holds(d, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "text %u of %zu bytes: ", t, d->n);
    }
    if (d != NULL) instance_close(&d->self);
    free(d);
    return status;
}

/* ---- the rules ---- */

static weft_status ids_are_ids(desk *d, weft_error *err) {
    weft_status status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    for (size_t i = 0; i < d->one.n && status == WEFT_OK; i++)
        if (d->one.id[i] < 0 || d->one.id[i] >= d->self.info.vocab_size)
            return WEFT_BROKEN(err, "id %zu is %d, and info has 0 to %d", i, (int)d->one.id[i],
                               (int)d->self.info.vocab_size - 1);
    if (status == WEFT_OK && d->n == 0 && d->one.n != 0)
        return WEFT_BROKEN(err, "an empty text has %zu ids: nothing is added unless flags ask for it", d->one.n);
    if (status == WEFT_OK && d->n > 0 && d->one.n == 0) return WEFT_BROKEN(err, "it has no ids at all");
    return status;
}

/* What a normalizer changes it changes once. */
static weft_status goes_round(desk *d, weft_error *err) {
    weft_status status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    if (status == WEFT_OK) status = encode(&d->self, &d->two, d->back.bytes, d->back.n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = decode(&d->self, &d->again, d->two.id, d->two.n, 0, err);
    if (status == WEFT_OK && (d->back.n != d->again.n || memcmp(d->back.bytes, d->again.bytes, d->back.n) != 0))
        return WEFT_BROKEN(err, "decoding what was encoded gives %zu bytes, and once more %zu, or others", d->back.n,
                           d->again.n);
    if (status == WEFT_OK && d->n > 0 && d->back.n == 0) return WEFT_BROKEN(err, "nothing comes back");
    return status;
}

/* ---- the same whenever it is asked ---- */

enum { KEYED_TEXTS = 12 };

static weft_status open_any(void *made, const weft_subject *subject, weft_error *err) {
    return instance_open(made, subject, err);
}

static void close_any(void *made) {
    instance_close(made);
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
static weft_status add_round(weft_answer *to, desk *d, const instance *self, uint32_t encoding, uint32_t decoding,
                             weft_error *err) {
    weft_status status = encode(self, &d->one, d->from, d->n, encoding, err);
    if (status == WEFT_OK) status = decode(self, &d->back, d->one.id, d->one.n, decoding, err);
    if (status != WEFT_OK) return status;
    WEFT_ANSWER_ADD(to, d->one.n);
    weft_answer_add(to, d->one.id, d->one.n * sizeof d->one.id[0]);
    WEFT_ANSWER_ADD(to, d->back.n);
    weft_answer_add(to, d->back.bytes, d->back.n);
    return WEFT_OK;
}

static weft_status add_text(weft_answer *to, desk *d, const instance *self, weft_error *err) {
    const uint32_t both = (self->info.bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (self->info.eos >= 0 ? WEFT_ENCODE_EOS : 0u);
    const weft_status status = add_round(to, d, self, WEFT_ENCODE_PLAIN, 0, err);
    if (status != WEFT_OK) return status;
    return add_round(to, d, self, WEFT_ENCODE_PLAIN | both, WEFT_DECODE_KEEP_SPECIAL, err);
}

static weft_status ask_any(weft_answer *to, void *made, weft_error *err) {
    const instance *self = made;
    desk *d = calloc(1, sizeof *d);
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts") : WEFT_OK;
    add_info(to, &self->info);
    for (uint32_t t = 0; t < KEYED_TEXTS && status == WEFT_OK; t++) {
        d->n = draw_text(d->from, t);
        status = add_text(to, d, self, err);
    }
    free(d);
    return status;
}

static weft_status heeds_its_keys(const weft_subject *subject, weft_error *err) {
    const weft_answers answers = {sizeof(instance), open_any, close_any, ask_any};
    return weft_other_keys(subject, &answers, err);
}

/* Asked first, by another instance, and once more. */
static weft_status answers_alike(desk *d, const instance *other, weft_error *err) {
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

static weft_status rule_alike(weft_subject *subject, weft_error *err) {
    desk *d = calloc(1, sizeof *d);
    instance other = {0};
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts")
                                   : heeds_its_keys(subject, err);
    if (status == WEFT_OK) status = instance_open(&d->self, subject, err);
    if (status == WEFT_OK) status = instance_open_in(&other, subject, WEFT_POISON_TWO, err);
    for (uint32_t t = 0; t < TEXTS && status == WEFT_OK; t++) {
        d->n = draw_text(d->from, t);
        weft_subject_asks("text %u of %zu bytes", t, d->n);
        status = answers_alike(d, &other, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "text %u of %zu bytes: ", t, d->n);
    }
    if (d != NULL) instance_close(&d->self);
    instance_close(&other);
    free(d);
    return status;
}

/* ---- no letter gets lost ---- */

/* A letter that another one can stand for: no normalizer makes them one, as it may of spaces, line ends and cases. */
static bool is_letter(char c) {
    return c >= 'a' && c <= 'y';
}

/* The first letter from `at` on; n: there is none. */
static size_t letter_from(const char *from, size_t at, size_t n) {
    while (at < n && !is_letter(from[at])) at++;
    return at;
}

static size_t last_letter(const char *from, size_t n) {
    for (size_t at = n; at > 0; at--)
        if (is_letter(from[at - 1])) return at - 1;
    return n;
}

/* Whether the ids of the text, which are in `one`, are others where another letter stands. It is put back. */
static weft_status heeds_letter(desk *d, size_t at, const char *where, weft_error *err) {
    weft_status status = WEFT_OK;
    if (at >= d->n) return WEFT_OK;
    d->from[at]++;
    status = encode(&d->self, &d->two, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    d->from[at]--;
    if (status == WEFT_OK && d->one.n == d->two.n && memcmp(d->one.id, d->two.id, d->one.n * sizeof d->one.id[0]) == 0)
        return WEFT_BROKEN(err, "another letter at byte %zu%s gives the same ids", at, where);
    return status;
}

static weft_status loses_nothing(desk *d, weft_error *err) {
    weft_status status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = heeds_letter(d, letter_from(d->from, 0, d->n), "", err);
    if (status == WEFT_OK) status = heeds_letter(d, letter_from(d->from, d->n / 2, d->n), "", err);
    if (status == WEFT_OK) status = heeds_letter(d, last_letter(d->from, d->n), ", the last one,", err);
    if (status != WEFT_OK || d->n < 3) return status;
    d->from[d->n / 3] = '\0';
    status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = heeds_letter(d, letter_from(d->from, d->n / 3, d->n), ", behind a NUL,", err);
    return status;
}

/* As many ids as a long text has; its bytes are told by a number. */
typedef struct long_ids {
    int32_t *id;
    size_t n, room;
} long_ids;

static weft_status put_long(void *context, const int32_t *id, size_t n) {
    long_ids *to = context;
    if (n > to->room - to->n) {
        const size_t room = 2 * to->room + n;
        int32_t *more = realloc(to->id, room * sizeof *more);
        if (more == NULL) return WEFT_E_MEMORY;
        to->id = more;
        to->room = room;
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

static weft_status long_round(const instance *self, long_ids *got, uint64_t *back, const char *from, weft_error *err) {
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
        for (const char *word = words[drawn(TEXTS, at) % 4]; *word != '\0' && n < LONG_TEXT; word++) out[n++] = *word;
    out[LONG_TEXT - 1] = 'a';
}

/* The end of a text that fits no buffer: it reaches the ids, and comes back from them. */
static weft_status heeds_long_end(const instance *self, char *from, long_ids got[2], weft_error *err) {
    uint64_t back[2];
    weft_status status = WEFT_OK;
    draw_long(from);
    weft_subject_asks("a text of %d bytes", LONG_TEXT);
    status = long_round(self, &got[0], &back[0], from, err);
    from[LONG_TEXT - 1]++;
    if (status == WEFT_OK) status = long_round(self, &got[1], &back[1], from, err);
    if (status != WEFT_OK) return status;
    if (got[0].n == got[1].n && memcmp(got[0].id, got[1].id, got[0].n * sizeof(int32_t)) == 0)
        return WEFT_BROKEN(err, "another letter at the end of a text of %d bytes gives the same ids", LONG_TEXT);
    if (back[0] == back[1])
        return WEFT_BROKEN(err,
                           "another letter at the end of a text of %d bytes gives other ids, and decoding them "
                           "the same bytes",
                           LONG_TEXT);
    return WEFT_OK;
}

static weft_status loses_no_end(const weft_subject *subject, weft_error *err) {
    char *from = malloc(LONG_TEXT);
    long_ids got[2] = {{malloc(1), 0, 0}, {malloc(1), 0, 0}};
    instance self = {0};
    weft_status status = from != NULL && got[0].id != NULL && got[1].id != NULL
                             ? instance_open(&self, subject, err)
                             : weft_error_set(err, WEFT_E_MEMORY, "no memory for a long text");
    if (status == WEFT_OK) status = heeds_long_end(&self, from, got, err);
    instance_close(&self);
    free(got[1].id);
    free(got[0].id);
    free(from);
    return status;
}

static weft_status heeds_flags(desk *d, weft_error *err) {
    const weft_tokenizer_info *info = &d->self.info;
    const uint32_t flags = (info->bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (info->eos >= 0 ? WEFT_ENCODE_EOS : 0u);
    const size_t first = info->bos >= 0, more = first + (info->eos >= 0);
    weft_status status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = encode(&d->self, &d->two, d->from, d->n, WEFT_ENCODE_PLAIN | flags, err);
    if (status != WEFT_OK) return status;
    if (d->two.n != d->one.n + more || memcmp(d->two.id + first, d->one.id, d->one.n * sizeof d->one.id[0]) != 0 ||
        (info->bos >= 0 && d->two.id[0] != info->bos) || (info->eos >= 0 && d->two.id[d->two.n - 1] != info->eos))
        return WEFT_BROKEN(err, "WEFT_ENCODE_BOS and WEFT_ENCODE_EOS do not give the same ids between %d and %d",
                           (int)info->bos, (int)info->eos);
    return WEFT_OK;
}

/* ---- sinks that fail ---- */

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

static weft_status encodes_to_failing(desk *d, uint32_t flags, weft_error *err) {
    const weft_ids_sink sink = {&d->two, put_ids};
    weft_status status = encode(&d->self, &d->one, d->from, d->n, flags, err);
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
static weft_status decodes_to_failing(desk *d, uint32_t flags, weft_error *err) {
    const weft_text_sink sink = {&d->again, put_text};
    weft_status status = decode(&d->self, &d->back, d->one.id, d->one.n, flags, err);
    for (int p = 0; p < POINTS && status == WEFT_OK && d->back.n > 0; p++) {
        const size_t most = failing_at(d->back.n, p);
        d->again.n = 0;
        d->again.most = most;
        status = d->self.table->decode(d->self.made, &sink, d->one.id, d->one.n, flags, err);
        status = judge_failing(status, "decode", most, "bytes", err);
    }
    return status;
}

static weft_status passes_failures_on(desk *d, weft_error *err) {
    const weft_tokenizer_info *info = &d->self.info;
    const uint32_t both = (info->bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (info->eos >= 0 ? WEFT_ENCODE_EOS : 0u);
    weft_status status = encodes_to_failing(d, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = decodes_to_failing(d, 0, err);
    if (status == WEFT_OK) status = encodes_to_failing(d, WEFT_ENCODE_PLAIN | both, err);
    if (status == WEFT_OK) status = decodes_to_failing(d, WEFT_DECODE_KEEP_SPECIAL, err);
    return status;
}

static weft_status takes_any_id(desk *d, weft_error *err) {
    const int32_t strange[] = {-1, INT32_MIN, INT32_MAX, d->self.info.vocab_size, d->self.info.vocab_size + 1000};
    weft_status status = decode(&d->self, &d->back, strange, 5, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status != WEFT_OK) return status;
    if (d->back.n != 0) return WEFT_BROKEN(err, "ids that are no token's give %zu bytes; they give none", d->back.n);
    return WEFT_OK;
}

/* ---- special tokens ---- */

static const weft_tokenizer_special *special_table(const instance *self) {
    const void *table = NULL;
    if (self->table->extension != NULL)
        WEFT_PLUGIN_ASK(table, self->table, extension, self->made, WEFT_TOKENIZER_SPECIAL);
    return table;
}

/* Whether decoding is to leave the id out. */
static bool is_special(const instance *self, int32_t id) {
    const weft_tokenizer_special *table = special_table(self);
    return id >= 0 && (table == NULL || table->is_special(self->made, id) == 1);
}

/* By itself: nothing, or its name. */
static weft_status is_written(desk *d, int32_t id, const char *what, weft_error *err) {
    const weft_tokenizer_special *table = special_table(&d->self);
    weft_status status = decode(&d->self, &d->back, &id, 1, 0, err);
    if (status == WEFT_OK) status = decode(&d->self, &d->again, &id, 1, WEFT_DECODE_KEEP_SPECIAL, err);
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
static weft_status is_left_out(desk *d, int32_t id, const char *what, weft_error *err) {
    const size_t half = d->one.n / 2;
    weft_status status = decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    d->two.id[0] = d->two.id[half + 1] = d->two.id[d->one.n + 2] = id;
    memcpy(d->two.id + 1, d->one.id, half * sizeof d->one.id[0]);
    memcpy(d->two.id + half + 2, d->one.id + half, (d->one.n - half) * sizeof d->one.id[0]);
    if (status == WEFT_OK) status = decode(&d->self, &d->again, d->two.id, d->one.n + 3, 0, err);
    if (status == WEFT_OK && (d->back.n != d->again.n || memcmp(d->back.bytes, d->again.bytes, d->back.n) != 0))
        return WEFT_BROKEN(err,
                           "without WEFT_DECODE_KEEP_SPECIAL its ids give %zu bytes, and with %s among them %zu, or "
                           "others",
                           d->back.n, what, d->again.n);
    return status;
}

static weft_status heeds_keep(desk *d, weft_error *err) {
    const struct {
        const char *what;
        int32_t id;
    } tokens[] = {{"BOS", d->self.info.bos}, {"EOS", d->self.info.eos}};
    weft_status status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    for (int32_t i = 0; i < 2 && status == WEFT_OK && d->one.n + 3 <= MOST_IDS; i++) {
        if (!is_special(&d->self, tokens[i].id)) continue;
        status = is_written(d, tokens[i].id, tokens[i].what, err);
        if (status == WEFT_OK) status = is_left_out(d, tokens[i].id, tokens[i].what, err);
    }
    return status;
}

static weft_status rule_special(weft_subject *subject, weft_error *err) {
    instance self;
    weft_status status = instance_open(&self, subject, err);
    if (status == WEFT_OK && !is_special(&self, self.info.bos) && !is_special(&self, self.info.eos))
        status = WEFT_MOOT(subject, err, "it has neither a BOS nor an EOS that is special, and need not");
    instance_close(&self);
    return status == WEFT_OK ? each_text(subject, heeds_keep, err) : status;
}

/* ---- several threads ---- */

typedef struct worker {
    pthread_t thread;
    const instance *self;
    const ids *wanted; /* [TEXTS] */
    uint32_t first;
    int differs; /* a text's number + 1; 0: none */
    bool is_done;
} worker;

static void *encode_all(void *context) {
    worker *w = context;
    ids *got = malloc(sizeof *got);
    char from[MOST_TEXT];
    for (uint32_t i = 0; i < 3 * TEXTS && got != NULL && w->differs == 0; i++) {
        const uint32_t t = (i + w->first) % TEXTS;
        weft_error err = WEFT_ERROR_INIT;
        const size_t n = draw_text(from, t);
        if (encode(w->self, got, from, n, WEFT_ENCODE_PLAIN, &err) != WEFT_OK || got->n != w->wanted[t].n ||
            memcmp(got->id, w->wanted[t].id, got->n * sizeof got->id[0]) != 0)
            w->differs = (int)t + 1;
    }
    free(got);
    w->is_done = true;
    return NULL;
}

static weft_status run_workers(const instance *self, const ids *wanted, weft_error *err) {
    worker workers[THREADS];
    weft_status status = WEFT_OK;
    uint32_t n = 0;
    for (; n < THREADS; n++) {
        workers[n] = (worker){.self = self, .wanted = wanted, .first = n * 17};
        if (pthread_create(&workers[n].thread, NULL, encode_all, &workers[n]) != 0) break;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (!workers[i].is_done && status == WEFT_OK) status = WEFT_LOST_THREAD(err, "encode");
        if (workers[i].differs != 0 && status == WEFT_OK)
            status = WEFT_BROKEN(err, "text %d has other ids while %d threads encode", workers[i].differs - 1, THREADS);
    }
    return status;
}

static weft_status threads_alike(weft_subject *subject, weft_error *err) {
    ids *wanted = calloc(TEXTS, sizeof *wanted);
    char from[MOST_TEXT];
    instance self;
    weft_status status = instance_open(&self, subject, err);
    if (wanted == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for ids");
    for (uint32_t t = 0; t < TEXTS && status == WEFT_OK; t++) {
        const size_t n = draw_text(from, t);
        status = encode(&self, &wanted[t], from, n, WEFT_ENCODE_PLAIN, err);
    }
    if (status == WEFT_OK) status = run_workers(&self, wanted, err);
    instance_close(&self);
    free(wanted);
    return status;
}

static weft_status same_in_both(const instance *self, const instance *later, ids *one, ids *two, weft_error *err) {
    char from[MOST_TEXT];
    weft_status status = WEFT_OK;
    const weft_tokenizer_info *a = &self->info, *b = &later->info;
    if (a->vocab_size != b->vocab_size || a->bos != b->bos || a->eos != b->eos || a->unk != b->unk || a->pad != b->pad)
        return weft_later_judge(WEFT_OK, false, "facts in info", err);
    for (uint32_t t = 0; t < TEXTS && status == WEFT_OK; t++) {
        const size_t n = draw_text(from, t);
        status = encode(self, one, from, n, WEFT_ENCODE_PLAIN, err);
        if (status != WEFT_OK) return status;
        status = encode(later, two, from, n, WEFT_ENCODE_PLAIN, err);
        status = weft_later_judge(status, one->n == two->n && memcmp(one->id, two->id, one->n * sizeof one->id[0]) == 0,
                                  "ids", err);
    }
    return status;
}

static weft_status rule_later(weft_subject *subject, weft_error *err) {
    const weft_subject *widened = weft_later(subject);
    ids *room = calloc(2, sizeof *room);
    instance self = {0}, later = {0};
    weft_status status = room == NULL || widened == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for ids")
                                                         : instance_open(&self, subject, err);
    if (status == WEFT_OK && widened != NULL) {
        status = weft_later_judge(instance_open(&later, widened, err), true, "", err);
        if (status == WEFT_OK) status = same_in_both(&self, &later, &room[0], &room[1], err);
        if (status == WEFT_OK) status = weft_conversations_later(later.table, later.made, err);
    }
    instance_close(&later);
    instance_close(&self);
    free(room);
    return status;
}

static weft_status refuse_text(void *context, const char *bytes, size_t n) {
    (void)context, (void)bytes, (void)n;
    return WEFT_E_STOPPED;
}

/* There and back, and once more into sinks that fail: what they make of it is R64's to say. */
static weft_status go_and_fail(desk *d, weft_error *err) {
    const weft_ids_sink full = {&d->two, put_ids};
    const weft_text_sink closed = {NULL, refuse_text};
    weft_error said = WEFT_ERROR_INIT, more = WEFT_ERROR_INIT;
    weft_status failed, status = encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    if (status != WEFT_OK || d->one.n == 0) return status;
    d->two.n = 0;
    d->two.most = d->one.n - 1;
    WEFT_PLUGIN_CALL(failed, d->self.table, encode, &said, d->self.made, &full, d->from, d->n, WEFT_ENCODE_PLAIN);
    WEFT_PLUGIN_CALL(failed, d->self.table, decode, &more, d->self.made, &closed, d->one.id, d->one.n, 0);
    (void)failed;
    return WEFT_OK;
}

/* With texts in between, as a slot may keep what it takes. */
static weft_status come_and_go(weft_subject *subject, weft_error *err) {
    desk *d = calloc(1, sizeof *d);
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts")
                                   : instance_open(&d->self, subject, err);
    for (uint32_t t = 1; t <= 3 && status == WEFT_OK; t++) {
        d->n = draw_text(d->from, t);
        status = go_and_fail(d, err);
    }
    if (d != NULL) instance_close(&d->self);
    free(d);
    return status;
}

static weft_status gives_back(weft_subject *subject, weft_error *err) {
    return weft_subject_gives_back(subject, come_and_go, err);
}

static weft_status rule_ids(weft_subject *subject, weft_error *err) {
    return each_text(subject, ids_are_ids, err);
}
static weft_status rule_round(weft_subject *subject, weft_error *err) {
    return each_text(subject, goes_round, err);
}
static weft_status rule_loses(weft_subject *subject, weft_error *err) {
    const weft_status status = each_text(subject, loses_nothing, err);
    return status == WEFT_OK ? loses_no_end(subject, err) : status;
}
static weft_status rule_flags(weft_subject *subject, weft_error *err) {
    return each_text(subject, heeds_flags, err);
}
static weft_status rule_failures(weft_subject *subject, weft_error *err) {
    return each_text(subject, passes_failures_on, err);
}
static weft_status rule_any(weft_subject *subject, weft_error *err) {
    return each_text(subject, takes_any_id, err);
}

/* ---- wrong files ---- */

/* Its first file, which it cannot do without; "": it reads none. */
static weft_status find_file(char *name, size_t size, const weft_subject *subject, weft_error *err) {
    const char *first = NULL;
    instance self;
    const weft_status status = instance_open(&self, subject, err);
    if (status == WEFT_OK && self.table->file != NULL) first = self.table->file(self.made, 0);
    (void)snprintf(name, size, "%s", first == NULL ? "" : first);
    instance_close(&self);
    return status;
}

/* `wrong` looks into a directory where only that file lies. */
static weft_status read_wrong(const weft_subject *wrong, weft_wrong how, const char *name, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    instance self;
    const weft_status status = instance_open(&self, wrong, &said);
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_subject_refused(status, self.made, weft_wrong_name(how), err);
    if (self.refused) self.made = NULL;
    instance_close(&self);
    if (left != WEFT_OK) return left;
    if (status == WEFT_OK && name[0] != '\0')
        return WEFT_BROKEN(err, "it takes %s as its %s", weft_wrong_name(how), name);
    if (status != WEFT_OK && strstr(said.text, name) == NULL && strstr(said.text, wrong->options->directory) == NULL)
        return WEFT_BROKEN(err, "it refuses %s as its %s by a sentence that does not name it: %s", weft_wrong_name(how),
                           name, said.text);
    return WEFT_OK;
}

static weft_status refuses_wrong_files(weft_subject *subject, weft_error *err) {
    char here[WEFT_PATH_BYTES], directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], right[WEFT_PATH_BYTES], name[256];
    weft_subject_options options = *subject->options;
    weft_subject wrong = *subject;
    weft_status status = find_file(name, sizeof name, subject, err);
    options.directory = directory;
    wrong.options = &options;
    if (status == WEFT_OK && getcwd(here, sizeof here) == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    if (status == WEFT_OK) status = weft_path_join(directory, here, "wrong", err);
    if (status == WEFT_OK) status = weft_path_join(path, directory, name[0] == '\0' ? "none" : name, err);
    if (status == WEFT_OK) status = weft_path_join(right, subject->options->directory, name, err);
    if (status == WEFT_OK) (void)mkdir(directory, 0700);
    for (int w = 0; w < (name[0] == '\0' ? WEFT_WRONG_DIRECTORY : WEFT_N_WRONG) && status == WEFT_OK; w++) {
        weft_subject_asks("%s as its %s", weft_wrong_name((weft_wrong)w), name);
        status = weft_wrong_make(path, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(&wrong, (weft_wrong)w, name, err);
    }
    return status;
}

const weft_rule weft_rules_tokenizer[] = {
    {"R58", "tokenizer", "gives the same ids and texts whenever it is asked", rule_alike, false},
    {"R59", "tokenizer", "leaves special tokens out, and writes their names where that is asked for", rule_special,
     false},
    {"R60", "tokenizer", "gives ids of its vocabulary, and none for nothing", rule_ids, false},
    {"R61", "tokenizer", "decodes what it encoded", rule_round, false},
    {"R62", "tokenizer", "lets no letter get lost", rule_loses, false},
    {"R63", "tokenizer", "puts BOS and EOS where flags ask for them", rule_flags, false},
    {"R64", "tokenizer", "passes on that a sink fails", rule_failures, false},
    {"R65", "tokenizer", "decodes ids that are no token's to nothing", rule_any, false},
    {"R66", "tokenizer", "encodes alike in several threads at once", threads_alike, false},
    {"R67", "tokenizer", "gives its memory back", gives_back, false},
    {"R68", "tokenizer", "gives the same ids, also of conversations, to a host whose structs are longer", rule_later,
     false},
    {"R69", "tokenizer", "takes no wrong file, and names the one that it refuses", refuses_wrong_files, false},
    {NULL, NULL, NULL, NULL, false}};
