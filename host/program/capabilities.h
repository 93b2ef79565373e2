/* host/program/capabilities.h: host keys that need support from the selected plugin: [strategy] reduce, ...
 *
 * The host declares them (config/settings.h). A plugin declares support by flags of its kind's table
 * (weft/strategy.h, weft/optimizer.h). A key without support stays at its default. These keys are also allowed in
 * the plugin's own section, so that one changed line in a file selects another plugin. */
#ifndef WEFT_HOST_PROGRAM_CAPABILITIES_H
#define WEFT_HOST_PROGRAM_CAPABILITIES_H

#include "program/run.h"

/* Returns the i-th such key of the part's section and its support flag; NULL past the end. */
const weft_key *weft_capability_at(int32_t part, size_t i, uint32_t *flag);
/* Returns the key of that name; NULL: not found. */
const weft_key *weft_capability_find(int32_t part, const char *key, uint32_t *flag);

/* Returns the flags of a loaded plugin's table. */
uint32_t weft_capabilities_of(const weft_loaded *loaded);

#endif
