/* split.c: chooses the documents for validation: those with the lowest random numbers. The number depends only on seed
 * and document. */
#include "rows.h"

#include <math.h>
#include <stdlib.h>

typedef struct ticket {
    uint64_t number;
    size_t document;
} ticket;

static int by_number(const void *a, const void *b) {
    const ticket *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->document > y->document) - (x->document < y->document);
}

/* Converts `wanted` to a number of documents: below 1 it is a fraction, otherwise a whole number. */
static weft_status how_many(size_t *out, size_t n, double wanted, weft_error *err) {
    const size_t k = wanted < 1.0 ? (size_t)llround(wanted * (double)n) : (size_t)wanted;
    *out = k == 0 ? 1 : k;
    if (n < 2)
        return weft_error_set(err, WEFT_E_USER,
                              "[data] validation = %g needs at least two documents, and there is one: choose "
                              "[data] document = line or paragraph, or give validation a file of its own",
                              wanted);
    if (*out >= n)
        return weft_error_set(err, WEFT_E_USER,
                              "[data] validation = %g takes %zu of %zu documents and leaves none for training. "
                              "Fix: set a smaller value",
                              wanted, *out, n);
    return WEFT_OK;
}

weft_status data_split_choose(uint8_t *marks, const weft_host *host, const size_t *documents, size_t n, double wanted,
                              uint64_t seed, weft_error *err) {
    size_t k = 0;
    ticket *tickets = NULL;
    weft_status status = how_many(&k, n, wanted, err);
    if (status != WEFT_OK) return status;
    tickets = host->alloc(host, n * sizeof *tickets, 64);
    if (tickets == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to split %zu documents", n);
    for (size_t i = 0; i < n; i++) {
        const weft_random4 r = weft_random(seed, WEFT_RANDOM_SPLIT, 0, documents[i]);
        tickets[i].number = ((uint64_t)r.v[0] << 32) | r.v[1];
        tickets[i].document = documents[i];
    }
    qsort(tickets, n, sizeof *tickets, by_number);
    for (size_t i = 0; i < k; i++) marks[tickets[i].document] = 1;
    host->release(host, tickets);
    return WEFT_OK;
}
