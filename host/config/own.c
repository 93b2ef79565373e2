/* host/config/own.c: sections of one plugin, [strategy.fsdp], selected or idle. */
#include <stdlib.h>

#include "base/alloc.h"
#include "config/store.h"

const char *weft_section_id(const char *section, const char *kind) {
    const size_t n = strlen(kind);
    const char *id = section + n + 1;
    if (strncmp(section, kind, n) != 0 || section[n] != '.') return NULL;
    return *id != '\0' && strchr(id, '.') == NULL ? id : NULL;
}

const char *weft_config_plugin_section(const weft_config *self, const char *kind, size_t i) {
    for (size_t k = 0; k < self->n_mentions; k++)
        if (weft_section_id(self->mentions[k].section, kind) != NULL && i-- == 0) return self->mentions[k].section;
    return NULL;
}

/* Marks a section of the configuration as that of a plugin that exists. */
static void mark_known(weft_config *self, const char *section, bool idle) {
    for (size_t i = 0; i < self->n_mentions; i++) {
        weft_mention *mention = &self->mentions[i];
        if (strcmp(mention->section, section) != 0) continue;
        mention->known = true;
        mention->idle = idle;
    }
}

void weft_config_choose(weft_config *self, const char *section, const char *id) {
    const weft_owner owner = {weft_config_keep(self, weft_strdup(section)),
                              weft_config_keep(self, weft_text_of("%s.%s", section, id))};
    self->owners = weft_realloc(self->owners, self->n_owners + 1, sizeof owner);
    self->owners[self->n_owners++] = owner;
    mark_known(self, owner.own, false);
}

void weft_config_choose_apart(weft_config *self, const char *section) {
    mark_known(self, section, false);
}

const char *weft_config_own(const weft_config *self, const char *section) {
    for (size_t i = 0; i < self->n_owners; i++)
        if (strcmp(self->owners[i].section, section) == 0) return self->owners[i].own;
    return NULL;
}

const char *weft_config_own_section(const weft_config *self, const char *section, const char *key) {
    const char *own = weft_config_own(self, section);
    return own != NULL && weft_config_is_declared(self, own, key) ? own : NULL;
}

bool weft_config_is_moot(const weft_config *self, const char *section, const weft_key *row) {
    if ((row->flags & WEFT_HOST_OFFERED) == 0 || weft_config_own(self, section) == NULL) return false;
    return weft_config_own_section(self, section, row->name) == NULL;
}

/* Returns the file's own item, which an override may have replaced. */
static const weft_item *item_in_file(const weft_config *self, const char *section, const char *key) {
    for (size_t i = 0; i < self->n_items; i++) {
        const weft_item *item = &self->items[i];
        if (item->directory != self->here && strcmp(item->section, section) == 0 && strcmp(item->key, key) == 0)
            return item;
    }
    return NULL;
}

weft_status weft_config_doubles(const weft_config *self, const char *section, weft_error *err) {
    const char *own = weft_config_own(self, section);
    for (size_t i = 0; own != NULL && i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        const weft_item *one = NULL, *other = NULL;
        if (strcmp(key->section, own) != 0) continue;
        one = item_in_file(self, section, key->row->name);
        other = item_in_file(self, own, key->row->name);
        if (one == NULL || other == NULL) continue;
        return weft_error_set(err, WEFT_E_USER,
                              "%s: [%s] %s is set in line %s too, in [%s], and both count for this run: keep one of "
                              "them",
                              other->source, own, key->row->name, strrchr(one->source, ':') + 1, section);
    }
    return WEFT_OK;
}

/* ---- unselected plugins ---- */

static const weft_key *find_key_row(const weft_key *keys, uint64_t n, uint32_t stride, const char *name) {
    for (uint64_t i = 0; i < n; i++) {
        const weft_key *row = weft_key_row(keys, i, stride);
        if (strcmp(row->name, name) == 0) return row;
    }
    return NULL;
}

static const weft_entry *find_idle(const weft_config *self, const char *section, const char *key) {
    for (size_t i = 0; i < self->n_idle; i++)
        if (strcmp(self->idle[i].item->section, section) == 0 && strcmp(self->idle[i].item->key, key) == 0)
            return &self->idle[i];
    return NULL;
}

weft_status weft_config_fill_idle(weft_config *self, void *out, const char *section, const weft_key *keys, uint64_t n,
                                  uint32_t stride, weft_error *err) {
    for (uint64_t i = 0; i < n; i++) {
        const weft_key *row = weft_key_row(keys, i, stride);
        const weft_entry *idle = find_idle(self, section, row->name);
        weft_entry entry = {section, row, idle != NULL ? idle->value : (weft_value){{0}, NULL}, NULL};
        weft_status status = WEFT_OK;
        if ((row->flags & WEFT_REMOVED) != 0) continue;
        if (idle == NULL) status = weft_config_parse(self, &entry, err);
        if (status != WEFT_OK) return status;
        memcpy((char *)out + row->offset, entry.value.bytes, sizeof entry.value.bytes);
    }
    return WEFT_OK;
}

weft_status weft_config_idle(weft_config *self, const char *section, const weft_key *keys, uint64_t n, uint32_t stride,
                             weft_error *err) {
    weft_status status = WEFT_OK;
    mark_known(self, section, true);
    for (size_t i = 0; i < self->n_items && status == WEFT_OK; i++) {
        weft_item *item = &self->items[i];
        weft_entry entry = {item->section, NULL, {{0}, NULL}, item};
        if (strcmp(item->section, section) != 0) continue;
        item->claimed = true;
        if (weft_config_item(self, section, item->key) != item) continue;
        entry.row = find_key_row(keys, n, stride, item->key);
        if (entry.row != NULL) status = weft_config_parse(self, &entry, err);
        if (status != WEFT_OK) break;
        self->idle = weft_realloc(self->idle, self->n_idle + 1, sizeof *self->idle);
        self->idle[self->n_idle++] = entry;
    }
    return status;
}
