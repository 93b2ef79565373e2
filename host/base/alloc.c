/* host/base/alloc.c: see alloc.h. */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*on_failure)(void);

void weft_alloc_on_failure(void (*call)(void)) {
    on_failure = call;
}

static _Noreturn void fail(size_t count, size_t size, const char *file, int line) {
    char text[256];
    const int n =
        snprintf(text, sizeof text, "weft: out of memory: %zu x %zu bytes at %s:%d\n", count, size, file, line);
    if (n > 0) (void)!write(STDERR_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    if (on_failure != NULL) on_failure();
    _exit(EXIT_FAILURE);
}

void *weft_alloc_at(size_t count, size_t size, const char *file, int line) {
    void *data = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (data == NULL) fail(count, size, file, line);
    return data;
}

void *weft_realloc_at(void *data, size_t count, size_t size, const char *file, int line) {
    void *larger = NULL;
    if (size == 0 || count <= SIZE_MAX / size) larger = realloc(data, count * size > 0 ? count * size : 1);
    if (larger == NULL) fail(count, size, file, line);
    return larger;
}

void *weft_grow_at(void *array, size_t n, size_t size, const char *file, int line) {
    if ((n & (n - 1)) != 0) return array;
    array = weft_realloc_at(array, n == 0 ? 1 : 2 * n, size, file, line);
    memset((char *)array + n * size, 0, (n == 0 ? 1 : n) * size);
    return array;
}

char *weft_strdup_at(const char *text, const char *file, int line) {
    char *copy = strdup(text);
    if (copy == NULL) fail(strlen(text) + 1, 1, file, line);
    return copy;
}

char *weft_text_at(const char *file, int line, const char *format, ...) {
    char *text = NULL;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0) fail(strlen(format), 1, file, line);
    va_end(list);
    return text;
}
