/* host/base/lookup.h: hash table from names to numbers.
 *
 *     weft_lookup by_name = {0};
 *     weft_lookup_put(&by_name, "lm_head", 3);
 *     weft_lookup_find(&by_name, "lm_head") == 3
 *     weft_lookup_free(&by_name);
 */
#ifndef WEFT_HOST_BASE_LOOKUP_H
#define WEFT_HOST_BASE_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

typedef struct weft_lookup_place {
    const char *name; /* NULL: unused */
    int32_t number;
} weft_lookup_place;

typedef struct weft_lookup {
    weft_lookup_place *places; /* [size], a power of two; at most half of them used */
    size_t size, n;
} weft_lookup;

/* Adds a name, which must outlive the lookup. A name that exists keeps its first number. */
void weft_lookup_put(weft_lookup *self, const char *name, int32_t number);
/* Returns -1 if the name is missing. A zeroed lookup is empty. */
int32_t weft_lookup_find(const weft_lookup *self, const char *name);
void weft_lookup_free(weft_lookup *self); /* a zeroed one is fine */

#endif
