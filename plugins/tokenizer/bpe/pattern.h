/* pattern.h: patterns at which a text is split or replaced: a literal, a regular expression, or a class of
 * characters. */
#ifndef BPE_PATTERN_H
#define BPE_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "json.h"
#include <pcre2.h>

/* LINES: a regular expression that ends a match before each letter at the start of a line (cut.h). */
typedef enum bpe_pattern_kind { BPE_LITERAL, BPE_REGEX, BPE_NUMERIC, BPE_PUNCTUATION, BPE_LINES } bpe_pattern_kind;

typedef struct bpe_pattern {
    int32_t kind;
    bpe_text literal;
    pcre2_code *code;     /* immutable after compilation */
    unsigned char *units; /* [BPE_N_POINTS] the 8-bit unit of each character for the expression */
} bpe_pattern;

/* Buffers of a search; not shared by concurrent calls. */
typedef struct bpe_matcher {
    bpe_list units; /* char: units of the searched ranges; nested searches append */
    pcre2_match_data *found;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
} bpe_matcher;

bool bpe_matcher_init(bpe_matcher *self, const weft_host *host);
void bpe_matcher_free(bpe_matcher *self);

/* Reads {"String": ...} or {"Regex": ...}. */
weft_status bpe_pattern_read(bpe_pattern *self, const weft_host *host, const bpe_place *at, const json_t *json,
                             weft_error *err);
weft_status bpe_pattern_literal(bpe_pattern *self, const weft_host *host, const char *bytes, size_t n, weft_error *err);
weft_status bpe_pattern_regex(bpe_pattern *self, const weft_host *host, const bpe_place *at, const char *regex,
                              size_t n, weft_error *err);
void bpe_pattern_free(bpe_pattern *self, const weft_host *host);

/* Receives the complete text in order: matches and the text between them, which includes bytes that are not UTF-8. */
typedef weft_status bpe_visit(void *context, size_t begin, size_t end, bool is_match, weft_error *err);
weft_status bpe_pattern_each(const bpe_pattern *self, bpe_matcher *matcher, const char *text, size_t n,
                             bpe_visit *visit, void *context, weft_error *err);

/* Translates an expression to PCRE2's dialect, for text in units. out: list of char. Returns false and sets *why if it
 * cannot be translated. */
bool bpe_regex_translate(bpe_list *out, unsigned char *units, const char **why, const char *regex, size_t n);

#endif
