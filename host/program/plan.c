/* host/program/plan.c: see plan.h. */
#include "program/plan.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdlib.h>

/* ---- slices ---- */

/* State of the walk over a program's instructions. */
typedef struct cutter {
    int32_t *first; /* [n + 1] boundaries found so far */
    int32_t n;
    int32_t *last; /* [micro-batches] last instruction of a micro-batch; -1: no instruction */
    bool *begun;   /* [micro-batches] */
    /* instructions of other queues in flight, live gathered units, and micro-batches used on both sides */
    int32_t in_flight;
} cutter;

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

static void count_in_flight(cutter *c, const weft_instruction *instruction, int32_t i) {
    const int32_t m = micro_batch_of(instruction);
    if (instruction->kind == WEFT_INSTRUCTION_WAIT) c->in_flight--;
    else if (instruction->queue != 0) c->in_flight++;
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS) c->in_flight++;
    if (instruction->kind == WEFT_INSTRUCTION_RELEASE) c->in_flight--;
    if (m < 0) return;
    if (!c->begun[m]) c->in_flight++;
    c->begun[m] = true;
    if (c->last[m] == i) c->in_flight--;
}

/* Finds the boundaries of one program. A slice ends directly before the next micro-batch begins. */
static void cut_program(cutter *c, const weft_program *program) {
    int32_t boundary = 0; /* latest possible end of the current slice; 0: unknown */
    bool has_micro_batch = false;
    c->n = 1;
    c->first[0] = c->in_flight = 0;
    for (int32_t m = 0; m < program->micro_batches; m++) {
        c->last[m] = -1;
        c->begun[m] = false;
    }
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const int32_t m = micro_batch_of(&program->instructions[i]);
        if (m >= 0) c->last[m] = i;
    }
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const int32_t m = micro_batch_of(&program->instructions[i]);
        if (c->in_flight == 0 && has_micro_batch) boundary = i;
        if (boundary > 0 && m >= 0) {
            c->first[c->n++] = boundary;
            boundary = 0;
            has_micro_batch = false;
        }
        count_in_flight(c, &program->instructions[i], i);
        has_micro_batch = has_micro_batch || m >= 0;
    }
    c->first[c->n] = program->n_instructions;
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

/* Uses the boundaries of rank 0's program if all ranks have the same ones, else one slice. */
static void cut_all(cutter *c, weft_slices *out, const weft_program *const *programs, int32_t world) {
    cut_program(c, programs[0]);
    out->n = c->n;
    memcpy(out->first, c->first, (size_t)(c->n + 1) * sizeof *out->first);
    for (int32_t rank = 1; rank < world && out->n > 1; rank++) {
        bool same = are_similar(programs[0], programs[rank]);
        if (same) cut_program(c, programs[rank]);
        same = same && c->n == out->n && memcmp(c->first, out->first, (size_t)(c->n + 1) * sizeof *c->first) == 0;
        if (!same) out->n = 1;
    }
}

/* Lists the micro-batches of each slice. No two slices share one: ranks that share a micro-batch send it to each other,
 * so their programs differ. */
static void list_micro_batches(cutter *c, weft_slices *out, const weft_program *const *programs, int32_t world) {
    const int32_t micro_batches = programs[0]->micro_batches;
    for (int32_t m = 0; m < micro_batches; m++) c->begun[m] = false;
    for (int32_t k = 0; k < out->n && out->n > 1; k++) {
        int32_t n = out->at[k];
        for (int32_t rank = 0; rank < world; rank++)
            for (int32_t i = out->first[k]; i < out->first[k + 1]; i++) {
                const int32_t m = micro_batch_of(&programs[rank]->instructions[i]);
                if (m < 0 || c->begun[m]) continue;
                c->begun[m] = true;
                out->micro_batches[n++] = m;
            }
        out->at[k + 1] = n;
    }
    if (out->n > 1) return;
    for (int32_t m = 0; m < micro_batches; m++) out->micro_batches[m] = m;
    out->at[1] = micro_batches;
}

weft_slices *weft_slices_create(const weft_program *const *programs, int32_t world, int32_t rank, bool cut) {
    const int32_t micro_batches = programs[0]->micro_batches;
    weft_slices *self = weft_alloc(1, sizeof *self);
    cutter c = {0};
    c.first = weft_alloc(programs[0]->n_instructions + 2, sizeof *c.first);
    c.last = weft_alloc(micro_batches, sizeof *c.last);
    c.begun = weft_alloc(micro_batches, sizeof *c.begun);
    self->first = weft_alloc(micro_batches + 2, sizeof *self->first);
    self->at = weft_alloc(micro_batches + 2, sizeof *self->at);
    self->micro_batches = weft_alloc(micro_batches, sizeof *self->micro_batches);
    self->n = 1;
    if (cut) cut_all(&c, self, programs, world);
    self->first[self->n] = programs[rank]->n_instructions; /* with one slice, ranks may have different numbers */
    list_micro_batches(&c, self, programs, world);
    free(c.first);
    free(c.last);
    free(c.begun);
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
    weft_program_destroy(mode_plan->shown);
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
    weft_mode_plan *modes[] = {&other.train, &other.evaluate, &other.generate};
    other.rank = rank;
    for (int32_t what = 0; what < WEFT_N_HOLDS; what++) {
        other.holds[what] = NULL;
        other.apart[what] = NULL;
    }
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        modes[i]->terms = NULL;
        modes[i]->sums = NULL;
    }
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

/* The maximum of a program's field over training and evaluation. */
#define MOST(self, field)                                                                                              \
    (int32_t) weft_larger((self)->train.program != NULL ? (self)->train.program->field : 0,                            \
                          (self)->evaluate.program != NULL ? (self)->evaluate.program->field : 0)

int32_t weft_plan_most_instructions(const weft_plan *self) {
    return MOST(self, n_instructions);
}

int32_t weft_plan_most_micro_batches(const weft_plan *self) {
    return MOST(self, micro_batches);
}

int32_t weft_plan_most_slots(const weft_plan *self) {
    return MOST(self, n_slots);
}
