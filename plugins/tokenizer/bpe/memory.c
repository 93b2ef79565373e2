/* memory.c: lists that grow by half, strings, and the error for exhausted memory. */
#include "memory.h"

void bpe_list_init(bpe_list *self, const weft_host *host, size_t element) {
    const bpe_list fresh = {host, NULL, 0, 0, element, false};
    *self = fresh;
}

void bpe_list_free(bpe_list *self) {
    if (self->host != NULL) self->host->release(self->host, self->data);
    bpe_list_init(self, self->host, self->element);
}

bool bpe_list_reserve(bpe_list *self, size_t n) {
    const size_t most = SIZE_MAX / 4 / self->element;
    size_t capacity = self->capacity + self->capacity / 2 + 64;
    void *data = NULL;
    if (self->failed) return false;
    if (self->capacity - self->n >= n) return true;
    if (n > most || self->n > most - n) goto failed;
    if (capacity < self->n + n) capacity = self->n + n;
    data = self->host->alloc(self->host, capacity * self->element, 16);
    if (data == NULL) goto failed;
    if (self->n > 0) memcpy(data, self->data, self->n * self->element);
    self->host->release(self->host, self->data);
    self->data = data;
    self->capacity = capacity;
    return true;
failed:
    self->failed = true;
    return false;
}

void bpe_list_trim(bpe_list *self, size_t bytes) {
    bpe_list_clear(self);
    if (self->capacity * self->element > bytes) bpe_list_free(self);
}

bool bpe_text_set(bpe_text *self, const weft_host *host, const char *bytes, size_t n) {
    char *copy = n == SIZE_MAX ? NULL : host->alloc(host, n + 1, 8);
    if (copy == NULL) return false;
    if (n > 0) memcpy(copy, bytes, n);
    copy[n] = 0;
    self->bytes = copy;
    self->n = n;
    return true;
}

void *bpe_zeros(const weft_host *host, size_t n, size_t element) {
    void *memory = n > SIZE_MAX / 4 / element ? NULL : host->alloc(host, n * element + 16, 16);
    if (memory != NULL) memset(memory, 0, n * element + 16);
    return memory;
}

weft_status bpe_no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "No memory for the tokenizer.");
}
