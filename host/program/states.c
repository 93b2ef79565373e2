/* host/program/states.c: see states.h. */
#include "program/states.h"

int64_t weft_states_block(weft_states key) {
    return key == WEFT_STATES_8BIT ? weft_dtype_block(WEFT_DYN8X256) : 1;
}

static int32_t chosen_type(const weft_state_slot *slot, weft_states key) {
    if ((slot->flags & WEFT_STATE_AS_DECLARED) != 0) return slot->dtype;
    switch (key) {
    case WEFT_STATES_FP32: return WEFT_F32;
    case WEFT_STATES_BF16: return WEFT_BF16;
    case WEFT_STATES_8BIT: return (slot->flags & WEFT_STATE_NOT_NEGATIVE) != 0 ? WEFT_UDYN8X256 : WEFT_DYN8X256;
    default: return slot->dtype;
    }
}

void weft_states_choose(weft_state_slot *slots, int64_t n, weft_states key) {
    for (int64_t i = 0; i < n; i++) {
        slots[i].dtype = chosen_type(&slots[i], key);
        slots[i].block = (int32_t)weft_dtype_block(slots[i].dtype);
        slots[i].block_bytes = weft_dtype_bytes(slots[i].dtype);
    }
}

int64_t weft_states_bytes(const weft_state_slot *slots, int64_t n, int64_t elements) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++) bytes += weft_dtype_span(slots[i].dtype, elements);
    return bytes;
}
