/* host/program/capabilities.c: see capabilities.h. */
#include "program/capabilities.h"

#include <weft/optimizer.h>
#include <weft/strategy.h>

static const struct {
    int32_t part;
    const char *key;
    uint32_t flag;
} capabilities[] = {
    {WEFT_PART_STRATEGY, "reduce", WEFT_CAPABILITY_REDUCE},
    {WEFT_PART_STRATEGY, "reduce_dtype", WEFT_CAPABILITY_REDUCE_DTYPE},
    {WEFT_PART_STRATEGY, "prefetch", WEFT_CAPABILITY_PREFETCH},
    {WEFT_PART_OPTIMIZER, "decay", WEFT_CAPABILITY_DECAY},
};
enum { N_CAPABILITIES = sizeof capabilities / sizeof *capabilities };

/* The row in the host's own table of the section. */
static const weft_key *find_key_row(const char *section, const char *key) {
    weft_settings_section table;
    for (size_t i = 0; weft_settings_table(&table, i); i++) {
        if (strcmp(table.section, section) != 0) continue;
        for (uint64_t k = 0; k < table.n; k++)
            if (strcmp(table.keys[k].name, key) == 0) return &table.keys[k];
    }
    return NULL;
}

const weft_key *weft_capability_at(int32_t part, size_t i, uint32_t *flag) {
    for (size_t k = 0; k < N_CAPABILITIES; k++) {
        if (capabilities[k].part != part || i-- > 0) continue;
        *flag = capabilities[k].flag;
        return find_key_row(weft_part_name(part), capabilities[k].key);
    }
    return NULL;
}

const weft_key *weft_capability_find(int32_t part, const char *key, uint32_t *flag) {
    const weft_key *row = NULL;
    for (size_t i = 0; (row = weft_capability_at(part, i, flag)) != NULL; i++)
        if (strcmp(row->name, key) == 0) return row;
    return NULL;
}

/* Every kind's table begins with struct_size and flags. */
uint32_t weft_capabilities_of(const weft_loaded *loaded) {
    uint32_t head[2];
    memcpy(head, loaded->plugin->table, sizeof head);
    return head[1];
}
