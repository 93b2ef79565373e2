/* host/program/offers.h: keys that the host acts on where the chosen plugin offers them: [strategy] reduce, ...
 *
 * The host declares them (config/settings.h), a plugin offers them by flags of its kind's table (weft/strategy.h,
 * weft/optimizer.h). One that the chosen plugin does not offer stays at its default. Like the plugin's own keys they
 * may stand in its own section, so that a file can change its plugin in one line. */
#ifndef WEFT_HOST_PROGRAM_OFFERS_H
#define WEFT_HOST_PROGRAM_OFFERS_H

#include "program/run.h"

/* The i-th such key of the part's section, and the flag by which a table offers it; NULL past the end. */
const weft_key *weft_offer_at(int32_t part, size_t i, uint32_t *flag);
/* The one of that name; NULL: there is none. */
const weft_key *weft_offer_find(int32_t part, const char *key, uint32_t *flag);

/* The flags of a loaded plugin's table. */
uint32_t weft_offers_of(const weft_loaded *loaded);

#endif
