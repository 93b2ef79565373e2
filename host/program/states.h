/* host/program/states.h: storage types of optimizer states and their bytes. */
#ifndef WEFT_HOST_PROGRAM_STATES_H
#define WEFT_HOST_PROGRAM_STATES_H

#include "config/settings.h"
#include <weft/optimizer.h>

/* Returns the elements of the longest state block; a grid cell is a multiple of it. It depends only on the key,
 * because the key is known before the optimizer declares its states. */
int64_t weft_states_block(weft_states key);

/* Sets the types of the declared state slots according to the key. */
void weft_states_choose(weft_state_slot *slots, int64_t n, weft_states key);

/* Returns the bytes of the states of `elements` elements, a multiple of the block. */
int64_t weft_states_bytes(const weft_state_slot *slots, int64_t n, int64_t elements);

#endif
