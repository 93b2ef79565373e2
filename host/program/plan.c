/* host/program/plan.c: see plan.h. */
#include "program/plan.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdlib.h>

/* ---- slices ---- */

/* Returns the micro-batch whose length determines the instruction's work; -1: independent of lengths. */
static int32_t micro_batch_of(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_FORWARD:
    case WEFT_INSTRUCTION_RECOMPUTE:
    case WEFT_INSTRUCTION_BACKWARD:
    case WEFT_INSTRUCTION_SEND:
    case WEFT_INSTRUCTION_RECV: return instruction->micro_batch;
    default: return -1;
    }
}

/* Returns by how much an instruction changes the number of instructions of other queues in flight and of live gathered
 * units. */
static int32_t change_in_flight(const weft_instruction *instruction) {
    int32_t change = instruction->kind == WEFT_INSTRUCTION_WAIT ? -1 : instruction->queue != 0 ? 1 : 0;
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS) change++;
    if (instruction->kind == WEFT_INSTRUCTION_RELEASE) change--;
    return change;
}

/* True if the programs differ only in their micro-batches. */
static bool are_similar(const weft_program *a, const weft_program *b) {
    if (a->n_instructions != b->n_instructions) return false;
    for (int32_t i = 0; i < a->n_instructions; i++) {
        const weft_instruction *x = &a->instructions[i], *y = &b->instructions[i];
        if (x->kind != y->kind || x->unit != y->unit || x->segment != y->segment || x->queue != y->queue ||
            x->waits != y->waits || x->what != y->what || x->scope != y->scope ||
            (x->micro_batch < 0) != (y->micro_batch < 0))
            return false;
    }
    return true;
}

/* Walks over the similar programs of all ranks at once. A slice ends directly before the next micro-batch begins. */
static void cut_all(weft_slices *out, const weft_program *const *programs, int32_t world) {
    const weft_program *any = programs[0];
    int32_t *last = weft_alloc(any->micro_batches, sizeof *last); /* last instruction of a micro-batch */
    bool *begun = weft_alloc(any->micro_batches, sizeof *begun);
    int32_t in_flight = 0; /* also micro-batches that have begun and not ended */
    int32_t boundary = 0;  /* latest possible end of the current slice; 0: unknown */
    int32_t listed = 0;
    for (int32_t i = 0; i < any->n_instructions; i++)
        for (int32_t r = 0; r < world && micro_batch_of(&any->instructions[i]) >= 0; r++)
            last[programs[r]->instructions[i].micro_batch] = i;
    for (int32_t i = 0; i < any->n_instructions; i++) {
        const bool works = micro_batch_of(&any->instructions[i]) >= 0;
        if (in_flight == 0 && listed > out->at[out->n - 1]) boundary = i;
        if (boundary > 0 && works) {
            out->first[out->n] = boundary;
            out->at[out->n++] = listed;
            boundary = 0;
        }
        in_flight += change_in_flight(&any->instructions[i]);
        for (int32_t r = 0; r < world && works; r++) {
            const int32_t m = programs[r]->instructions[i].micro_batch;
            if (!begun[m]) {
                out->micro_batches[listed++] = m;
                in_flight++;
            }
            begun[m] = true;
            if (last[m] == i) in_flight--;
        }
    }
    free(last);
    free(begun);
}

weft_slices *weft_slices_create(const weft_program *const *programs, int32_t world, int32_t rank, bool cut) {
    const int32_t micro_batches = programs[0]->micro_batches;
    weft_slices *self = weft_alloc(1, sizeof *self);
    self->first = weft_alloc(micro_batches + 2, sizeof *self->first);
    self->at = weft_alloc(micro_batches + 2, sizeof *self->at);
    self->micro_batches = weft_alloc(micro_batches, sizeof *self->micro_batches);
    self->n = 1;
    for (int32_t r = 1; r < world && cut; r++) cut = are_similar(programs[0], programs[r]);
    for (int32_t m = 0; m < micro_batches && !cut; m++) self->micro_batches[m] = m;
    if (cut) cut_all(self, programs, world);
    self->first[self->n] = programs[rank]->n_instructions; /* with one slice, ranks may have different numbers */
    self->at[self->n] = micro_batches;
    return self;
}

void weft_slices_destroy(weft_slices *slices) {
    if (slices == NULL) return;
    free(slices->first);
    free(slices->micro_batches);
    free(slices->at);
    free(slices);
}

/* ---- plans ---- */

void weft_terms_destroy(weft_terms *terms) {
    if (terms == NULL) return;
    free(terms->terms);
    free(terms->first);
    free(terms->n);
    free(terms);
}

static void close_mode_plan(weft_mode_plan *mode_plan) {
    weft_program_destroy(mode_plan->program);
    weft_terms_destroy(mode_plan->terms);
    weft_slices_destroy(mode_plan->slices);
    free(mode_plan->sums);
    free(mode_plan->losses);
    weft_job_destroy(mode_plan->job);
    weft_graph_set_destroy(mode_plan->graphs);
}

static void close_holds(weft_plan *self) {
    for (int32_t what = 0; what < WEFT_N_HOLDS; what++) {
        weft_hold_destroy(self->holds[what]);
        free(self->apart[what]);
    }
}

void weft_plan_close(weft_plan *self) {
    close_mode_plan(&self->train);
    close_mode_plan(&self->evaluate);
    close_mode_plan(&self->generate);
    close_holds(self);
    free(self->in_products);
    weft_layout_destroy(self->layout);
    weft_declared_destroy(self->declared);
}

weft_plan weft_plan_as_rank(const weft_plan *self, int32_t rank) {
    weft_plan other = *self;
    other.rank = rank;
    other.train.terms = NULL;
    other.train.sums = NULL;
    memset(other.holds, 0, sizeof other.holds);
    memset(other.apart, 0, sizeof other.apart);
    return other;
}

void weft_plan_drop_rank(weft_plan *self) {
    weft_terms_destroy(self->train.terms);
    free(self->train.sums);
    close_holds(self);
}

int64_t weft_plan_table_rows(const weft_plan_spec *spec) {
    int64_t rows = spec->cache_rows;
    for (int32_t i = 0; i < spec->n_lengths; i++) rows = weft_larger(rows, spec->lengths[i]);
    return rows;
}
