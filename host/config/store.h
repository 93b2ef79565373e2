/* host/config/store.h: the fields of weft_config, internal to this directory. */
#ifndef WEFT_HOST_CONFIG_STORE_H
#define WEFT_HOST_CONFIG_STORE_H

#include "config/config.h"
#include "config/value.h"

/* A line of the file or an override. */
typedef struct weft_item {
    const char *section, *key, *value;
    const char *source;    /* "run.ini:14" or "command line" */
    const char *directory; /* base of its relative paths */
    bool claimed;          /* a table declared its key */
} weft_item;

/* A section that the user named. */
typedef struct weft_mention {
    const char *section, *source;
    bool known; /* a plugin's own section, of a plugin that exists */
    bool idle;  /* of an unselected plugin */
} weft_mention;

/* A section with a known plugin, and that plugin's own section: "strategy", "strategy.fsdp". */
typedef struct weft_owner {
    const char *section, *own;
} weft_owner;

/* A key that a table declares. */
typedef struct weft_declared_key {
    const char *section;
    const weft_key *row; /* its table outlives the config */
} weft_declared_key;

/* A declared key with its value. */
typedef struct weft_entry {
    const char *section;
    const weft_key *row; /* its table outlives the config */
    weft_value value;
    const weft_item *item; /* NULL: the default */
} weft_entry;

struct weft_config {
    const char *name; /* of the file as given, or "command line" */
    const char *home; /* absolute directory of the file */
    const char *here; /* working directory when it was read */
    weft_item *items; /* never moves once loaded; later items win */
    size_t n_items;
    weft_mention *mentions;
    size_t n_mentions;
    weft_declared_key *keys; /* in the order of their tables, without removed keys */
    size_t n_keys;
    weft_entry *entries;
    size_t n_entries;
    weft_owner *owners;
    size_t n_owners;
    weft_entry
        *idle; /* of idle sections; row NULL: its plugin could not be described, and the value is not validated */
    size_t n_idle;
    char **texts; /* all strings */
    size_t n_texts;
};

/* Takes a text and returns it; it lives as long as the config. NULL is fine. */
const char *weft_config_keep(weft_config *self, char *text);

/* Returns the id in "strategy.fsdp" if the section belongs to a plugin of that kind, else NULL. */
const char *weft_section_id(const char *section, const char *kind);

/* Returns "strategy.fsdp" if fsdp is the selected plugin; NULL: unknown. */
const char *weft_config_own(const weft_config *self, const char *section);

/* Returns the same if the key is allowed in the plugin's own section, else NULL. */
const char *weft_config_own_section(const weft_config *self, const char *section, const char *key);

/* Returns whether the key is a host key that the section's known plugin does not offer. */
bool weft_config_is_moot(const weft_config *self, const char *section, const weft_key *row);

/* Returns the effective item, in the section or its plugin's own, or NULL. */
const weft_item *weft_config_item(const weft_config *self, const char *section, const char *key);

/* Marks a key and its items as declared. */
void weft_config_claim(weft_config *self, const char *section, const weft_key *row);

const weft_entry *weft_config_entry(const weft_config *self, const char *section, const char *key);

/* Formats "run.ini:14: [train] clip = -1 ", or with (its default) without an item. row: of a key without an entry, or
 * NULL; the value of a secret key is omitted. */
void weft_config_subject(const weft_config *self, const char *section, const char *key, const weft_key *row, char *out,
                         size_t size);

/* Validates and parses the entry's text. The config owns the value. */
weft_status weft_config_parse(weft_config *self, weft_entry *entry, weft_error *err);

/* Returns row i of a table that may have larger rows than ours. */
static inline const weft_key *weft_key_row(const weft_key *keys, uint64_t i, uint32_t stride) {
    return (const weft_key *)(const void *)((const char *)keys + i * stride);
}

#endif
