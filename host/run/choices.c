/* host/run/choices.c: see choices.h. */
#include "run/choices.h"

#include "plugin/device_queries.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_status find_table(const weft_device_choices **out, const weft_chooser *by, weft_error *err) {
    const weft_device_choices *table = weft_device_find(by->kernels, by->device, WEFT_DEVICE_CHOICES);
    *out = table;
    if (table == NULL || (WEFT_WHOLE(table, weft_device_choices) && table->count != NULL && table->get != NULL &&
                          table->choose != NULL && table->take != NULL))
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the device's extension " WEFT_DEVICE_CHOICES " lacks required slots");
}

static const weft_device_choice *find_key(const weft_choices *self, const char *key) {
    for (int32_t i = 0; i < self->n; i++)
        if (strcmp(self->items[i].key, key) == 0) return &self->items[i];
    return NULL;
}

weft_status weft_choices_add(weft_choices *self, const weft_device_choice *choice, weft_error *err) {
    weft_device_choice *items = realloc(self->items, ((size_t)self->n + 1) * sizeof *items);
    if (items == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what the device has chosen");
    self->items = items;
    self->items[self->n++] = *choice;
    return WEFT_OK;
}

void weft_choices_clear(weft_choices *self) {
    free(self->items);
    memset(self, 0, sizeof *self);
}

/* ---- settling ---- */

/* Texts that come from a plugin, cut where they are too long. */
static weft_status add_own(weft_choices *self, const weft_device_choices *table, const weft_device *device,
                           weft_error *err) {
    const int64_t n = table->count(device);
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        weft_device_choice choice = {.struct_size = (uint32_t)sizeof choice};
        table->get(device, i, &choice);
        choice.struct_size = (uint32_t)sizeof choice;
        choice.key[sizeof choice.key - 1] = choice.value[sizeof choice.value - 1] = 0;
        choice.note[sizeof choice.note - 1] = 0;
        status = weft_choices_add(self, &choice, err);
    }
    return status;
}

/* What rank `from` needs and nobody before it did. A failure of the exchange itself is left as it is. */
static weft_status add_of_rank(weft_choices *all, const weft_choices *own, const weft_process_group *peers,
                               int32_t from, int32_t n, weft_error *err) {
    weft_device_choice *rows = calloc((size_t)n + 1, sizeof *rows);
    weft_status status = WEFT_OK;
    bool shared = false;
    if (rows == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what rank %d's device chooses", from);
    else if (peers->rank == from && n > 0) memcpy(rows, own->items, (size_t)n * sizeof *rows);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK && n > 0)
        status = peers->share(peers->context, rows, (int64_t)n * (int64_t)sizeof *rows, from, err);
    shared = status == WEFT_OK;
    for (int32_t i = 0; i < n && status == WEFT_OK; i++)
        if (find_key(all, rows[i].key) == NULL) status = weft_choices_add(all, &rows[i], err);
    free(rows);
    return shared ? weft_process_group_agree(peers, status, err) : status;
}

static weft_status collect(weft_choices *all, const weft_choices *own, const weft_process_group *peers,
                           weft_error *err) {
    int32_t *counts = NULL;
    weft_status status = WEFT_OK;
    if (weft_process_group_is_single(peers)) {
        for (int32_t i = 0; i < own->n && status == WEFT_OK; i++) status = weft_choices_add(all, &own->items[i], err);
        return status;
    }
    counts = calloc((size_t)peers->world, sizeof *counts);
    if (counts == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %d ranks", (int)peers->world);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = peers->gather(peers->context, counts, own->n, err);
    for (int32_t r = 0; r < peers->world && status == WEFT_OK; r++)
        status = add_of_rank(all, own, peers, r, counts[r], err);
    free(counts);
    return status;
}

/* Its calls are the device's. */
static weft_status choose_one(weft_device_choice *choice, const weft_device_choices *table, const weft_chooser *by,
                              weft_error *err) {
    const weft_doing before = weft_plugin_enter(by->kernels, "choose");
    return weft_plugin_leave(before, table->choose(by->device, choice, err), err);
}

static weft_status take_one(const weft_device_choice *choice, const weft_device_choices *table, const weft_chooser *by,
                            weft_error *err) {
    const weft_doing before = weft_plugin_enter(by->kernels, "take");
    return weft_plugin_leave(before, table->take(by->device, choice, err), err);
}

static weft_status choose_all(weft_choices *all, const weft_device_choices *table, const weft_chooser *by,
                              weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < all->n && status == WEFT_OK; i++) status = choose_one(&all->items[i], table, by, err);
    return status;
}

static weft_status take_all(const weft_choices *all, const weft_device_choices *table, const weft_chooser *by,
                            weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < all->n && status == WEFT_OK; i++) {
        status = take_one(&all->items[i], table, by, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "%s, as rank 0 has chosen it: ", all->items[i].key);
    }
    return status;
}

/* Rank 0 chooses, all take. */
static weft_status decide(weft_choices *all, const weft_device_choices *table, const weft_chooser *by,
                          weft_error *err) {
    weft_status status = WEFT_OK;
    if (table != NULL && weft_process_group_is_rank_0(by->peers)) status = choose_all(all, table, by, err);
    status = weft_process_group_agree(by->peers, status, err);
    if (status == WEFT_OK && all->n > 0)
        status =
            weft_process_group_broadcast(by->peers, all->items, (int64_t)all->n * (int64_t)sizeof *all->items, err);
    if (status != WEFT_OK) return status;
    if (table != NULL) status = take_all(all, table, by, err);
    return weft_process_group_agree(by->peers, status, err);
}

weft_status weft_choices_settle(weft_choices *self, const weft_chooser *by, weft_error *err) {
    const weft_device_choices *table = NULL;
    weft_choices own = {0}, all = {0};
    weft_status status = find_table(&table, by, err);
    if (status == WEFT_OK && table != NULL) status = add_own(&own, table, by->device, err);
    status = weft_process_group_agree(by->peers, status, err);
    if (status == WEFT_OK) status = collect(&all, &own, by->peers, err);
    if (status == WEFT_OK) status = decide(&all, table, by, err);
    weft_choices_clear(&own);
    weft_choices_clear(status == WEFT_OK ? self : &all);
    if (status == WEFT_OK) *self = all;
    return status;
}

/* ---- what was kept ---- */

weft_status weft_choices_take(weft_choices *self, const weft_choices *kept, const weft_chooser *by, weft_error *err) {
    const weft_device_choices *table = NULL;
    weft_status status = find_table(&table, by, err);
    for (int32_t i = 0; table != NULL && i < self->n && status == WEFT_OK; i++) {
        const weft_device_choice *known = find_key(kept, self->items[i].key);
        if (known == NULL) continue;
        status = take_one(known, table, by, err);
        if (status == WEFT_OK) self->items[i] = *known;
    }
    return status;
}
