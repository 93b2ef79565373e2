/* host/tools/check/tokenizer_rules.c: rules for tokenizers. */
#include "base/text.h"
#include "plugin/enter.h"
#include "tools/check/tokenizer_trial.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Flags of the BOS and EOS that the tokenizer has. */
static uint32_t both_flags(const weft_tokenizer_instance *self) {
    return (self->info.bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (self->info.eos >= 0 ? WEFT_ENCODE_EOS : 0u);
}

/* ---- errors of a sink ---- */

enum { POINTS = 4 };

/* Returns the element at which the sink of n elements fails: the first, the second, the middle or the last. */
static size_t failing_at(size_t n, int point) {
    const size_t points[POINTS] = {0, n > 1, n / 2, n - 1};
    return points[point];
}

static weft_status check_failing(weft_status status, const char *slot, size_t taken, const char *of, weft_error *err) {
    err->text[0] = '\0'; /* any message about the sink's failure is valid */
    if (status != WEFT_OK) return WEFT_OK;
    return WEFT_BROKEN(err, "the sink fails after %zu %s, and %s returns WEFT_OK", taken, of, slot);
}

static weft_status encodes_to_failing(weft_tokenizer_desk *d, uint32_t flags, weft_error *err) {
    const weft_ids_sink sink = {&d->two, weft_trial_put_ids};
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, flags, err);
    for (int p = 0; p < POINTS && status == WEFT_OK && d->one.n > 0; p++) {
        const size_t most = failing_at(d->one.n, p);
        d->two.n = 0;
        d->two.most = most;
        status = d->self.table->encode(d->self.made, &sink, d->from, d->n, flags, err);
        status = check_failing(status, "encode", most, "ids", err);
    }
    return status;
}

/* Decodes the ids in `one` into failing sinks. */
static weft_status decodes_to_failing(weft_tokenizer_desk *d, uint32_t flags, weft_error *err) {
    const weft_text_sink sink = {&d->again, weft_trial_put_text};
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, flags, err);
    for (int p = 0; p < POINTS && status == WEFT_OK && d->back.n > 0; p++) {
        const size_t most = failing_at(d->back.n, p);
        d->again.n = 0;
        d->again.most = most;
        status = d->self.table->decode(d->self.made, &sink, d->one.id, d->one.n, flags, err);
        status = check_failing(status, "decode", most, "bytes", err);
    }
    return status;
}

static weft_status passes_failures_on(weft_tokenizer_desk *d, weft_error *err) {
    const uint32_t both = both_flags(&d->self);
    weft_status status = encodes_to_failing(d, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = decodes_to_failing(d, 0, err);
    if (status == WEFT_OK) status = encodes_to_failing(d, WEFT_ENCODE_PLAIN | both, err);
    if (status == WEFT_OK) status = decodes_to_failing(d, WEFT_DECODE_KEEP_SPECIAL, err);
    return status;
}

/* ---- repeated answers, also of other instances ---- */

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

/* Adds the text's ids and their decoded text to the answer. */
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
    const uint32_t both = both_flags(self);
    const weft_status status = add_round(to, d, self, WEFT_ENCODE_PLAIN, 0, err);
    if (status != WEFT_OK) return status;
    return add_round(to, d, self, WEFT_ENCODE_PLAIN | both, WEFT_DECODE_KEEP_SPECIAL, err);
}

static weft_status query_any(weft_answer *to, void *made, weft_error *err) {
    const weft_tokenizer_instance *self = made;
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_status status = WEFT_OK;
    add_info(to, &self->info);
    for (uint32_t t = 0; t < KEYED_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        status = add_text(to, d, self, err);
    }
    free(d);
    return status;
}

static const weft_answers answers = {sizeof(weft_tokenizer_instance), open_any, close_any, query_any};

/* Compares a first call, a call of another instance, and a repeated call. */
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
        return WEFT_BROKEN(err, "a second instance returns different ids, or a different text for them");
    if (status == WEFT_OK && first.fingerprint != again.fingerprint)
        return WEFT_BROKEN(err, "a second call returns different ids, or a different text for them");
    return status;
}

static weft_status rule_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_tokenizer_instance other = {0};
    weft_status status = weft_other_keys(tested, &answers, err);
    if (status == WEFT_OK) status = weft_tokenizer_open(&d->self, tested, err);
    if (status == WEFT_OK) status = weft_tokenizer_open_in(&other, tested, WEFT_POISON_TWO, err);
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        weft_plugin_under_test_asks("text %u of %zu bytes", t, d->n);
        status = answers_alike(d, &other, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "text %u of %zu bytes: ", t, d->n);
    }
    weft_tokenizer_close(&d->self);
    weft_tokenizer_close(&other);
    free(d);
    return status;
}

/* ---- corrupt files ---- */

/* Finds its first file, which is required; "": it reads no file. */
static weft_status find_file(char *name, size_t size, const weft_plugin_under_test *tested, weft_error *err) {
    const char *first = NULL;
    weft_tokenizer_instance self;
    const weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK && self.table->file != NULL) first = self.table->file(self.made, 0);
    (void)snprintf(name, size, "%s", first == NULL ? "" : first);
    weft_tokenizer_close(&self);
    return status;
}

/* Opens `wrong` in a directory that contains only that file, corrupted. */
static weft_status read_wrong(const weft_plugin_under_test *wrong, weft_wrong how, const char *name, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    weft_tokenizer_instance self;
    const weft_status status = weft_tokenizer_open(&self, wrong, &said);
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_plugin_under_test_refused(status, self.made, weft_wrong_name(how), err);
    if (self.refused) self.made = NULL;
    weft_tokenizer_close(&self);
    if (left != WEFT_OK) return left;
    if (status == WEFT_OK && name[0] != '\0')
        return WEFT_BROKEN(err, "it accepts %s as its %s", weft_wrong_name(how), name);
    if (status != WEFT_OK && strstr(said.text, name) == NULL && strstr(said.text, wrong->options->directory) == NULL)
        return WEFT_BROKEN(err, "it rejects %s as its %s with a message that does not contain the path: %s",
                           weft_wrong_name(how), name, said.text);
    return WEFT_OK;
}

static weft_status refuses_wrong_files(weft_plugin_under_test *tested, weft_error *err) {
    char here[WEFT_PATH_BYTES], directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], right[WEFT_PATH_BYTES], name[256];
    weft_plugin_under_test_options options = *tested->options;
    weft_plugin_under_test wrong = *tested;
    weft_status status = find_file(name, sizeof name, tested, err);
    options.directory = directory;
    wrong.options = &options;
    if (status == WEFT_OK && getcwd(here, sizeof here) == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "getcwd of the working directory fails: %s", strerror(errno));
    if (status == WEFT_OK) status = weft_path_join(directory, here, "wrong", err);
    if (status == WEFT_OK) status = weft_path_join(path, directory, name[0] == '\0' ? "none" : name, err);
    if (status == WEFT_OK) status = weft_path_join(right, tested->options->directory, name, err);
    if (status == WEFT_OK) (void)mkdir(directory, 0700);
    for (int w = 0; w < (name[0] == '\0' ? WEFT_WRONG_DIRECTORY : WEFT_N_WRONG) && status == WEFT_OK; w++) {
        weft_plugin_under_test_asks("%s as its %s", weft_wrong_name((weft_wrong)w), name);
        status = weft_wrong_make(path, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(&wrong, (weft_wrong)w, name, err);
    }
    return status;
}

/* ---- a saved model ---- */

#define SAVED "saved" /* in the rule's own directory */

/* Puts the file into the directory of the saved model; one that is not there stays away. */
static weft_status bring(const weft_plugin_under_test *tested, const char *name, weft_error *err) {
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES], *slash = NULL;
    weft_status status = weft_path_join(from, tested->options->directory, name, err);
    if (status == WEFT_OK) status = weft_path_join(to, SAVED, name, err);
    if (status != WEFT_OK || access(from, F_OK) != 0) return status;
    slash = strchr(to + sizeof SAVED, '/');
    if (slash != NULL) {
        *slash = '\0';
        (void)mkdir(to, 0700);
        *slash = '/';
    }
    if (symlink(from, to) == 0 || errno == EEXIST) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be created: %s", to, strerror(errno));
}

static weft_status save(const weft_tokenizer_instance *self, const weft_plugin_under_test *tested, weft_error *err) {
    const char *name = NULL;
    weft_status status = WEFT_OK;
    (void)mkdir(SAVED, 0700);
    for (uint32_t i = 0; self->table->file != NULL && status == WEFT_OK; i++) {
        WEFT_PLUGIN_QUERY(name, self->table, file, self->made, i);
        if (name == NULL) break;
        status = bring(tested, name, err);
    }
    if (status == WEFT_OK) status = bring(tested, "config.json", err); /* the model's */
    return status == WEFT_OK ? bring(tested, "generation_config.json", err) : status;
}

static weft_status compare_saved(const weft_tokenizer_instance *self, weft_tokenizer_desk *d, weft_error *err) {
    weft_status status = WEFT_OK;
    if (memcmp(&self->info, &d->self.info, sizeof self->info) != 0)
        return WEFT_BROKEN(err, "from the files that it names for a saved model it has a different info");
    for (uint32_t t = 1; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        status = weft_tokenizer_encode(self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
        if (status == WEFT_OK) status = weft_tokenizer_encode(&d->self, &d->two, d->from, d->n, WEFT_ENCODE_PLAIN, err);
        if (status == WEFT_OK && !weft_trial_same_ids(&d->one, &d->two))
            return WEFT_BROKEN(err,
                               "text %u has different ids from the files that it names for a saved model: `file` must "
                               "name each file that create reads",
                               t);
    }
    return status;
}

static weft_status is_saved(weft_plugin_under_test *tested, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    weft_plugin_under_test_options options = *tested->options;
    weft_plugin_under_test saved = *tested;
    weft_tokenizer_instance self = {0};
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK) status = save(&self, tested, err);
    if (status == WEFT_OK && realpath(SAVED, directory) == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, SAVED " is gone: %s", strerror(errno));
    options.directory = directory;
    saved.options = &options;
    if (status == WEFT_OK) {
        status = weft_tokenizer_open(&d->self, &saved, err);
        if (status != WEFT_OK) {
            (void)weft_error_prefix(err, "it cannot be created from the files that it names for a saved model: ");
            status = WEFT_E_PLUGIN;
        }
    }
    if (status == WEFT_OK) status = compare_saved(&self, d, err);
    weft_tokenizer_close(&d->self);
    weft_tokenizer_close(&self);
    free(d);
    return status;
}

/* ---- special tokens, skipped or written as requested ---- */

/* True if decoding must skip the id. */
static bool is_special(const weft_tokenizer_instance *self, int32_t id) {
    const weft_tokenizer_special *table = weft_tokenizer_table(self, WEFT_TOKENIZER_SPECIAL);
    return id >= 0 && (table == NULL || table->is_special(self->made, id) == 1);
}

/* Checks an id on its own: it decodes to an empty text, or to its name if special tokens are kept. */
static weft_status is_written(weft_tokenizer_desk *d, int32_t id, const char *what, weft_error *err) {
    const weft_tokenizer_special *table = weft_tokenizer_table(&d->self, WEFT_TOKENIZER_SPECIAL);
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, &id, 1, 0, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, &id, 1, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status != WEFT_OK) return status;
    if (d->back.n != 0)
        return WEFT_BROKEN(err, "%s, id %d, decodes to %zu bytes without WEFT_DECODE_KEEP_SPECIAL, and must be omitted",
                           what, (int)id, d->back.n);
    if (d->again.n == 0)
        return WEFT_BROKEN(
            err, "%s, id %d, decodes to an empty text with WEFT_DECODE_KEEP_SPECIAL, and must decode to its name", what,
            (int)id);
    if (table != NULL && table->id(d->self.made, d->again.bytes, d->again.n) != id)
        return WEFT_BROKEN(err, "%s, id %d, is written as \"%.*s\", which is not the name of that id", what, (int)id,
                           (int)(d->again.n < 64 ? d->again.n : 64), d->again.bytes);
    return WEFT_OK;
}

/* Checks that an id before, within or after a text is skipped without any effect. */
static weft_status is_left_out(weft_tokenizer_desk *d, int32_t id, const char *what, weft_error *err) {
    const size_t half = d->one.n / 2;
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    d->two.id[0] = d->two.id[half + 1] = d->two.id[d->one.n + 2] = id;
    memcpy(d->two.id + 1, d->one.id, half * sizeof d->one.id[0]);
    memcpy(d->two.id + half + 2, d->one.id + half, (d->one.n - half) * sizeof d->one.id[0]);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, d->two.id, d->one.n + 3, 0, err);
    if (status == WEFT_OK && !weft_trial_same_text(&d->back, &d->again))
        return WEFT_BROKEN(err,
                           "without WEFT_DECODE_KEEP_SPECIAL its ids decode to %zu bytes, and with %s among them to "
                           "%zu, or different ones",
                           d->back.n, what, d->again.n);
    return status;
}

static weft_status follows_keep(weft_tokenizer_desk *d, weft_error *err) {
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

static weft_status rule_special(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_instance self;
    weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK && !is_special(&self, self.info.bos) && !is_special(&self, self.info.eos))
        status = WEFT_MOOT(tested, err, "it has neither a BOS nor an EOS that is special, and need not");
    weft_tokenizer_close(&self);
    return status == WEFT_OK ? weft_tokenizer_each_text(tested, follows_keep, err) : status;
}

/* ---- threads ---- */

typedef struct encoder {
    const weft_tokenizer_instance *self;
    const weft_trial_ids *wanted; /* [TEXTS] */
    uint32_t first;
    int differs; /* text number + 1; 0: equal */
} encoder;

static void encode_all(void *context) {
    encoder *e = context;
    weft_trial_ids *got = weft_alloc(1, sizeof *got);
    char from[WEFT_TRIAL_TEXT];
    for (uint32_t i = 0; i < 3 * WEFT_TRIAL_TEXTS && e->differs == 0; i++) {
        const uint32_t t = (i + e->first) % WEFT_TRIAL_TEXTS;
        weft_error err = WEFT_ERROR_INIT;
        const size_t n = weft_text_draw(from, t);
        if (weft_tokenizer_encode(e->self, got, from, n, WEFT_ENCODE_PLAIN, &err) != WEFT_OK ||
            !weft_trial_same_ids(got, &e->wanted[t]))
            e->differs = (int)t + 1;
    }
    free(got);
}

static weft_status encode_at_once(const weft_tokenizer_instance *self, const weft_trial_ids *wanted, weft_error *err) {
    encoder encoders[WEFT_RULE_THREADS];
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_RULE_THREADS; i++)
        encoders[i] = (encoder){.self = self, .wanted = wanted, .first = i * 17};
    status = weft_rule_threads(encode_all, encoders, sizeof encoders[0], "encode", err);
    for (int i = 0; i < WEFT_RULE_THREADS && status == WEFT_OK; i++)
        if (encoders[i].differs != 0)
            status = WEFT_BROKEN(err, "text %d has different ids while %d threads encode", encoders[i].differs - 1,
                                 WEFT_RULE_THREADS);
    return status;
}

static weft_status threads_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_trial_ids *wanted = weft_alloc(WEFT_TRIAL_TEXTS, sizeof *wanted);
    char from[WEFT_TRIAL_TEXT];
    weft_tokenizer_instance self;
    weft_status status = weft_tokenizer_open(&self, tested, err);
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        const size_t n = weft_text_draw(from, t);
        status = weft_tokenizer_encode(&self, &wanted[t], from, n, WEFT_ENCODE_PLAIN, err);
    }
    if (status == WEFT_OK) status = encode_at_once(&self, wanted, err);
    weft_tokenizer_close(&self);
    free(wanted);
    return status;
}

/* ---- no letter is lost, in texts of any length ---- */

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

static weft_status loses_nothing(weft_tokenizer_desk *d, weft_error *err) {
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

static weft_status loses_no_script(const weft_plugin_under_test *tested, weft_error *err) {
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

static weft_status loses_no_end(const weft_plugin_under_test *tested, weft_error *err) {
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

/* ---- ids and texts ---- */

static weft_status facts_are_ids(const weft_tokenizer_info *info, weft_error *err) {
    const struct {
        const char *name;
        int32_t id;
    } facts[] = {{"bos", info->bos}, {"eos", info->eos}, {"unk", info->unk}, {"pad", info->pad}};
    for (int i = 0; i < 4; i++)
        if (facts[i].id < -1 || facts[i].id >= info->vocab_size)
            return WEFT_BROKEN(err,
                               "info has %s = %d and vocab_size = %d, the highest id + 1. Allowed: an id from 0 to %d, "
                               "or -1 for no such token",
                               facts[i].name, (int)facts[i].id, (int)info->vocab_size, (int)info->vocab_size - 1);
    return WEFT_OK;
}

static weft_status ids_are_ids(weft_tokenizer_desk *d, weft_error *err) {
    weft_status status = facts_are_ids(&d->self.info, err);
    d->one.n = 0;
    if (status == WEFT_OK) status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    for (size_t i = 0; i < d->one.n && status == WEFT_OK; i++)
        if (d->one.id[i] < 0 || d->one.id[i] >= d->self.info.vocab_size)
            return WEFT_BROKEN(err, "id %zu is %d, and info has 0 to %d", i, (int)d->one.id[i],
                               (int)d->self.info.vocab_size - 1);
    if (status == WEFT_OK && d->n == 0 && d->one.n != 0)
        return WEFT_BROKEN(err, "an empty text has %zu ids: ids may be added only if flags request them", d->one.n);
    if (status == WEFT_OK && d->n > 0 && d->one.n == 0) return WEFT_BROKEN(err, "it has no ids at all");
    return status;
}

/* Checks that encoding is idempotent after the first normalization. */
static weft_status goes_round(weft_tokenizer_desk *d, weft_error *err) {
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    if (status == WEFT_OK)
        status = weft_tokenizer_encode(&d->self, &d->two, d->back.bytes, d->back.n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, d->two.id, d->two.n, 0, err);
    if (status == WEFT_OK && !weft_trial_same_text(&d->back, &d->again))
        return WEFT_BROKEN(err,
                           "decoding of encoded text returns %zu bytes, and %zu or different ones on a second call",
                           d->back.n, d->again.n);
    if (status == WEFT_OK && d->n > 0 && d->back.n == 0) return WEFT_BROKEN(err, "nothing comes back");
    return status;
}

static weft_status follows_flags(weft_tokenizer_desk *d, weft_error *err) {
    const weft_tokenizer_info *info = &d->self.info;
    const uint32_t flags = both_flags(&d->self);
    const size_t first = info->bos >= 0, more = first + (info->eos >= 0);
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK)
        status = weft_tokenizer_encode(&d->self, &d->two, d->from, d->n, WEFT_ENCODE_PLAIN | flags, err);
    if (status != WEFT_OK) return status;
    if (d->two.n != d->one.n + more || memcmp(d->two.id + first, d->one.id, d->one.n * sizeof d->one.id[0]) != 0 ||
        (info->bos >= 0 && d->two.id[0] != info->bos) || (info->eos >= 0 && d->two.id[d->two.n - 1] != info->eos))
        return WEFT_BROKEN(err, "the ids without WEFT_ENCODE_BOS and WEFT_ENCODE_EOS differ between %d and %d",
                           (int)info->bos, (int)info->eos);
    return WEFT_OK;
}

static weft_status takes_any_id(weft_tokenizer_desk *d, weft_error *err) {
    const int32_t strange[] = {-1, INT32_MIN, INT32_MAX, d->self.info.vocab_size, d->self.info.vocab_size + 1000};
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, strange, 5, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status != WEFT_OK) return status;
    if (d->back.n != 0) return WEFT_BROKEN(err, "ids of no token decode to %zu bytes. Allowed: 0 bytes", d->back.n);
    return WEFT_OK;
}

/* ---- newer-ABI host ---- */

static weft_status same_in_both(const weft_tokenizer_instance *self, const weft_tokenizer_instance *later,
                                weft_trial_ids *one, weft_trial_ids *two, weft_error *err) {
    char from[WEFT_TRIAL_TEXT];
    weft_status status = WEFT_OK;
    const weft_tokenizer_info *a = &self->info, *b = &later->info;
    if (a->vocab_size != b->vocab_size || a->bos != b->bos || a->eos != b->eos || a->unk != b->unk || a->pad != b->pad)
        return weft_newer_abi_check(WEFT_OK, false, "facts in info", err);
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        const size_t n = weft_text_draw(from, t);
        status = weft_tokenizer_encode(self, one, from, n, WEFT_ENCODE_PLAIN, err);
        if (status != WEFT_OK) return status;
        status = weft_tokenizer_encode(later, two, from, n, WEFT_ENCODE_PLAIN, err);
        status = weft_newer_abi_check(status, weft_trial_same_ids(one, two), "ids", err);
    }
    return status;
}

static weft_status rule_later(weft_plugin_under_test *tested, weft_error *err) {
    weft_trial_ids *room = weft_alloc(2, sizeof *room);
    weft_tokenizer_instance self = {0}, later = {0};
    weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK) {
        status = weft_newer_abi_check(weft_tokenizer_open(&later, weft_newer_abi(tested), err), true, "", err);
        if (status == WEFT_OK) status = same_in_both(&self, &later, &room[0], &room[1], err);
        if (status == WEFT_OK) status = weft_conversations_later(later.table, later.made, err);
    }
    weft_tokenizer_close(&later);
    weft_tokenizer_close(&self);
    free(room);
    return status;
}

/* ---- memory ---- */

static weft_status refuse_text(void *context, const char *bytes, size_t n) {
    (void)context, (void)bytes, (void)n;
    return WEFT_E_STOPPED;
}

/* Encodes and decodes, and once more into failing sinks. R64 checks the error codes. */
static weft_status go_and_fail(weft_tokenizer_desk *d, weft_error *err) {
    const weft_ids_sink full = {&d->two, weft_trial_put_ids};
    const weft_text_sink closed = {NULL, refuse_text};
    weft_error said = WEFT_ERROR_INIT, more = WEFT_ERROR_INIT;
    weft_status failed, status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    if (status != WEFT_OK || d->one.n == 0) return status;
    d->two.n = 0;
    d->two.most = d->one.n - 1;
    WEFT_PLUGIN_CALL(failed, d->self.table, encode, &said, d->self.made, &full, d->from, d->n, WEFT_ENCODE_PLAIN);
    WEFT_PLUGIN_CALL(failed, d->self.table, decode, &more, d->self.made, &closed, d->one.id, d->one.n, 0);
    (void)failed;
    return WEFT_OK;
}

/* Encodes texts between create and destroy, because any slot may leak. */
static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_desk *d = weft_alloc(1, sizeof *d);
    weft_status status = weft_tokenizer_open(&d->self, tested, err);
    for (uint32_t t = 1; t <= 3 && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        status = go_and_fail(d, err);
    }
    weft_tokenizer_close(&d->self);
    free(d);
    return status;
}

WEFT_RULE_BY(releases, weft_plugin_under_test_releases, create_and_destroy)

/* ---- the rules ---- */

WEFT_RULE_BY(rule_ids, weft_tokenizer_each_text, ids_are_ids)
WEFT_RULE_BY(rule_round, weft_tokenizer_each_text, goes_round)
WEFT_RULE_BY(rule_flags, weft_tokenizer_each_text, follows_flags)
WEFT_RULE_BY(rule_failures, weft_tokenizer_each_text, passes_failures_on)
WEFT_RULE_BY(rule_any, weft_tokenizer_each_text, takes_any_id)

static weft_status rule_loses(weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = weft_tokenizer_each_text(tested, loses_nothing, err);
    if (status != WEFT_OK) return status;
    status = loses_no_script(tested, err);
    return status == WEFT_OK ? loses_no_end(tested, err) : status;
}

const weft_rule weft_rules_tokenizer[] = {
    {"R58", "returns the same ids and texts on each call", rule_alike, false},
    {"R59", "omits special tokens, and writes their names on request", rule_special, false},
    {"R60", "returns ids of its vocabulary, and no ids for an empty text", rule_ids, false},
    {"R61", "decodes the text that it encoded", rule_round, false},
    {"R62", "loses no letter", rule_loses, false},
    {"R63", "adds BOS and EOS if flags request them", rule_flags, false},
    {"R64", "returns the error of a sink", rule_failures, false},
    {"R65", "decodes invalid ids to an empty text", rule_any, false},
    {"R66", "encodes the same in several threads at once", threads_alike, false},
    {"R67", "frees its memory", releases, false},
    {"R68", "returns the same ids with a host that has longer structs, also for conversations", rule_later, false},
    {"R69", "rejects an invalid file and names it", refuses_wrong_files, false},
    {"R116", "implements its optional tables", weft_tokenizer_serves_by_tables, false},
    {"R122", "returns the same ids from the files that it names for a saved model", is_saved, false},
    {NULL, NULL, NULL, false}};
