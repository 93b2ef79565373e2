/* host/model/config_json.c: edits keys in the text itself, because a JSON parser would lose order, spacing and
 * spelling. */
#include "model/config_json.h"

#include <stdbool.h>
#include <stdlib.h>

/* Returns the offset after the string that starts with the quote at `at`. */
static size_t skip_text(const char *text, size_t bytes, size_t at) {
    for (at++; at < bytes && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < bytes ? at + 1 : bytes;
}

static size_t skip_blanks(const char *text, size_t bytes, size_t at) {
    while (at < bytes && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0') at++;
    return at;
}

static bool is_dtype_key(const char *text, size_t n) {
    return (n == 7 && memcmp(text, "\"dtype\"", 7) == 0) || (n == 13 && memcmp(text, "\"torch_dtype\"", 13) == 0);
}

/* Returns the offset after the value that begins at `at`: a string, an object, a list or a literal. */
static size_t skip_value(const char *text, size_t bytes, size_t at) {
    int depth = 0;
    while (at < bytes) {
        const char c = text[at];
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) return at;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        at = c == '"' ? skip_text(text, bytes, at) : at + 1;
        if (depth == 0 && (c == '"' || c == '}' || c == ']')) return at;
        if (depth == 0 && at < bytes && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0') return at;
    }
    return bytes;
}

/* Finds the next member of the outermost object from `at` on: its key with quotes, and its value. Returns false at the
 * end. depth: of brackets around `at`. */
typedef struct member {
    size_t key, key_end, value, value_end;
} member;

static bool next_member(member *out, const char *text, size_t bytes, size_t *at, int *depth) {
    while (*at < bytes) {
        const size_t start = *at;
        if (text[start] == '{' || text[start] == '[') ++*depth;
        if (text[start] == '}' || text[start] == ']') --*depth;
        *at = text[start] == '"' ? skip_text(text, bytes, start) : start + 1;
        if (text[start] != '"' || *depth != 1) continue;
        out->key = start;
        out->key_end = *at;
        out->value = skip_blanks(text, bytes, *at);
        if (out->value >= bytes || text[out->value] != ':') continue; /* a string value, not a key */
        out->value = skip_blanks(text, bytes, out->value + 1);
        *at = out->value_end = skip_value(text, bytes, out->value);
        if (out->value < bytes) return true;
    }
    return false;
}

static const char *torch_name(int32_t dtype) {
    return dtype == WEFT_BF16 ? "bfloat16" : dtype == WEFT_F16 ? "float16" : "float32";
}

/* Copies the text from front to back with some ranges replaced. */
typedef struct editing {
    const char *text;
    size_t bytes, at, copied; /* text length; search offset of the next member; end of the copied range */
    int depth;
    char *out;
    FILE *stream; /* writes to out */
} editing;

static bool begin_editing(editing *self, const char *text, size_t bytes, size_t *out_bytes) {
    *self = (editing){.text = text, .bytes = bytes};
    self->stream = open_memstream(&self->out, out_bytes);
    return self->stream != NULL;
}

static bool next_in(editing *self, member *found) {
    return next_member(found, self->text, self->bytes, &self->at, &self->depth);
}

/* Copies the text up to `from` and skips [from, to). */
static void leave_out(editing *self, size_t from, size_t to) {
    (void)fwrite(self->text + self->copied, 1, from - self->copied, self->stream);
    self->copied = to;
}

/* Copies the rest of the text and returns the copy; NULL without memory. */
static char *end_editing(editing *self) {
    bool good = false;
    leave_out(self, self->bytes, self->bytes);
    good = !ferror(self->stream);
    if (fclose(self->stream) == 0 && good) return self->out;
    free(self->out);
    return NULL;
}

char *weft_config_json_with_dtype(const char *text, size_t bytes, int32_t dtype, size_t *out_bytes) {
    editing copy;
    member found;
    if (!begin_editing(&copy, text, bytes, out_bytes)) return NULL;
    while (next_in(&copy, &found)) {
        const bool prefixed = found.value_end - found.value > 7 && memcmp(text + found.value, "\"torch.", 7) == 0;
        if (!is_dtype_key(text + found.key, found.key_end - found.key) || text[found.value] != '"') continue; /* null */
        leave_out(&copy, found.value, found.value_end);
        (void)fprintf(copy.stream, "\"%s%s\"", prefixed ? "torch." : "", torch_name(dtype));
    }
    return end_editing(&copy);
}

/* ---- change a key ---- */

static bool is_key(const char *text, const member *found, const char *key) {
    const size_t n = strlen(key);
    return found->key_end - found->key == n + 2 && memcmp(text + found->key + 1, key, n) == 0;
}

const char *weft_config_json_value(const char *text, size_t bytes, const char *key, size_t *out_bytes) {
    size_t at = 0;
    int depth = 0;
    member found;
    while (next_member(&found, text, bytes, &at, &depth)) {
        if (!is_key(text, &found, key)) continue;
        *out_bytes = found.value_end - found.value;
        return text + found.value;
    }
    return NULL;
}

/* Writes keys that the text lacks at the front. */
static void put_missing(FILE *stream, const weft_json_change *changes, size_t n, const bool *there) {
    for (size_t i = 0; i < n; i++)
        if (!there[i]) (void)fprintf(stream, "\n  \"%s\": %s,", changes[i].key, changes[i].value);
}

static void note_there(bool *there, const char *text, size_t bytes, const weft_json_change *changes, size_t n) {
    size_t at = 0;
    int depth = 0;
    member found;
    while (next_member(&found, text, bytes, &at, &depth))
        for (size_t i = 0; i < n; i++) there[i] = there[i] || is_key(text, &found, changes[i].key);
}

char *weft_config_json_change(const char *text, size_t bytes, const weft_json_change *changes, size_t n,
                              size_t *out_bytes) {
    const char *brace = memchr(text, '{', bytes);
    const size_t head = brace == NULL ? 0 : (size_t)(brace + 1 - text);
    bool there[WEFT_JSON_CHANGES] = {false};
    editing copy;
    member found;
    if (!begin_editing(&copy, text, bytes, out_bytes)) return NULL;
    note_there(there, text, bytes, changes, n);
    leave_out(&copy, head, head);
    if (brace != NULL) put_missing(copy.stream, changes, n, there);
    while (next_in(&copy, &found)) {
        size_t i = 0;
        while (i < n && !is_key(text, &found, changes[i].key)) i++;
        if (i == n) continue;
        leave_out(&copy, found.value, found.value_end);
        (void)fputs(changes[i].value, copy.stream);
    }
    return end_editing(&copy);
}

/* ---- remove a key ---- */

/* Widens a member's range by the following comma and blanks; for the last member by the preceding comma. */
static void widen_member(size_t *begin, size_t *end, const char *text, size_t bytes, const member *found) {
    const size_t behind = skip_blanks(text, bytes, found->value_end);
    *begin = found->key;
    *end = found->value_end;
    if (behind < bytes && text[behind] == ',') {
        *end = skip_blanks(text, bytes, behind + 1);
        return;
    }
    while (*begin > 0 && strchr(" \t\r\n", text[*begin - 1]) != NULL && text[*begin - 1] != '\0') --*begin;
    if (*begin > 0 && text[*begin - 1] == ',') --*begin;
}

char *weft_config_json_without(const char *text, size_t bytes, const char *key, size_t *out_bytes) {
    size_t begin = 0, end = 0;
    editing copy;
    member found;
    if (!begin_editing(&copy, text, bytes, out_bytes)) return NULL;
    while (next_in(&copy, &found)) {
        if (!is_key(text, &found, key)) continue;
        widen_member(&begin, &end, text, bytes, &found);
        leave_out(&copy, begin, end);
    }
    return end_editing(&copy);
}
