/* host/tools/check/tokenizer_rules.c: what a tokenizer has to keep to. */
#include "tools/check/tokenizer_trial.h"

#include "plugin/enter.h"
#include "tools/check/conversations.h"
#include "tools/check/newer_abi.h"

#include <stdlib.h>

/* ---- ids and texts ---- */

static weft_status facts_are_ids(const weft_tokenizer_info *info, weft_error *err) {
    const struct {
        const char *name;
        int32_t id;
    } facts[] = {{"bos", info->bos}, {"eos", info->eos}, {"unk", info->unk}, {"pad", info->pad}};
    for (int i = 0; i < 4; i++)
        if (facts[i].id < -1 || facts[i].id >= info->vocab_size)
            return WEFT_BROKEN(err,
                               "info has %s = %d and vocab_size = %d, the highest id + 1: an id is from 0 to %d, or -1 "
                               "where there is none",
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
        return WEFT_BROKEN(err, "an empty text has %zu ids: nothing is added unless flags ask for it", d->one.n);
    if (status == WEFT_OK && d->n > 0 && d->one.n == 0) return WEFT_BROKEN(err, "it has no ids at all");
    return status;
}

/* What a normalizer changes it changes once. */
static weft_status goes_round(weft_tokenizer_desk *d, weft_error *err) {
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->back, d->one.id, d->one.n, 0, err);
    if (status == WEFT_OK)
        status = weft_tokenizer_encode(&d->self, &d->two, d->back.bytes, d->back.n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK) status = weft_tokenizer_decode(&d->self, &d->again, d->two.id, d->two.n, 0, err);
    if (status == WEFT_OK && (d->back.n != d->again.n || memcmp(d->back.bytes, d->again.bytes, d->back.n) != 0))
        return WEFT_BROKEN(err, "decoding what was encoded gives %zu bytes, and once more %zu, or others", d->back.n,
                           d->again.n);
    if (status == WEFT_OK && d->n > 0 && d->back.n == 0) return WEFT_BROKEN(err, "nothing comes back");
    return status;
}

static weft_status heeds_flags(weft_tokenizer_desk *d, weft_error *err) {
    const weft_tokenizer_info *info = &d->self.info;
    const uint32_t flags = (info->bos >= 0 ? WEFT_ENCODE_BOS : 0u) | (info->eos >= 0 ? WEFT_ENCODE_EOS : 0u);
    const size_t first = info->bos >= 0, more = first + (info->eos >= 0);
    weft_status status = weft_tokenizer_encode(&d->self, &d->one, d->from, d->n, WEFT_ENCODE_PLAIN, err);
    if (status == WEFT_OK)
        status = weft_tokenizer_encode(&d->self, &d->two, d->from, d->n, WEFT_ENCODE_PLAIN | flags, err);
    if (status != WEFT_OK) return status;
    if (d->two.n != d->one.n + more || memcmp(d->two.id + first, d->one.id, d->one.n * sizeof d->one.id[0]) != 0 ||
        (info->bos >= 0 && d->two.id[0] != info->bos) || (info->eos >= 0 && d->two.id[d->two.n - 1] != info->eos))
        return WEFT_BROKEN(err, "WEFT_ENCODE_BOS and WEFT_ENCODE_EOS do not give the same ids between %d and %d",
                           (int)info->bos, (int)info->eos);
    return WEFT_OK;
}

static weft_status takes_any_id(weft_tokenizer_desk *d, weft_error *err) {
    const int32_t strange[] = {-1, INT32_MIN, INT32_MAX, d->self.info.vocab_size, d->self.info.vocab_size + 1000};
    weft_status status = weft_tokenizer_decode(&d->self, &d->back, strange, 5, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status != WEFT_OK) return status;
    if (d->back.n != 0) return WEFT_BROKEN(err, "ids that are no token's give %zu bytes; they give none", d->back.n);
    return WEFT_OK;
}

/* ---- in a later host ---- */

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
        status = weft_newer_abi_check(status,
                                      one->n == two->n && memcmp(one->id, two->id, one->n * sizeof one->id[0]) == 0,
                                      "ids", err);
    }
    return status;
}

static weft_status rule_later(weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin_under_test *widened = weft_newer_abi(tested);
    weft_trial_ids *room = calloc(2, sizeof *room);
    weft_tokenizer_instance self = {0}, later = {0};
    weft_status status = room == NULL || widened == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for ids")
                                                         : weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK && widened != NULL) {
        status = weft_newer_abi_check(weft_tokenizer_open(&later, widened, err), true, "", err);
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

/* There and back, and once more into sinks that fail: what they make of it is R64's to say. */
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

/* With texts in between, as a slot may keep what it takes. */
static weft_status come_and_go(weft_plugin_under_test *tested, weft_error *err) {
    weft_tokenizer_desk *d = calloc(1, sizeof *d);
    weft_status status = d == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for texts")
                                   : weft_tokenizer_open(&d->self, tested, err);
    for (uint32_t t = 1; t <= 3 && status == WEFT_OK; t++) {
        d->n = weft_text_draw(d->from, t);
        status = go_and_fail(d, err);
    }
    if (d != NULL) weft_tokenizer_close(&d->self);
    free(d);
    return status;
}

static weft_status gives_back(weft_plugin_under_test *tested, weft_error *err) {
    return weft_plugin_under_test_gives_back(tested, come_and_go, err);
}

/* ---- the rules ---- */

static weft_status rule_ids(weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_each_text(tested, ids_are_ids, err);
}

static weft_status rule_round(weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_each_text(tested, goes_round, err);
}

static weft_status rule_loses(weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = weft_tokenizer_each_text(tested, weft_tokenizer_loses_nothing, err);
    if (status != WEFT_OK) return status;
    status = weft_tokenizer_loses_no_script(tested, err);
    return status == WEFT_OK ? weft_tokenizer_loses_no_end(tested, err) : status;
}

static weft_status rule_flags(weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_each_text(tested, heeds_flags, err);
}

static weft_status rule_failures(weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_each_text(tested, weft_tokenizer_passes_failures_on, err);
}

static weft_status rule_any(weft_plugin_under_test *tested, weft_error *err) {
    return weft_tokenizer_each_text(tested, takes_any_id, err);
}

const weft_rule weft_rules_tokenizer[] = {
    {"R58", "tokenizer", "gives the same ids and texts whenever it is asked", weft_tokenizer_rule_alike, false},
    {"R59", "tokenizer", "leaves special tokens out, and writes their names where that is asked for",
     weft_tokenizer_rule_special, false},
    {"R60", "tokenizer", "gives ids of its vocabulary, and none for nothing", rule_ids, false},
    {"R61", "tokenizer", "decodes what it encoded", rule_round, false},
    {"R62", "tokenizer", "lets no letter get lost", rule_loses, false},
    {"R63", "tokenizer", "puts BOS and EOS where flags ask for them", rule_flags, false},
    {"R64", "tokenizer", "passes on that a sink fails", rule_failures, false},
    {"R65", "tokenizer", "decodes ids that are no token's to nothing", rule_any, false},
    {"R66", "tokenizer", "encodes alike in several threads at once", weft_tokenizer_threads_alike, false},
    {"R67", "tokenizer", "gives its memory back", gives_back, false},
    {"R68", "tokenizer", "gives the same ids, also of conversations, to a host whose structs are longer", rule_later,
     false},
    {"R69", "tokenizer", "takes no wrong file, and names the one that it refuses", weft_tokenizer_refuses_wrong_files,
     false},
    {"R116", "tokenizer", "does by its optional tables what they are there for", weft_tokenizer_serves_by_tables,
     false},
    {NULL, NULL, NULL, NULL, false}};
