/* host/base/alloc.h: allocation of the host's own bookkeeping, which ends the process if memory runs out: Linux usually
 * kills it first. Device memory, snapshots, file contents and everything sized by user input use malloc and report
 * WEFT_E_MEMORY instead. */
#ifndef WEFT_HOST_BASE_ALLOC_H
#define WEFT_HOST_BASE_ALLOC_H

#include <stddef.h>
#include <weft/base.h>

/* Return memory that free releases, zeroed by weft_alloc; never NULL, also for 0 bytes. If memory runs out, they print
 * the size and the source position and end the process with status 1. [any-thread] */
#define weft_alloc(count, size)         weft_alloc_at((size_t)(count), (size), __FILE__, __LINE__)
#define weft_realloc(data, count, size) weft_realloc_at((data), (size_t)(count), (size), __FILE__, __LINE__)
#define weft_strdup(text)               weft_strdup_at((text), __FILE__, __LINE__)
/* Returns an array of n elements with room for one more, which is zeroed. Its capacity is n rounded up to a power of
 * two. The first call gets NULL. */
#define weft_grow(array, n) weft_grow_at((array), (size_t)(n), sizeof *(array), __FILE__, __LINE__)
/* Returns printf's text. [any-thread] */
#define weft_text_of(...) weft_text_at(__FILE__, __LINE__, __VA_ARGS__)

/* Calls this before the process ends. [main] */
void weft_alloc_on_failure(void (*call)(void));

void *weft_alloc_at(size_t count, size_t size, const char *file, int line);
void *weft_realloc_at(void *data, size_t count, size_t size, const char *file, int line);
void *weft_grow_at(void *array, size_t n, size_t size, const char *file, int line);
char *weft_strdup_at(const char *text, const char *file, int line);
char *weft_text_at(const char *file, int line, const char *format, ...) WEFT_PRINTF(3, 4);

#endif
