/* array.c: arrays that grow, in memory that the host counts. */
#include "rows.h"

weft_status data_array_reserve(data_array *array, const weft_host *host, size_t n, size_t element_bytes) {
    size_t capacity = array->capacity * 2 > 64 ? array->capacity * 2 : 64;
    void *data = NULL;
    if (array->n + n <= array->capacity) return WEFT_OK;
    if (capacity < array->n + n) capacity = array->n + n;
    data = host->alloc(host, capacity * element_bytes, 64);
    if (data == NULL) return WEFT_E_MEMORY;
    if (array->n > 0) memcpy(data, array->data, array->n * element_bytes);
    host->release(host, array->data);
    array->data = data;
    array->capacity = capacity;
    return WEFT_OK;
}

void data_array_free(data_array *array, const weft_host *host) {
    host->release(host, array->data);
    memset(array, 0, sizeof *array);
}

void data_corpus_free(data_corpus *corpus, const weft_host *host) {
    host->release(host, corpus->ids);
    host->release(host, corpus->starts);
    host->release(host, corpus->weights);
    memset(corpus, 0, sizeof *corpus);
}
