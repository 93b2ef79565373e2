/* host/run/state.c: see state.h. */
#include "run/state.h"

weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot) {
    weft_slot_ref out = {0};
    if (slot < 0 || program->slots[slot].offset < 0) return out;
    out.ref = weft_ref_at(engine->arena.ref, program->slots[slot].offset);
    out.bytes = program->slots[slot].bytes;
    return out;
}
