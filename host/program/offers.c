/* host/program/offers.c: see offers.h. */
#include "program/offers.h"

#include <weft/optimizer.h>
#include <weft/strategy.h>

static const struct {
    int32_t part;
    const char *key;
    uint32_t flag;
} offers[] = {
    {WEFT_PART_STRATEGY, "reduce", WEFT_OFFERS_REDUCE},
    {WEFT_PART_STRATEGY, "reduce_dtype", WEFT_OFFERS_REDUCE_DTYPE},
    {WEFT_PART_STRATEGY, "prefetch", WEFT_OFFERS_PREFETCH},
    {WEFT_PART_OPTIMIZER, "decay", WEFT_OFFERS_DECAY},
};
enum { N_OFFERS = sizeof offers / sizeof *offers };

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

const weft_key *weft_offer_at(int32_t part, size_t i, uint32_t *flag) {
    for (size_t k = 0; k < N_OFFERS; k++) {
        if (offers[k].part != part || i-- > 0) continue;
        *flag = offers[k].flag;
        return find_key_row(weft_part_name(part), offers[k].key);
    }
    return NULL;
}

const weft_key *weft_offer_find(int32_t part, const char *key, uint32_t *flag) {
    const weft_key *row = NULL;
    for (size_t i = 0; (row = weft_offer_at(part, i, flag)) != NULL; i++)
        if (strcmp(row->name, key) == 0) return row;
    return NULL;
}

/* Every kind's table begins with struct_size and flags. */
uint32_t weft_offers_of(const weft_loaded *loaded) {
    uint32_t head[2];
    memcpy(head, loaded->plugin->table, sizeof head);
    return head[1];
}
