/* host/base/lookup.h: hash table from names to numbers.
 *
 *     weft_lookup by_name = {0};
 *     weft_lookup_put(&by_name, "lm_head", 3);
 *     weft_lookup_find(&by_name, "lm_head") == 3
 *     weft_lookup_free(&by_name);
 */
#ifndef WEFT_HOST_BASE_LOOKUP_H
#define WEFT_HOST_BASE_LOOKUP_H

#include <jansson.h>
#include <stdint.h>

typedef struct weft_lookup {
    json_t *numbers; /* NULL: empty */
} weft_lookup;

/* Adds a name. A name that exists keeps its first number. */
static inline void weft_lookup_put(weft_lookup *self, const char *name, int32_t number) {
    if (self->numbers == NULL) self->numbers = json_object();
    if (json_object_get(self->numbers, name) == NULL)
        (void)json_object_set_new_nocheck(self->numbers, name, json_integer(number));
}

/* Returns -1 if the name is missing. A zeroed lookup is empty. */
static inline int32_t weft_lookup_find(const weft_lookup *self, const char *name) {
    const json_t *number = json_object_get(self->numbers, name);
    return number == NULL ? -1 : (int32_t)json_integer_value(number);
}

static inline void weft_lookup_free(weft_lookup *self) { /* a zeroed one is fine */
    json_decref(self->numbers);
    self->numbers = NULL;
}

#endif
