/* host/program/price.c: the bytes of a placed program added up. */
#include "program/program.h"

void weft_program_price(weft_price *out, const weft_program *program) {
    memset(out, 0, sizeof *out);
    out->arena = program->arena;
    out->peak = program->peak;
    out->peak_instruction = program->peak_instruction;
    for (int32_t i = 0; i < program->n_slots; i++) {
        const weft_slot *slot = &program->slots[i];
        if (slot->offset >= 0 && slot->first <= program->peak_instruction && program->peak_instruction <= slot->last)
            out->category[slot->category] += slot->bytes;
    }
}
