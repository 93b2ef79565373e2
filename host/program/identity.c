/* host/program/identity.c: one number for all that the programs of a job say (FNV-1a). */
#include "program/program.h"

static uint64_t mix_number(uint64_t hash, int64_t value) {
    const uint64_t prime = 0x100000001B3u;
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ (((uint64_t)value >> (8 * byte)) & 0xFFu)) * prime;
    return hash;
}

static uint64_t mix_instruction(uint64_t hash, const weft_instruction *e) {
    const int32_t fields[] = {e->kind,  e->unit,  e->segment, e->micro_batch, e->peer,
                              e->queue, e->waits, e->what,    e->scope};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) hash = mix_number(hash, fields[i]);
    return hash;
}

static uint64_t mix_unit(uint64_t hash, const weft_unit_view *u, const weft_placement *p) {
    const int64_t fields[] = {u->parameter_bytes, u->gradient_bytes, p->parameters, p->gradients,
                              p->optimizer,       p->owner,          p->group};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) hash = mix_number(hash, fields[i]);
    return hash;
}

uint64_t weft_programs_identity(const weft_program *const *programs, const weft_job_spec *job) {
    const weft_strategy_job *view = &job->view;
    uint64_t hash =
        mix_number(mix_number(mix_number(0xCBF29CE484222325u, view->world), view->replicas), view->micro_batches);
    for (int32_t u = 0; u < view->n_units; u++) hash = mix_unit(hash, &view->units[u], &view->placements[u]);
    for (int32_t s = 0; s < view->n_segments; s++) {
        hash = mix_number(hash, view->segments[s].owner);
        for (int32_t i = 0; i < view->segments[s].n_units; i++) hash = mix_number(hash, view->segments[s].units[i]);
    }
    for (int32_t rank = 0; rank < view->world; rank++) {
        hash = mix_number(hash, programs[rank]->n_instructions);
        for (int32_t i = 0; i < programs[rank]->n_instructions; i++)
            hash = mix_instruction(hash, &programs[rank]->instructions[i]);
    }
    return hash;
}
