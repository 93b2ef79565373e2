/* host/graph/scratch.c: assigns offsets to scratch storages.
 *
 * Storages that are live at the same call must not overlap. The largest storage is assigned first; each one gets the
 * lowest offset without a collision. Ties are resolved by number, so the result depends only on the pass. */
#include "graph/lower.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 }; /* bytes: a cache line, and the widest vector */

typedef struct item {
    weft_storage *storage;
    int32_t index;
} item;

static int larger_first(const void *left, const void *right) {
    const item *a = left, *b = right;
    if (a->storage->bytes != b->storage->bytes) return a->storage->bytes > b->storage->bytes ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static bool storages_collide(const weft_storage *a, const weft_storage *b) {
    const bool in_time = a->first <= b->last && b->first <= a->last;
    return in_time && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Moves items[n] up until it collides with no assigned storage. */
static void place_one(item *items, int32_t n) {
    weft_storage *storage = items[n].storage;
    bool moved = true;
    storage->offset = 0;
    while (moved) {
        moved = false;
        for (int32_t i = 0; i < n; i++) {
            const weft_storage *other = items[i].storage;
            if (!storages_collide(storage, other)) continue;
            storage->offset = (other->offset + other->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            moved = true;
        }
    }
}

weft_status weft_pass_place(weft_pass *pass, weft_error *err) {
    int32_t n = 0;
    item *items = calloc((size_t)pass->n_storages + 1, sizeof *items);
    if (items == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to place %d storages", pass->n_storages);
    for (int32_t i = 0; i < pass->n_storages; i++) {
        const item next = {&pass->storages[i], i};
        if (next.storage->home == WEFT_HOME_WORK && next.storage->last >= 0) items[n++] = next;
    }
    if (n > 0) qsort(items, (size_t)n, sizeof *items, larger_first);
    pass->work = 0;
    for (int32_t i = 0; i < n; i++) {
        place_one(items, i);
        if (items[i].storage->offset + items[i].storage->bytes > pass->work)
            pass->work = items[i].storage->offset + items[i].storage->bytes;
    }
    free(items);
    return WEFT_OK;
}
