/* pattern.c: reads patterns and searches texts for them. PCRE2 searches ranges of valid characters, one unit per
 * character (regex.c). Bytes that are not UTF-8 separate the ranges. */
#include "pattern.h"
#include "unicode.h"

/* Size and limit of the JIT stack, for patterns that backtrack over long texts. */
#define STACK_START ((size_t)32 << 10)
#define STACK_MOST  ((size_t)64 << 20)

typedef struct search {
    const bpe_pattern *pattern;
    bpe_matcher *matcher;
    const char *text;
    bpe_visit *visit;
    void *context;
    weft_error *err;
} search;

bool bpe_matcher_init(bpe_matcher *self, const weft_host *host) {
    bpe_list_init(&self->units, host, 1);
    self->found = pcre2_match_data_create(1, NULL);
    self->context = pcre2_match_context_create(NULL);
    self->stack = pcre2_jit_stack_create(STACK_START, STACK_MOST, NULL);
    if (self->found == NULL || self->context == NULL) return false;
    if (self->stack != NULL) pcre2_jit_stack_assign(self->context, NULL, self->stack); /* NULL: PCRE2 without JIT */
    return true;
}

void bpe_matcher_free(bpe_matcher *self) {
    bpe_list_free(&self->units);
    pcre2_match_data_free(self->found);
    pcre2_match_context_free(self->context);
    pcre2_jit_stack_free(self->stack);
}

weft_status bpe_pattern_literal(bpe_pattern *self, const weft_host *host, const char *bytes, size_t n,
                                weft_error *err) {
    self->kind = BPE_LITERAL;
    return bpe_text_set(&self->literal, host, bytes, n) ? WEFT_OK : bpe_no_memory(err);
}

/* Recognizes the patterns of GPT-2, Llama 3 and Qwen2. They match a line end between two letters separately: only a
 * blank can precede a word, and no match with a line end begins with a letter. */
static bool ends_lines(const char *regex, size_t n) {
    static const char *const known[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == n && memcmp(known[i], regex, n) == 0) return true;
    return false;
}

weft_status bpe_pattern_regex(bpe_pattern *self, const weft_host *host, const bpe_place *at, const char *regex,
                              size_t n, weft_error *err) {
    const char *why = NULL;
    int code = 0;
    PCRE2_SIZE where = 0;
    PCRE2_UCHAR message[120] = {0};
    weft_status status = WEFT_OK;
    bpe_list translated;
    bpe_list_init(&translated, host, 1);
    self->kind = ends_lines(regex, n) ? BPE_LINES : BPE_REGEX;
    self->units = host->alloc(host, BPE_N_POINTS, 16);
    if (self->units == NULL) {
        status = bpe_no_memory(err);
        goto done;
    }
    if (!bpe_regex_translate(&translated, self->units, &why, regex, n)) {
        status = bpe_json_fail(err, at, "the pattern %s contains %s, which is not supported.", bpe_quote(regex, n).text,
                               why);
        goto done;
    }
    if (translated.failed) {
        status = bpe_no_memory(err);
        goto done;
    }
    self->code = pcre2_compile((PCRE2_SPTR)(translated.n == 0 ? "" : translated.data), translated.n,
                               PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &where, NULL);
    if (self->code == NULL) {
        (void)pcre2_get_error_message(code, message, sizeof message);
        status = bpe_json_fail(err, at, "the pattern %s cannot be compiled: %s.", bpe_quote(regex, n).text,
                               (const char *)message);
        goto done;
    }
    (void)pcre2_jit_compile(self->code, PCRE2_JIT_COMPLETE); /* matching works without JIT, but slower */
done:
    bpe_list_free(&translated);
    return status;
}

weft_status bpe_pattern_read(bpe_pattern *self, const weft_host *host, const bpe_place *at, const json_t *json,
                             weft_error *err) {
    const json_t *literal = json_object_get(json, "String"), *regex = json_object_get(json, "Regex");
    const bpe_place here = bpe_place_key(at, "Regex");
    if (json_object_size(json) != 1 || !(json_is_string(literal) || json_is_string(regex)))
        return bpe_json_fail(err, at, "a pattern must be {\"String\": ...} or {\"Regex\": ...}.");
    if (regex != NULL)
        return bpe_pattern_regex(self, host, &here, json_string_value(regex), json_string_length(regex), err);
    if (json_string_length(literal) == 0) return bpe_json_fail(err, at, "the pattern is empty.");
    return bpe_pattern_literal(self, host, json_string_value(literal), json_string_length(literal), err);
}

void bpe_pattern_free(bpe_pattern *self, const weft_host *host) {
    host->release(host, self->literal.bytes);
    host->release(host, self->units);
    pcre2_code_free(self->code);
}

static weft_status give(const search *self, size_t begin, size_t end, bool is_match) {
    return self->visit(self->context, begin, end, is_match, self->err);
}

static weft_status between(const search *self, size_t begin, size_t end) {
    return begin < end ? give(self, begin, end, false) : WEFT_OK;
}

static weft_status each_literal(const search *self, size_t n) {
    const bpe_text *literal = &self->pattern->literal;
    size_t last = 0;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && last < n) {
        const char *found = memmem(self->text + last, n - last, literal->bytes, literal->n);
        const size_t begin = found == NULL ? n : (size_t)(found - self->text);
        status = between(self, last, begin);
        if (found == NULL || status != WEFT_OK) break;
        last = begin + literal->n;
        status = give(self, begin, last, true);
    }
    return status;
}

static weft_status each_of_kind(const search *self, size_t n) {
    const bool numeric = self->pattern->kind == BPE_NUMERIC;
    size_t last = 0, length = 0;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK; i += length) {
        int32_t point = 0;
        length = bpe_utf8(self->text + i, n - i, &point);
        if (point < 0 || !(numeric ? bpe_is_numeric(point) : bpe_is_punctuation(point))) continue;
        status = between(self, last, i);
        if (status == WEFT_OK) status = give(self, i, i + length, true);
        last = i + length;
    }
    return status == WEFT_OK ? between(self, last, n) : status;
}

static weft_status match_fault(const search *self, int code, size_t at) {
    PCRE2_UCHAR message[120] = {0};
    (void)pcre2_get_error_message(code, message, sizeof message);
    return weft_error_set(self->err, WEFT_E_DATA,
                          "A pattern of the tokenizer fails at byte %zu of a part of the text: %s.", at,
                          (const char *)message);
}

/* A range of valid characters as units, one per character. */
typedef struct stretch {
    const search *of;
    const char *units; /* the text itself if it is ASCII; NULL: at `first` in the matcher's units */
    size_t first, n;
    size_t unit, byte; /* the last converted position, in units and in bytes */
} stretch;

static size_t begin_stretch(stretch *self, const search *of, size_t begin, size_t end) {
    bpe_list *all = &of->matcher->units;
    const char *text = of->text;
    size_t ascii = begin;
    *self = (stretch){of, text + begin, all->n, end - begin, 0, begin};
    while (ascii < end && (unsigned char)text[ascii] < 0x80) ascii++;
    if (ascii == end) return self->n;
    self->units = NULL;
    self->n = 0;
    if (!bpe_list_reserve(all, end - begin)) return 0;
    for (size_t i = begin; i < end; self->n++) {
        int32_t point = 0;
        i += bpe_utf8(text + i, end - i, &point);
        BPE_AT(all, unsigned char)[all->n++] = of->pattern->units[point];
    }
    return self->n;
}

/* Converts a unit to a byte position; calls must be in ascending order. */
static size_t byte_of(stretch *self, size_t unit) {
    if (self->units != NULL) self->byte += unit - self->unit;
    else
        for (size_t i = self->unit; i < unit; i++) {
            const unsigned char lead = (unsigned char)self->of->text[self->byte];
            self->byte += lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        }
    self->unit = unit;
    return self->byte;
}

/* Visits all matches. Skips an empty match directly after the previous one. The visitor may search with the same
 * matcher. */
static weft_status each_match_of(stretch *self, size_t begin, size_t end) {
    const search *of = self->of;
    bpe_matcher *matcher = of->matcher;
    const size_t *span = pcre2_get_ovector_pointer(matcher->found);
    size_t last = begin, from = 0, last_match = SIZE_MAX;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && from <= self->n) {
        const char *units = self->units != NULL ? self->units : BPE_AT(&matcher->units, char) + self->first;
        const int rc =
            pcre2_match(of->pattern->code, (PCRE2_SPTR)units, self->n, from, 0, matcher->found, matcher->context);
        size_t left = 0, right = span[1];
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return match_fault(of, rc, byte_of(self, from));
        if (span[0] == right && right == last_match) {
            from = right + 1;
            continue;
        }
        from = last_match = right;
        left = byte_of(self, span[0]);
        right = byte_of(self, right);
        status = between(of, last, left);
        if (status == WEFT_OK) status = give(of, left, right, true);
        last = right;
    }
    return status == WEFT_OK ? between(of, last, end) : status;
}

static weft_status each_match(const search *self, size_t begin, size_t end) {
    stretch one;
    const size_t before = self->matcher->units.n;
    weft_status status = WEFT_OK;
    if (begin_stretch(&one, self, begin, end) == 0) return bpe_no_memory(self->err);
    status = each_match_of(&one, begin, end);
    self->matcher->units.n = before;
    return status;
}

static weft_status each_regex(const search *self, size_t n) {
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK;) {
        const size_t end = i + bpe_valid_prefix(self->text + i, n - i);
        if (end > i) status = each_match(self, i, end);
        i = end + bpe_stray_prefix(self->text + end, n - end);
        if (status == WEFT_OK) status = between(self, end, i);
    }
    return status;
}

weft_status bpe_pattern_each(const bpe_pattern *self, bpe_matcher *matcher, const char *text, size_t n,
                             bpe_visit *visit, void *context, weft_error *err) {
    const search work = {self, matcher, text, visit, context, err};
    if (self->kind == BPE_LITERAL) return each_literal(&work, n);
    if (self->kind == BPE_REGEX || self->kind == BPE_LINES) return each_regex(&work, n);
    return each_of_kind(&work, n);
}
