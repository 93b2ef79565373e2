/* memory.h: growing lists in the host's memory. A list that could not grow sets `failed` and ignores later additions,
 * so a caller checks once at its end. */
#ifndef BPE_MEMORY_H
#define BPE_MEMORY_H

#include <stdbool.h>
#include <weft/host.h>

typedef struct bpe_list {
    const weft_host *host;
    void *data;
    size_t n;
    size_t capacity;
    size_t element; /* bytes per element */
    bool failed;
} bpe_list;

#define BPE_AT(list, type) ((type *)(list)->data)

void bpe_list_init(bpe_list *self, const weft_host *host, size_t element);
void bpe_list_free(bpe_list *self);

/* Reserves capacity for n more elements; sets `failed` and returns false without memory. */
bool bpe_list_reserve(bpe_list *self, size_t n);

/* Empties the list and frees its memory if it is larger than `bytes`. */
void bpe_list_trim(bpe_list *self, size_t bytes);

/* Appends n elements. */
static inline void bpe_list_add(bpe_list *self, const void *items, size_t n) {
    if (n == 0 || (self->capacity - self->n < n && !bpe_list_reserve(self, n)) || self->failed) return;
    memcpy((char *)self->data + self->n * self->element, items, n * self->element);
    self->n += n;
}

static inline void bpe_list_clear(bpe_list *self) {
    self->n = 0;
    self->failed = false;
}

/* An owned, NUL-terminated string; bytes is NULL only if memory ran out. */
typedef struct bpe_text {
    char *bytes;
    size_t n;
} bpe_text;

/* Returns true if the text begins with `with`. */
static inline bool bpe_text_begins(const char *text, size_t n, const bpe_text *with) {
    return n >= with->n && memcmp(text, with->bytes, with->n) == 0;
}

bool bpe_text_set(bpe_text *self, const weft_host *host, const char *bytes, size_t n);

/* Returns n zeroed elements; NULL: no memory. */
void *bpe_zeros(const weft_host *host, size_t n, size_t element);

weft_status bpe_no_memory(weft_error *err);

#endif
