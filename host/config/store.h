/* host/config/store.h: what a weft_config holds; for the files of this directory only. */
#ifndef WEFT_HOST_CONFIG_STORE_H
#define WEFT_HOST_CONFIG_STORE_H

#include "config/config.h"
#include "config/value.h"

/* A line of the file, or an override, as the user gave it. */
typedef struct weft_item {
    char *section;
    char *key;
    char *value;
    char *source;          /* "run.ini:14" or "command line" */
    const char *directory; /* where its relative paths start */
    bool claimed;          /* a table declared its key */
    bool passed_over;      /* it counts as if it were not there */
} weft_item;

/* A section that the user named. */
typedef struct weft_mention {
    char *section;
    char *source;
    bool known; /* it is a plugin's own, of one that exists */
    bool idle;  /* ... which is not the chosen one */
} weft_mention;

/* A section whose plugin is known, and that plugin's own: "strategy", "strategy.fsdp". */
typedef struct weft_owner {
    char *section;
    char *own;
} weft_owner;

/* A key that a table declares. */
typedef struct weft_declared_key {
    char *section;
    const weft_key *row; /* its table outlives the config */
} weft_declared_key;

/* A declared key with its value. */
typedef struct weft_entry {
    char *section;
    const weft_key *row; /* its table outlives the config */
    weft_value value;
    const weft_item *item; /* NULL: the default */
} weft_entry;

/* What an idle section holds. */
typedef struct weft_idle {
    const weft_item *item;
    const weft_key *row; /* NULL: its plugin could not be asked, and the value is not judged */
    weft_value value;
} weft_idle;

struct weft_config {
    char *name;       /* of the file as given, or "command line" */
    char *home;       /* absolute directory of the file */
    char *here;       /* working directory when it was read */
    weft_item *items; /* never moves once loaded; a later one counts more */
    size_t n_items;
    weft_mention *mentions;
    size_t n_mentions;
    weft_declared_key *keys; /* in the order of their tables; removed ones are none */
    size_t n_keys;
    weft_entry *entries;
    size_t n_entries;
    weft_owner *owners;
    size_t n_owners;
    weft_idle *idle;
    size_t n_idle;
    weft_value *lent; /* defaults that weft_config_fill_idle has given away */
    size_t n_lent;
};

/* The id in "strategy.fsdp" if the section is one of that kind's; NULL: it is not. */
const char *weft_section_id(const char *section, const char *kind);

/* "strategy.fsdp", where fsdp is the chosen plugin; NULL: that is not known. */
const char *weft_config_own(const weft_config *self, const char *section);

/* The same if the key may stand in its own section; else NULL. */
const char *weft_config_own_section(const weft_config *self, const char *section, const char *key);

/* Whether the key is one of the host's that the section's plugin, which is known, does not offer. */
bool weft_config_is_moot(const weft_config *self, const char *section, const weft_key *row);

/* The item that counts, in the section or its plugin's own, or NULL. */
const weft_item *weft_config_item(const weft_config *self, const char *section, const char *key);

/* Notes a key as declared, and marks its items. */
weft_status weft_config_claim(weft_config *self, const char *section, const weft_key *row, weft_error *err);

const weft_entry *weft_config_entry(const weft_config *self, const char *section, const char *key);

/* "run.ini:14: [train] clip = -1 ", or with (its default) where no item is there. */
void weft_config_subject(const weft_config *self, const char *section, const char *key, char *out, size_t size);

/* Judges the entry's text and reads its value. */
weft_status weft_config_parse(const weft_config *self, weft_entry *entry, weft_error *err);

/* One of the arrays above with room for one more; false: no memory. */
bool weft_config_grow(void *array, size_t n, size_t element);
/* The sentence for that. */
weft_status weft_config_no_memory(weft_error *err);

/* Row i of a table whose rows may be larger than ours. */
static inline const weft_key *weft_key_row(const weft_key *keys, uint64_t i, uint32_t stride) {
    return (const weft_key *)(const void *)((const char *)keys + i * stride);
}

#endif
