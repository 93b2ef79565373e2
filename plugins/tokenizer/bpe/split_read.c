/* split_read.c: reads the "pre_tokenizer" section of tokenizer.json. */
#include "split.h"
#include "unicode.h"

/* Pattern of GPT-2: contractions; words, numbers and other characters, each with a preceding blank; white space. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bpe_split_step *add_step(bpe_split *self, int32_t kind, const bpe_place *at, weft_status *status,
                                weft_error *err) {
    const bpe_split_step fresh = {kind,  BPE_ISOLATED, BPE_ALWAYS,
                                  false, {NULL, 0},    {BPE_NUMERIC, {NULL, 0}, NULL, NULL}};
    if (*status != WEFT_OK) return NULL;
    if (self->steps.n >= BPE_MOST_STEPS) {
        *status = bpe_json_fail(err, at, "more than %d steps are not supported.", BPE_MOST_STEPS);
        return NULL;
    }
    bpe_list_add(&self->steps, &fresh, 1);
    if (self->steps.failed) *status = bpe_no_memory(err);
    return self->steps.failed ? NULL : &BPE_AT(&self->steps, bpe_split_step)[self->steps.n - 1];
}

static weft_status read_byte_level(bpe_split *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool yes = true;
    bool space = false, regex = false;
    bpe_split_step *step = NULL;
    weft_status status = bpe_json_known(at, json, "type add_prefix_space trim_offsets use_regex", err);
    if (status == WEFT_OK) status = bpe_json_bool(&space, at, json, "add_prefix_space", NULL, err);
    if (status == WEFT_OK) status = bpe_json_bool(&regex, at, json, "use_regex", &yes, err);
    if (space) (void)add_step(self, BPE_SPACE, at, &status, err);
    if (regex) step = add_step(self, BPE_SPLIT, at, &status, err);
    if (step != NULL)
        status = bpe_pattern_regex(&step->pattern, self->host, at, gpt2_pattern, sizeof gpt2_pattern - 1, err);
    (void)add_step(self, BPE_BYTES, at, &status, err);
    self->bytes = true;
    return status;
}

static weft_status read_behaviour(int32_t *out, const bpe_place *at, const json_t *json, weft_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const bpe_place here = bpe_place_key(at, "behavior");
    const char *name = NULL;
    size_t n = 0;
    weft_status status = bpe_json_text(&name, &n, at, json, "behavior", err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = i;
        return WEFT_OK;
    }
    return bpe_json_fail(err, &here,
                         "%s is unknown. Allowed: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous.",
                         bpe_quote(name, n).text);
}

static weft_status read_split(bpe_split *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool no = false;
    const bpe_place here = bpe_place_key(at, "pattern");
    weft_status status = bpe_json_known(at, json, "type pattern behavior invert", err);
    bpe_split_step *step = add_step(self, BPE_SPLIT, at, &status, err);
    if (step == NULL) return status;
    status = read_behaviour(&step->behaviour, at, json, err);
    if (status == WEFT_OK) status = bpe_json_bool(&step->invert, at, json, "invert", &no, err);
    if (status == WEFT_OK)
        status = bpe_pattern_read(&step->pattern, self->host, &here, json_object_get(json, "pattern"), err);
    return status;
}

static weft_status read_digits(bpe_split *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool no = false;
    bool each = false;
    weft_status status = bpe_json_known(at, json, "type individual_digits", err);
    bpe_split_step *step = add_step(self, BPE_SPLIT, at, &status, err);
    if (step == NULL) return status;
    status = bpe_json_bool(&each, at, json, "individual_digits", &no, err);
    step->behaviour = each ? BPE_ISOLATED : BPE_CONTIGUOUS;
    return status;
}

static weft_status read_punctuation(bpe_split *self, const bpe_place *at, const json_t *json, weft_error *err) {
    weft_status status = bpe_json_known(at, json, "type behavior", err);
    bpe_split_step *step = add_step(self, BPE_SPLIT, at, &status, err);
    if (step == NULL) return status;
    step->pattern.kind = BPE_PUNCTUATION;
    return json_object_get(json, "behavior") == NULL ? WEFT_OK : read_behaviour(&step->behaviour, at, json, err);
}

static weft_status read_meta(bpe_split *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool yes = true;
    bool split = false;
    bpe_text replacement = {NULL, 0};
    int32_t scheme = BPE_ALWAYS;
    bpe_split_step *step = NULL;
    weft_status status =
        bpe_json_known(at, json, "type replacement add_prefix_space prepend_scheme split str_rep", err);
    if (status == WEFT_OK) status = bpe_meta_read(&replacement, &scheme, self->host, at, json, err);
    if (status == WEFT_OK) status = bpe_json_bool(&split, at, json, "split", &yes, err);
    if (status == WEFT_OK && scheme == BPE_FIRST && self->steps.n > 0)
        status = bpe_json_fail(err, at,
                               "prepend_scheme = first is supported as the first step alone, where it is plain "
                               "which piece begins the text.");
    step = add_step(self, BPE_META, at, &status, err);
    if (step == NULL) {
        self->host->release(self->host, replacement.bytes);
        return status;
    }
    step->replacement = replacement;
    step->scheme = scheme;
    if (split) step = add_step(self, BPE_SPLIT, at, &status, err);
    if (!split || step == NULL) return status;
    step->behaviour = BPE_MERGED_WITH_NEXT;
    return bpe_pattern_literal(&step->pattern, self->host, replacement.bytes, replacement.n, err);
}

static weft_status read_step(void *context, const bpe_place *at, const json_t *json, const char *type,
                             weft_error *err) {
    bpe_split *self = context;
    const bpe_place here = bpe_place_key(at, "type");
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(self, at, json, err);
    if (strcmp(type, "Split") == 0) return read_split(self, at, json, err);
    if (strcmp(type, "Digits") == 0) return read_digits(self, at, json, err);
    if (strcmp(type, "Punctuation") == 0) return read_punctuation(self, at, json, err);
    if (strcmp(type, "Metaspace") == 0) return read_meta(self, at, json, err);
    return bpe_json_fail(err, &here,
                         "the pre-tokenizer %s is not supported. Allowed: Sequence, ByteLevel, Split, "
                         "Digits, Punctuation, Metaspace.",
                         bpe_quote(type, strlen(type)).text);
}

weft_status bpe_split_read(bpe_split *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           weft_error *err) {
    self->host = host;
    self->bytes = false;
    bpe_list_init(&self->steps, host, sizeof(bpe_split_step));
    return bpe_json_steps(self, read_step, at, json, "pretokenizers", err);
}

void bpe_split_free(bpe_split *self) {
    if (self->host == NULL) return;
    for (size_t i = 0; i < self->steps.n; i++) {
        bpe_split_step *step = &BPE_AT(&self->steps, bpe_split_step)[i];
        self->host->release(self->host, step->replacement.bytes);
        bpe_pattern_free(&step->pattern, self->host);
    }
    bpe_list_free(&self->steps);
}
