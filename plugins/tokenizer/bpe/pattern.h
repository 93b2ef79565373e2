/* pattern.h: what a text is split or replaced at: a literal, a regular expression, or any character of a kind. */
#ifndef BPE_PATTERN_H
#define BPE_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "json.h"
#include <pcre2.h>

/* LINES: a regular expression that ends a piece before each letter at the beginning of a line (cut.h). */
typedef enum bpe_pattern_kind { BPE_LITERAL, BPE_REGEX, BPE_NUMERIC, BPE_PUNCTUATION, BPE_LINES } bpe_pattern_kind;

typedef struct bpe_pattern {
    int32_t kind;
    bpe_text literal;
    pcre2_code *code;     /* read-only once compiled */
    unsigned char *units; /* [BPE_N_POINTS] the unit that the expression reads for each character */
} bpe_pattern;

/* What a search needs; no two at once use the same. */
typedef struct bpe_matcher {
    bpe_list units; /* char: of the stretches that are searched, one inside another */
    pcre2_match_data *found;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
} bpe_matcher;

bool bpe_matcher_init(bpe_matcher *self, const weft_host *host);
void bpe_matcher_free(bpe_matcher *self);

/* {"String": ...} or {"Regex": ...} */
weft_status bpe_pattern_read(bpe_pattern *self, const weft_host *host, const bpe_place *at, const json_t *json,
                             weft_error *err);
weft_status bpe_pattern_literal(bpe_pattern *self, const weft_host *host, const char *bytes, size_t n, weft_error *err);
weft_status bpe_pattern_regex(bpe_pattern *self, const weft_host *host, const bpe_place *at, const char *regex,
                              size_t n, weft_error *err);
void bpe_pattern_free(bpe_pattern *self, const weft_host *host);

/* Receives the whole text in order, in matches and in what lies between them. Bytes that are not UTF-8 lie between. */
typedef weft_status bpe_visit(void *context, size_t begin, size_t end, bool is_match, weft_error *err);
weft_status bpe_pattern_each(const bpe_pattern *self, bpe_matcher *matcher, const char *text, size_t n,
                             bpe_visit *visit, void *context, weft_error *err);

/* The expression in PCRE2's dialect, for texts of units; `out` is a list of char. False: *why says what cannot be
 * translated. */
bool bpe_regex_translate(bpe_list *out, unsigned char *units, const char **why, const char *regex, size_t n);

#endif
