/* source.c: splits a file into documents, as ranges of its bytes. */
#include "text.h"

/* Skips a UTF-8 byte order mark at the start. */
static weft_status skip_mark(text_source *source, weft_error *err) {
    static const char mark[3] = "\xef\xbb\xbf";
    if (source->n < sizeof mark || memcmp(source->bytes, mark, sizeof mark) != 0) return WEFT_OK;
    source->begin = sizeof mark;
    if (source->n > sizeof mark) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA, "[data] %s = %s contains only a byte order mark", source->key,
                          source->path);
}

/* Counts invalid bytes. The last bytes may be an incomplete character. */
static size_t count_strange(const unsigned char *at, size_t n) {
    size_t strange = 0;
    for (size_t i = 0; i < n;) {
        const size_t more = at[i] < 0x80 ? 0 : at[i] >= 0xF0 ? 3 : at[i] >= 0xE0 ? 2 : at[i] >= 0xC2 ? 1 : 4;
        size_t k = 0;
        while (more < 4 && k < more && i + k + 1 < n && (at[i + k + 1] & 0xC0) == 0x80) k++;
        if (more == 0) strange += at[i] < 0x20 && (at[i] < '\t' || at[i] > '\r') && at[i] != 0x1B;
        else strange += k < more && i + k + 1 < n;
        i += more < 4 && k == more ? more + 1 : 1;
    }
    return strange;
}

/* Fails for a file that is not text. Text in another 8-bit encoding has some invalid UTF-8, and odd text may contain a
 * zero byte. At least one zero in 16 bytes, or one third invalid bytes, indicates binary data. Files of fewer than 64
 * bytes are not checked; JSONL is checked by line. */
static weft_status judge_text(const text_source *source, weft_error *err) {
    const unsigned char *bytes = (const unsigned char *)source->bytes;
    const size_t looked_at = source->n < 65536 ? source->n : 65536;
    size_t zeros = 0;
    for (size_t i = 0; i < looked_at; i++) zeros += bytes[i] == 0;
    if (source->format == FORMAT_JSONL || looked_at < 64) return WEFT_OK;
    if (zeros * 16 < looked_at && count_strange(bytes, looked_at) * 3 < looked_at) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "[data] %s = %s is no text: it holds many bytes that are zero or not UTF-8; give a file "
                          "of plain text or JSONL",
                          source->key, source->path);
}

static weft_status add_span(text_source *source, const weft_host *host, size_t begin, size_t end, uint64_t line) {
    const text_span span = {begin, end - begin, line};
    if (data_array_reserve(&source->spans, host, 1, sizeof span) != WEFT_OK) return WEFT_E_MEMORY;
    ((text_span *)source->spans.data)[source->spans.n++] = span;
    return WEFT_OK;
}

/* Returns the end of the line at `at`, without "\n" or "\r\n"; *next: start of the next line. */
static size_t line_end(const text_source *source, size_t at, size_t *next) {
    const char *found = memchr(source->bytes + at, '\n', source->n - at);
    size_t end = found != NULL ? (size_t)(found - source->bytes) : source->n;
    *next = found != NULL ? end + 1 : source->n;
    if (found != NULL && end > at && source->bytes[end - 1] == '\r') end--;
    return end;
}

static int is_blank(const text_source *source, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        if (source->bytes[i] != ' ' && source->bytes[i] != '\t' && source->bytes[i] != '\r') return 0;
    return 1;
}

static weft_status cut_lines(text_source *source, const weft_host *host, weft_error *err) {
    uint64_t line = 1;
    for (size_t at = source->begin, next = 0; at < source->n; at = next, line++) {
        const size_t end = line_end(source, at, &next);
        if (source->format == FORMAT_JSONL && is_blank(source, at, end))
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s:%llu: the line is empty: every line of JSONL must contain one object {...}",
                                  source->path, (unsigned long long)line);
        if (end > at && add_span(source, host, at, end, line) != WEFT_OK) return WEFT_E_MEMORY;
    }
    return WEFT_OK;
}

static weft_status cut_paragraphs(text_source *source, const weft_host *host) {
    size_t begin = 0, end = 0;
    uint64_t line = 1, first = 0;
    for (size_t at = source->begin, next = 0; at < source->n; at = next, line++) {
        const size_t stop = line_end(source, at, &next);
        if (!is_blank(source, at, stop)) {
            if (first == 0) begin = at;
            if (first == 0) first = line;
            end = stop;
        }
        if (first != 0 && (is_blank(source, at, stop) || next == source->n)) {
            if (add_span(source, host, begin, end, first) != WEFT_OK) return WEFT_E_MEMORY;
            first = 0;
        }
    }
    return WEFT_OK;
}

static weft_status cut(text_source *source, const weft_host *host, const text_config *config, weft_error *err) {
    weft_status status = WEFT_OK;
    if (source->format == FORMAT_PGN) return text_pgn_cut(source, host, err);
    if (source->format == FORMAT_JSONL || config->document == DOCUMENT_LINE) status = cut_lines(source, host, err);
    else if (config->document == DOCUMENT_PARAGRAPH) status = cut_paragraphs(source, host);
    else status = add_span(source, host, source->begin, source->n, 1);
    if (status != WEFT_E_MEMORY) return status;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of documents in %s", source->path);
}

static int64_t format_of(const text_config *config, const char *path) {
    if (config->format != FORMAT_AUTO) return config->format;
    return data_name_ends(path, ".jsonl") ? FORMAT_JSONL : data_name_ends(path, ".pgn") ? FORMAT_PGN : FORMAT_TEXT;
}

/* Returns true if the text begins with [{" (blanks allowed): an array of JSON objects, not one per line. */
static int begins_as_array(const text_source *source) {
    static const char signs[] = "[{\"";
    size_t at = source->begin;
    for (size_t i = 0; i < sizeof signs - 1; i++, at++) {
        while (at < source->n && memchr(" \t\r\n", source->bytes[at], 4) != NULL) at++;
        if (at == source->n || source->bytes[at] != signs[i]) return 0;
    }
    return 1;
}

/* Fails for a JSON array, which would train on brackets and keys. An explicit format = text disables the check. */
static weft_status judge_format(const text_source *source, const text_config *config, weft_error *err) {
    if (source->format != FORMAT_TEXT || config->format != FORMAT_AUTO || !begins_as_array(source)) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_DATA,
        "[data] %s = %s is an array of JSON, which is read as JSONL, an object a line: jq -c '.[]' FILE "
        ">FILE.jsonl makes it that; format = text learns it as it is written. Questions with answers are read by "
        "[data] "
        "plugin = instruct",
        source->key, source->path);
}

weft_status text_source_open(text_source *out, const weft_host *host, const text_config *config, const char *key,
                             const char *path, weft_error *err) {
    text_source source = {.key = key, .path = path};
    weft_status status = data_file_read(&source.held, host, key, path, "one file of text, JSONL or PGN", err);
    source.bytes = source.held.data;
    source.n = source.file_n = source.held.n;
    source.format = format_of(config, path);
    if (status == WEFT_OK) status = judge_text(&source, err);
    if (status == WEFT_OK) status = skip_mark(&source, err);
    if (status == WEFT_OK) status = judge_format(&source, config, err);
    if (status == WEFT_OK) status = cut(&source, host, config, err);
    if (status == WEFT_OK && source.spans.n == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] %s = %s contains no document, only blank lines", key, path);
    if (status == WEFT_OK) *out = source;
    else text_source_close(&source, host);
    return status;
}

void text_source_close(text_source *source, const weft_host *host) {
    data_array_free(&source->held, host);
    data_array_free(&source->spans, host);
    source->bytes = NULL;
}
