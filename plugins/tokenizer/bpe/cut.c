/* cut.c: decides where a long text may be split (cut.h).
 *
 * A split must not be inside an added token, nor where normalizer, pre-tokenizer or merges look across it:
 * - Added tokens must not contain a line end or a blank, begin with the character after the split, or look at their
 *   neighbours (single_word).
 * - Unicode normal forms and lower case never join a line end or a blank with a letter. A replaced literal must contain
 *   neither line ends nor letters. Prepended text is added at the start of the text only (encode.c).
 * - Before a letter that follows "a\n", the known patterns (pattern.c) always end a pre-token, and the line end is a
 *   pre-token of its own, with or without following text.
 * - Without a splitting step, no merge may join the blank's character with a letter before it.
 */
#include "cut.h"
#include "unicode.h"

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool holds_blank(const bpe_text *text) {
    return text->n > 0 && (memchr(text->bytes, '\n', text->n) != NULL || memchr(text->bytes, ' ', text->n) != NULL);
}

static bool holds_letter(const bpe_text *text) {
    for (size_t i = 0; i < text->n; i++)
        if (is_letter(text->bytes[i])) return true;
    return false;
}

static bool tokens_allow(const bpe_added *added) {
    const bpe_added_token *tokens = BPE_AT(&added->tokens, bpe_added_token);
    for (size_t i = 0; i < added->tokens.n; i++)
        if (tokens[i].single_word || holds_blank(&tokens[i].content) || holds_blank(&tokens[i].form)) return false;
    return true;
}

static bool normal_allows(const bpe_normal *normal, bpe_cut_kind kind) {
    const bpe_normal_step *steps = BPE_AT(&normal->steps, bpe_normal_step);
    for (size_t i = 0; i < normal->steps.n; i++) {
        const bool literal = steps[i].kind == BPE_REPLACE && steps[i].pattern.kind == BPE_LITERAL;
        if (steps[i].kind == BPE_PREPEND && i > 0) return false;
        if (steps[i].kind == BPE_REPLACE && (!literal || holds_letter(&steps[i].pattern.literal))) return false;
        if (literal && memchr(steps[i].pattern.literal.bytes, '\n', steps[i].pattern.literal.n) != NULL) return false;
        if (literal && kind == BPE_CUT_BLANK && steps[i].pattern.literal.n != 1) return false;
        if (steps[i].kind != BPE_PREPEND && steps[i].kind != BPE_REPLACE && kind == BPE_CUT_BLANK) return false;
    }
    return true;
}

/* Returns true for a pattern that ends a pre-token before a letter at the start of a line, followed by steps inside of
 * pre-tokens. */
static bool split_cuts_lines(const bpe_split *split) {
    const bpe_split_step *steps = BPE_AT(&split->steps, bpe_split_step);
    bool cuts = false;
    for (size_t i = 0; i < split->steps.n; i++) {
        const bool lines = steps[i].kind == BPE_SPLIT && steps[i].pattern.kind == BPE_LINES;
        const bool digits = steps[i].kind == BPE_SPLIT && steps[i].pattern.kind == BPE_NUMERIC;
        if (steps[i].kind != BPE_BYTES && !lines && !digits) return false;
        if ((lines || digits) && (steps[i].behaviour != BPE_ISOLATED || steps[i].invert)) return false;
        if (steps[i].kind == BPE_BYTES && !cuts) return false;
        cuts |= lines;
    }
    return cuts;
}

/* Returns the character that a blank is replaced by before merging. Fails if it is several characters. */
static bool blank_of(int32_t *point, const weft_tokenizer *tokenizer) {
    const bpe_normal_step *steps = BPE_AT(&tokenizer->normal.steps, bpe_normal_step);
    const bpe_split_step *split = BPE_AT(&tokenizer->split.steps, bpe_split_step);
    bpe_text blank = {(char *)(uintptr_t) " ", 1};
    for (size_t i = 0; i < tokenizer->normal.steps.n; i++)
        if (steps[i].kind == BPE_REPLACE && steps[i].pattern.literal.bytes[0] == ' ' && blank.bytes[0] == ' ')
            blank = steps[i].content;
    if (tokenizer->split.steps.n == 1 && split[0].kind == BPE_BYTES && blank.bytes[0] == ' ') {
        *point = bpe_byte_character(' ');
        return true;
    }
    if (tokenizer->split.steps.n == 1 && split[0].kind == BPE_META && blank.bytes[0] == ' ')
        blank = split[0].replacement;
    else if (tokenizer->split.steps.n > 0) return false;
    return blank.n > 0 && bpe_utf8(blank.bytes, blank.n, point) == blank.n && *point >= 0;
}

static bool blank_begins_word(const weft_tokenizer *tokenizer) {
    int32_t blank = 0;
    if (tokenizer->model.ignore_merges || !tokenizer->model.cut || !blank_of(&blank, tokenizer)) return false;
    for (char c = 'A'; c <= 'z'; c++)
        if (is_letter(c) &&
            (bpe_model_character(&tokenizer->model, c, &c, 1) < 0 || !bpe_model_cuts(&tokenizer->model, c, blank)))
            return false;
    return true;
}

bpe_cut_kind bpe_cut_of(const weft_tokenizer *tokenizer) {
    if (!tokens_allow(&tokenizer->added)) return BPE_CUT_NONE;
    if (normal_allows(&tokenizer->normal, BPE_CUT_LINE) && split_cuts_lines(&tokenizer->split)) return BPE_CUT_LINE;
    if (normal_allows(&tokenizer->normal, BPE_CUT_BLANK) && blank_begins_word(tokenizer)) return BPE_CUT_BLANK;
    return BPE_CUT_NONE;
}

static bool begins_token(const bpe_added *added, char c) {
    const unsigned char lower = (unsigned char)(c | 0x20), upper = (unsigned char)(c & ~0x20);
    if (c == ' ') return added->as_is.starts[' '] || added->normalized.starts[' '];
    return added->as_is.starts[lower] || added->as_is.starts[upper] || added->normalized.starts[lower] ||
           added->normalized.starts[upper];
}

size_t bpe_cut_find(const weft_tokenizer *tokenizer, bpe_cut_kind kind, const char *text, size_t n, size_t from) {
    const char between = kind == BPE_CUT_LINE ? '\n' : ' ';
    for (size_t at = from < 1 ? 1 : from; at + 1 < n; at++) {
        const char *found = memchr(text + at, between, n - at - 1);
        if (found == NULL) break;
        at = (size_t)(found - text);
        if (!is_letter(text[at - 1]) || !is_letter(text[at + 1]) || begins_token(&tokenizer->added, text[at + 1]))
            continue;
        if (kind == BPE_CUT_LINE) return at + 1;
        if (!begins_token(&tokenizer->added, ' ')) return at;
    }
    return n;
}
