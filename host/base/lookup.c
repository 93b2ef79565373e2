/* host/base/lookup.c: see lookup.h. Open addressing, by FNV-1a (Fowler, Noll, Vo). */
#include "base/lookup.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Returns the slot of the name, used or free. */
static weft_lookup_place *place_of(const weft_lookup *self, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *at = name; *at != '\0'; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    for (size_t i = (size_t)hash & (self->size - 1);; i = (i + 1) & (self->size - 1))
        if (self->places[i].name == NULL || strcmp(self->places[i].name, name) == 0) return &self->places[i];
}

static void grow_twice(weft_lookup *self) {
    weft_lookup grown = {.size = self->size == 0 ? 64 : 2 * self->size, .n = self->n};
    grown.places = weft_alloc(grown.size, sizeof *grown.places);
    for (size_t i = 0; i < self->size; i++)
        if (self->places[i].name != NULL) *place_of(&grown, self->places[i].name) = self->places[i];
    free(self->places);
    *self = grown;
}

void weft_lookup_put(weft_lookup *self, const char *name, int32_t number) {
    weft_lookup_place *place = NULL;
    if (2 * (self->n + 1) > self->size) grow_twice(self);
    place = place_of(self, name);
    if (place->name != NULL) return;
    place->name = name;
    place->number = number;
    self->n++;
}

int32_t weft_lookup_find(const weft_lookup *self, const char *name) {
    const weft_lookup_place *place = self->size == 0 ? NULL : place_of(self, name);
    return place == NULL || place->name == NULL ? -1 : place->number;
}

void weft_lookup_free(weft_lookup *self) {
    free(self->places);
    memset(self, 0, sizeof *self);
}
