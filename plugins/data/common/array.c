/* array.c: growing arrays, and the corpus built from them. */
#include "rows.h"

#include <sys/mman.h>
#include <unistd.h>

/* Minimal size of a mapped array. Doubling an array by a copy would need three times its bytes temporarily. */
enum { LEAST_MAPPED = 1 << 20 };

static size_t whole_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static weft_status grow_mapping(data_array *array, const weft_host *host, size_t bytes, size_t element_bytes) {
    const size_t whole = whole_pages(bytes);
    void *data = array->mapped > 0
                     ? mremap(array->data, array->mapped, whole, MREMAP_MAYMOVE)
                     : mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return WEFT_E_MEMORY;
    if (array->mapped == 0) {
        if (array->n > 0) memcpy(data, array->data, array->n * element_bytes);
        host->release(host, array->data);
    }
    array->data = data;
    array->mapped = whole;
    array->capacity = whole / element_bytes;
    return WEFT_OK;
}

weft_status data_array_reserve(data_array *array, const weft_host *host, size_t n, size_t element_bytes) {
    size_t capacity = array->capacity * 2 > 64 ? array->capacity * 2 : 64;
    void *data = NULL;
    if (array->n + n <= array->capacity) return WEFT_OK;
    if (capacity < array->n + n) capacity = array->n + n;
    if (array->mapped > 0 || capacity * element_bytes >= LEAST_MAPPED)
        return grow_mapping(array, host, capacity * element_bytes, element_bytes);
    data = host->alloc(host, capacity * element_bytes, 64);
    if (data == NULL) return WEFT_E_MEMORY;
    if (array->n > 0) memcpy(data, array->data, array->n * element_bytes);
    host->release(host, array->data);
    array->data = data;
    array->capacity = capacity;
    return WEFT_OK;
}

void data_array_trim(data_array *array, size_t element_bytes) {
    const size_t whole = whole_pages(array->n * element_bytes);
    if (whole == 0 || whole >= array->mapped || mremap(array->data, array->mapped, whole, 0) == MAP_FAILED) return;
    array->mapped = whole;
    array->capacity = whole / element_bytes;
}

void data_array_forget(const data_array *array, size_t begin, size_t end) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), first = whole_pages(begin), last = end / page * page;
    if (array->mapped == 0 || first >= last) return;
    (void)madvise((char *)array->data + first, last - first, MADV_DONTNEED);
}

void data_array_free(data_array *array, const weft_host *host) {
    if (array->mapped > 0) (void)munmap(array->data, array->mapped);
    else host->release(host, array->data);
    memset(array, 0, sizeof *array);
}

/* ---- ids ---- */

data_ids data_ids_empty(int64_t vocab_size) {
    const data_ids empty = {.is_wide = vocab_size > UINT16_MAX + 1};
    return empty;
}

weft_status data_ids_add(data_ids *self, const weft_host *host, const int32_t *ids, size_t n) {
    if (data_array_reserve(&self->array, host, n, data_ids_width(self)) != WEFT_OK) return WEFT_E_MEMORY;
    if (n == 0) return WEFT_OK;
    if (self->is_wide) memcpy((int32_t *)self->array.data + self->array.n, ids, n * sizeof *ids);
    else
        for (size_t i = 0; i < n; i++) ((uint16_t *)self->array.data)[self->array.n + i] = (uint16_t)ids[i];
    self->array.n += n;
    return WEFT_OK;
}

/* ---- corpus ---- */

/* Moves or appends the ids; `ids` is empty afterwards. */
static weft_status take_ids(data_ids *to, const weft_host *host, data_ids *ids) {
    const size_t width = data_ids_width(to), n = ids->array.n;
    const data_ids before = *to;
    if (before.array.n == 0) {
        *to = *ids;
        *ids = before;
        return WEFT_OK;
    }
    if (data_array_reserve(&to->array, host, n, width) != WEFT_OK) return WEFT_E_MEMORY;
    if (n > 0) memcpy((char *)to->array.data + to->array.n * width, ids->array.data, n * width);
    to->array.n += n;
    ids->array.n = 0;
    return WEFT_OK;
}

weft_status data_corpus_add(data_corpus *corpus, const weft_host *host, data_ids *ids, const data_array *weights,
                            const data_array *lengths) {
    int64_t at = (int64_t)corpus->ids.array.n, *starts = NULL;
    if (take_ids(&corpus->ids, host, ids) != WEFT_OK ||
        data_array_reserve(&corpus->weights, host, weights->n, 1) != WEFT_OK ||
        data_array_reserve(&corpus->starts, host, lengths->n + 1, sizeof *starts) != WEFT_OK)
        return WEFT_E_MEMORY;
    if (weights->n > 0) memcpy((uint8_t *)corpus->weights.data + corpus->weights.n, weights->data, weights->n);
    corpus->weights.n += weights->n;
    starts = (int64_t *)corpus->starts.data + corpus->starts.n;
    for (size_t d = 0; d < lengths->n; d++) {
        starts[d] = at;
        at += ((const int64_t *)lengths->data)[d];
    }
    starts[lengths->n] = at; /* start of a possible next document */
    corpus->starts.n += lengths->n;
    corpus->n_documents += lengths->n;
    return WEFT_OK;
}

void data_corpus_end(data_corpus *corpus) {
    corpus->starts.n = corpus->n_documents + 1;
    data_array_trim(&corpus->ids.array, data_ids_width(&corpus->ids));
    data_array_trim(&corpus->weights, 1);
    data_array_trim(&corpus->starts, sizeof(int64_t));
}

uint64_t data_corpus_bytes(const data_corpus *corpus) {
    return corpus->ids.array.n * data_ids_width(&corpus->ids) + corpus->weights.n + corpus->starts.n * sizeof(int64_t);
}

void data_corpus_free(data_corpus *corpus, const weft_host *host) {
    data_array_free(&corpus->ids.array, host);
    data_array_free(&corpus->starts, host);
    data_array_free(&corpus->weights, host);
    memset(corpus, 0, sizeof *corpus);
}
