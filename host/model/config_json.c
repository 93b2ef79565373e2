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

/* A scan of the text from front to back, and a copy with some ranges replaced. */
typedef struct editing {
    const char *text;
    size_t bytes, at, copied; /* text length; search offset of the next member; end of the copied range */
    int depth;                /* of brackets around `at` */
    char *out;
    size_t out_bytes;
    FILE *stream; /* writes to out */
} editing;

/* Offsets of a key with its quotes, and of its value. */
typedef struct member {
    size_t key, key_end, value, value_end;
} member;

/* Finds the next member of the outermost object. Returns false at the end. */
static bool next_member(editing *self, member *out) {
    const char *text = self->text;
    const size_t bytes = self->bytes;
    while (self->at < bytes) {
        const size_t start = self->at;
        if (text[start] == '{' || text[start] == '[') self->depth++;
        if (text[start] == '}' || text[start] == ']') self->depth--;
        self->at = text[start] == '"' ? skip_text(text, bytes, start) : start + 1;
        if (text[start] != '"' || self->depth != 1) continue;
        out->key = start;
        out->key_end = self->at;
        out->value = skip_blanks(text, bytes, self->at);
        if (out->value >= bytes || text[out->value] != ':') continue; /* a string value, not a key */
        out->value = skip_blanks(text, bytes, out->value + 1);
        self->at = out->value_end = skip_value(text, bytes, out->value);
        if (out->value < bytes) return true;
    }
    return false;
}

static bool is_key(const char *text, const member *found, const char *key) {
    const size_t n = strlen(key);
    return found->key_end - found->key == n + 2 && memcmp(text + found->key + 1, key, n) == 0;
}

static void begin_editing(editing *self, const char *text, size_t bytes) {
    *self = (editing){.text = text, .bytes = bytes};
    self->stream = open_memstream(&self->out, &self->out_bytes);
    if (self->stream == NULL) abort();
}

/* Copies the text up to `from` and skips [from, to). */
static void leave_out(editing *self, size_t from, size_t to) {
    (void)fwrite(self->text + self->copied, 1, from - self->copied, self->stream);
    self->copied = to;
}

/* Copies the rest and replaces the text. */
static weft_status end_editing(editing *self, char **text, size_t *bytes, weft_error *err) {
    bool good = false;
    leave_out(self, self->bytes, self->bytes);
    good = !ferror(self->stream);
    if (fclose(self->stream) != 0 || !good) {
        free(self->out);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a copy of %zu bytes of JSON", self->bytes);
    }
    free(*text);
    *text = self->out;
    *bytes = self->out_bytes;
    return WEFT_OK;
}

weft_status weft_config_json_set_dtype(char **text, size_t *bytes, int32_t dtype, weft_error *err) {
    const char *name = dtype == WEFT_BF16 ? "bfloat16" : dtype == WEFT_F16 ? "float16" : "float32";
    editing copy;
    member found;
    begin_editing(&copy, *text, *bytes);
    while (next_member(&copy, &found)) {
        const char *value = *text + found.value;
        const bool prefixed = found.value_end - found.value > 7 && memcmp(value, "\"torch.", 7) == 0;
        if ((!is_key(*text, &found, "dtype") && !is_key(*text, &found, "torch_dtype")) || *value != '"') continue;
        leave_out(&copy, found.value, found.value_end);
        (void)fprintf(copy.stream, "\"%s%s\"", prefixed ? "torch." : "", name);
    }
    return end_editing(&copy, text, bytes, err);
}

const char *weft_config_json_value(const char *text, size_t bytes, const char *key, size_t *out_bytes) {
    editing scan = {.text = text, .bytes = bytes};
    member found;
    while (next_member(&scan, &found)) {
        if (!is_key(text, &found, key)) continue;
        *out_bytes = found.value_end - found.value;
        return text + found.value;
    }
    return NULL;
}

weft_status weft_config_json_change(char **text, size_t *bytes, const weft_json_change *changes, size_t n,
                                    weft_error *err) {
    const char *brace = memchr(*text, '{', *bytes);
    const size_t head = brace == NULL ? 0 : (size_t)(brace + 1 - *text);
    size_t length = 0;
    editing copy;
    member found;
    begin_editing(&copy, *text, *bytes);
    leave_out(&copy, head, head);
    for (size_t i = 0; i < n && brace != NULL; i++)
        if (weft_config_json_value(*text, *bytes, changes[i].key, &length) == NULL)
            (void)fprintf(copy.stream, "\n  \"%s\": %s,", changes[i].key, changes[i].value);
    while (next_member(&copy, &found)) {
        size_t i = 0;
        while (i < n && !is_key(*text, &found, changes[i].key)) i++;
        if (i == n) continue;
        leave_out(&copy, found.value, found.value_end);
        (void)fputs(changes[i].value, copy.stream);
    }
    return end_editing(&copy, text, bytes, err);
}

/* Removes the key with the following comma and blanks; if it is the last key, with the preceding comma. */
weft_status weft_config_json_remove(char **text, size_t *bytes, const char *key, weft_error *err) {
    const char *from = *text;
    editing copy;
    member found;
    begin_editing(&copy, from, *bytes);
    while (next_member(&copy, &found)) {
        const size_t behind = skip_blanks(from, *bytes, found.value_end);
        size_t begin = found.key, end = found.value_end;
        if (!is_key(from, &found, key)) continue;
        if (behind < *bytes && from[behind] == ',') {
            end = skip_blanks(from, *bytes, behind + 1);
        } else {
            while (begin > 0 && strchr(" \t\r\n", from[begin - 1]) != NULL && from[begin - 1] != '\0') begin--;
            if (begin > 0 && from[begin - 1] == ',') begin--;
        }
        leave_out(&copy, begin, end);
    }
    return end_editing(&copy, text, bytes, err);
}
