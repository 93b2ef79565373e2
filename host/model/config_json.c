/* host/model/config_json.c: looks for two keys in the text itself, because a parser would lose order, spacing and
 * spelling. */
#include "model/config_json.h"

#include <stdbool.h>
#include <stdlib.h>

/* The place behind the text that starts with the quote at `at`. */
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

/* Where the next value to set begins and ends, quotes included, from `at` on; false: there is none. depth: of brackets
 * around `at`. */
static bool next_value(const char *text, size_t bytes, size_t *at, int *depth, size_t *begin, size_t *end) {
    while (*at < bytes) {
        const size_t start = *at;
        if (text[start] == '{' || text[start] == '[') ++*depth;
        if (text[start] == '}' || text[start] == ']') --*depth;
        *at = text[start] == '"' ? skip_text(text, bytes, start) : start + 1;
        if (text[start] != '"' || *depth != 1 || !is_dtype_key(text + start, *at - start)) continue;
        *begin = skip_blanks(text, bytes, *at);
        if (*begin >= bytes || text[*begin] != ':') continue; /* a value, not a key */
        *begin = skip_blanks(text, bytes, *begin + 1);
        if (*begin >= bytes || text[*begin] != '"') continue; /* null */
        *at = *end = skip_text(text, bytes, *begin);
        return true;
    }
    return false;
}

static const char *torch_name(int32_t dtype) {
    return dtype == WEFT_BF16 ? "bfloat16" : dtype == WEFT_F16 ? "float16" : "float32";
}

char *weft_config_json_with_dtype(const char *text, size_t bytes, int32_t dtype, size_t *out_bytes) {
    size_t at = 0, copied = 0, begin = 0, end = 0;
    int depth = 0;
    char *out = NULL;
    bool good = true;
    FILE *stream = open_memstream(&out, out_bytes);
    if (stream == NULL) return NULL;
    while (next_value(text, bytes, &at, &depth, &begin, &end)) {
        const bool prefixed = end - begin > 7 && memcmp(text + begin, "\"torch.", 7) == 0;
        (void)fwrite(text + copied, 1, begin - copied, stream);
        (void)fprintf(stream, "\"%s%s\"", prefixed ? "torch." : "", torch_name(dtype));
        copied = end;
    }
    (void)fwrite(text + copied, 1, bytes - copied, stream);
    good = !ferror(stream);
    if (fclose(stream) != 0 || !good) {
        free(out);
        return NULL;
    }
    return out;
}
