/* host/config/finish.c: rejects keys and sections that no table declared. */
#include <stdlib.h>

#include "config/foreign.h"
#include "config/nearest.h"
#include "config/store.h"

/* Appends to comma-separated names while they fit. */
static void append_name(char *list, size_t size, const char *name) {
    const size_t n = strlen(list);
    if (n + strlen(name) + 3 < size) (void)snprintf(list + n, size - n, "%s%s", n == 0 ? "" : ", ", name);
}

static bool is_among(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

/* Allowed sections: these names, and [KIND.ID] of these kinds. */
typedef struct allowed {
    const char *const *sections;
    size_t n;
    const char *const *kinds;
    size_t n_kinds;
} allowed;

/* Offers full names, so that "strateg.fsdp" can match "strategy.fsdp". */
static void offer_plugin_sections(weft_nearest *near, const allowed *may) {
    const char *dot = strchr(near->word, '.');
    for (size_t i = 0; dot != NULL && i < may->n_kinds; i++) {
        char name[64];
        const int n = snprintf(name, sizeof name, "%s%s", may->kinds[i], dot);
        if (n > 0 && (size_t)n < sizeof name) weft_nearest_offer(near, name, (size_t)n);
    }
}

static weft_status unknown_section(const weft_mention *mention, const allowed *may, weft_error *err) {
    weft_nearest near = {mention->section, "", 0};
    char meant[96], list[1024] = "";
    for (size_t i = 0; i < may->n; i++) {
        weft_nearest_offer(&near, may->sections[i], strlen(may->sections[i]));
        append_name(list, sizeof list, may->sections[i]);
    }
    offer_plugin_sections(&near, may);
    weft_nearest_print(&near, meant, sizeof meant);
    return weft_error_set(err, WEFT_E_USER, "%s: there is no section [%s]%s The sections are: %s", mention->source,
                          mention->section, *meant == '\0' ? "." : meant, list);
}

/* Returns the declared key of the section that is nearest to the item's key. */
static weft_nearest nearest_key(const weft_config *self, const weft_item *item) {
    weft_nearest near = {item->key, "", 0};
    for (size_t i = 0; i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        if (strcmp(key->section, item->section) == 0) weft_nearest_offer(&near, key->row->name, strlen(key->row->name));
    }
    return near;
}

/* Returns Weft's equivalent of another program's name, or NULL. A selected plugin may have a different key. */
static const weft_foreign *find_foreign(const weft_config *self, const weft_item *item) {
    const weft_foreign *foreign = weft_foreign_find(item->section, item->key, strlen(item->key));
    if (foreign == NULL || *foreign->section == '\0' || weft_config_own(self, foreign->section) == NULL) return foreign;
    return weft_config_is_declared(self, foreign->section, foreign->key) || strcmp(foreign->key, "plugin") == 0
               ? foreign
               : NULL;
}

/* Formats "; Weft has it as lr in [optimizer].", "; did you mean warmup?", or "; [optimizer] has a key of that name:
 * Learning rate." An identical key in another section has priority over one that is more than a typo away. */
static void advise_key(const weft_config *self, const weft_item *item, char *out, size_t size) {
    const weft_nearest near = nearest_key(self, item);
    const weft_foreign *foreign = find_foreign(self, item);
    const weft_declared_key *elsewhere = NULL;
    char meant[400];
    if (foreign != NULL) {
        weft_foreign_print(foreign, meant, sizeof meant);
        (void)snprintf(out, size, "; %s.", meant);
        return;
    }
    for (size_t i = 0; i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        if (strchr(key->section, '.') != NULL || strcmp(key->section, item->section) == 0) continue;
        if (strcmp(key->row->name, item->key) == 0) elsewhere = key;
    }
    if (elsewhere == NULL || (*near.best != '\0' && near.distance <= 1)) weft_nearest_print(&near, out, size);
    else (void)snprintf(out, size, "; [%s] has a key of that name: %s", elsewhere->section, elsewhere->row->help);
}

/* Lists the allowed keys of the section. its_plugin: also those of its plugin, which is not known yet. */
static void say_keys(char *out, size_t size, const char *list, bool its_plugin) {
    static const char more[] = "those of its plugin";
    if (list[0] == '\0' && !its_plugin) (void)snprintf(out, size, "It has no keys");
    else if (list[0] == '\0') (void)snprintf(out, size, "Its keys are %s", more);
    else (void)snprintf(out, size, "Its keys are: %s%s%s", list, its_plugin ? ", and " : "", its_plugin ? more : "");
}

static weft_status unknown_key(const weft_config *self, const weft_item *item, bool its_plugin, weft_error *err) {
    char meant[440], list[1024] = "", keys[1100];
    for (size_t i = 0; i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        if (strcmp(key->section, item->section) != 0 || weft_config_is_moot(self, key->section, key->row)) continue;
        append_name(list, sizeof list, key->row->name);
    }
    advise_key(self, item, meant, sizeof meant);
    say_keys(keys, sizeof keys, list, its_plugin);
    return weft_error_set(err, WEFT_E_USER, "%s: [%s] has no key %.80s%s %s", item->source, item->section, item->key,
                          *meant == '\0' ? "." : meant, keys);
}

static bool is_unknown(const weft_item *item, const char *section) {
    return !item->claimed && strcmp(item->section, section) == 0;
}

/* Returns whether the item is probably a misspelt declared, unset key; key NULL: any such key. */
static bool item_means_key(const weft_config *self, const weft_item *item, const char *key) {
    const weft_nearest near = nearest_key(self, item);
    if (*near.best == '\0' || weft_config_has_key(self, item->section, near.best)) return false;
    return key == NULL || strcmp(near.best, key) == 0;
}

weft_status weft_config_misspelt(const weft_config *self, const char *section, weft_error *err) {
    static const char *const keys[] = {"plugin", NULL};
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < self->n_items; i++) {
            const weft_item *item = &self->items[i];
            if (is_unknown(item, section) && item_means_key(self, item, keys[k]))
                return unknown_key(self, item, true, err);
        }
    }
    return WEFT_OK;
}

/* Returns the section's first undeclared item, or one that is probably a misspelt `plugin`. */
static const weft_item *find_first_unknown(const weft_config *self, const char *section) {
    const weft_item *first = NULL;
    for (size_t i = self->n_items; i > 0; i--) {
        const weft_item *item = &self->items[i - 1];
        if (!is_unknown(item, section)) continue;
        if (item_means_key(self, item, "plugin")) return item;
        first = item;
    }
    return first;
}

const char *weft_config_stray(const weft_config *self, const char *section) {
    const weft_item *item = find_first_unknown(self, section);
    return item != NULL ? item->key : NULL;
}

weft_status weft_config_unknown(const weft_config *self, const char *section, weft_error *err) {
    const weft_item *item = find_first_unknown(self, section);
    return item != NULL ? unknown_key(self, item, false, err) : WEFT_OK;
}

static bool is_of_kinds(const char *section, const allowed *may) {
    for (size_t i = 0; i < may->n_kinds; i++) {
        if (weft_section_id(section, may->kinds[i]) != NULL) return true;
    }
    return false;
}

weft_status weft_config_sections(const weft_config *self, const char *const *sections, size_t n,
                                 const char *const *kinds, size_t n_kinds, weft_error *err) {
    const allowed may = {sections, n, kinds, n_kinds};
    for (size_t i = 0; i < self->n_mentions; i++) {
        const weft_mention *mention = &self->mentions[i];
        if (mention->known || is_among(mention->section, sections, n)) continue;
        if (!is_of_kinds(mention->section, &may)) return unknown_section(mention, &may, err);
    }
    return WEFT_OK;
}

/* Compares with the filled sections. */
static weft_status check_sections(const weft_config *self, weft_error *err) {
    const char **sections = calloc(self->n_entries + 1, sizeof *sections);
    weft_status status = WEFT_OK;
    size_t n = 0;
    if (sections == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory left for the configuration");
    for (size_t i = 0; i < self->n_entries; i++) {
        if (!is_among(self->entries[i].section, sections, n)) sections[n++] = self->entries[i].section;
    }
    status = weft_config_sections(self, sections, n, NULL, 0, err);
    free(sections);
    return status;
}

weft_status weft_config_finish(const weft_config *self, weft_error *err) {
    const weft_status status = check_sections(self, err);
    if (status != WEFT_OK) return status;
    for (size_t i = 0; i < self->n_items; i++) {
        if (!self->items[i].claimed) return unknown_key(self, &self->items[i], false, err);
    }
    return WEFT_OK;
}
