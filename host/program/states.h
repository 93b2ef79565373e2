/* host/program/states.h: in which type optimizer states are kept, and what that takes. */
#ifndef WEFT_HOST_PROGRAM_STATES_H
#define WEFT_HOST_PROGRAM_STATES_H

#include "config/settings.h"
#include <weft/optimizer.h>

/* Elements of the longest block of states, of which a grid cell has a whole number: the key is known before the
 * optimizer has said what it keeps. */
int64_t weft_states_block(weft_states key);

/* The slots, as the optimizer declares them, in the type that the key asks for. */
void weft_states_choose(weft_state_slot *slots, int64_t n, weft_states key);

/* Bytes of the states of so many elements, which are whole blocks. */
int64_t weft_states_bytes(const weft_state_slot *slots, int64_t n, int64_t elements);

#endif
