/* source.c: a file becomes documents, as spans of its bytes. Nothing is copied: the file is mapped. */
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status map_file(text_source *source, weft_error *err) {
    struct stat info;
    void *at = NULL;
    const int file = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer is refused too */
    weft_status status = WEFT_OK;
    if (file < 0)
        return weft_error_set(err, WEFT_E_USER, "[data] %s = %s cannot be read: %s", source->key, source->path,
                              strerror(errno));
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
        status = weft_error_set(err, WEFT_E_USER, "[data] %s = %s is not a file: give one file of text or JSONL",
                                source->key, source->path);
    else if (info.st_size == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] %s = %s is an empty file", source->key, source->path);
    else {
        at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (at == MAP_FAILED)
            status = weft_error_set(err, WEFT_E_SYSTEM, "[data] %s = %s cannot be mapped: %s", source->key,
                                    source->path, strerror(errno));
    }
    (void)close(file);
    if (status == WEFT_OK) {
        source->bytes = at;
        source->n = (size_t)info.st_size;
    }
    return status;
}

/* A byte order mark at the very start says how the file is encoded; it is no part of the text. */
static weft_status skip_mark(text_source *source, weft_error *err) {
    static const char mark[3] = "\xef\xbb\xbf";
    if (source->n < sizeof mark || memcmp(source->bytes, mark, sizeof mark) != 0) return WEFT_OK;
    source->begin = sizeof mark;
    if (source->n > sizeof mark) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA, "[data] %s = %s holds a byte order mark and nothing else", source->key,
                          source->path);
}

static weft_status add_span(text_source *source, const weft_host *host, size_t begin, size_t end, uint64_t line) {
    const text_span span = {begin, end - begin, line};
    if (text_array_reserve(&source->spans, host, 1, sizeof span) != WEFT_OK) return WEFT_E_MEMORY;
    ((text_span *)source->spans.data)[source->spans.n++] = span;
    return WEFT_OK;
}

/* End of the line at `at`, without its "\n" or "\r\n"; *next: where the following one begins. */
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
        if (source->jsonl && is_blank(source, at, end))
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s:%llu: the line is empty: every line of JSONL holds one object {...}",
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
    if (source->jsonl || config->document == DOCUMENT_LINE) return cut_lines(source, host, err);
    if (config->document == DOCUMENT_PARAGRAPH) return cut_paragraphs(source, host);
    return add_span(source, host, source->begin, source->n, 1);
}

static int ends_in(const char *text, const char *tail) {
    const size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

weft_status text_source_open(text_source *out, const weft_host *host, const text_config *config, const char *key,
                             const char *path, weft_error *err) {
    text_source source = {.key = key, .path = path};
    weft_status status = map_file(&source, err);
    if (status != WEFT_OK) return status;
    source.jsonl = config->format == FORMAT_JSONL || (config->format == FORMAT_AUTO && ends_in(path, ".jsonl"));
    status = skip_mark(&source, err);
    if (status == WEFT_OK) status = cut(&source, host, config, err);
    if (status == WEFT_E_MEMORY)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of documents in %s", path);
    if (status == WEFT_OK && source.spans.n == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] %s = %s holds no document: it has nothing but blank lines",
                                key, path);
    if (status == WEFT_OK) *out = source;
    else text_source_close(&source, host);
    return status;
}

void text_source_close(text_source *source, const weft_host *host) {
    if (source->bytes != NULL) (void)munmap((void *)(uintptr_t)source->bytes, source->n);
    text_array_free(&source->spans, host);
    source->bytes = NULL;
}
