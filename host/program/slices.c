/* host/program/slices.c: see slices.h. */
#include "program/slices.h"

#include <stdlib.h>

/* ---- one program ---- */

/* Walks a program's instructions and notes what is under way between them. */
typedef struct cutter {
    const weft_program *program;
    int32_t *first; /* [n_instructions + 2] cuts that were found */
    int32_t n;
    int32_t *last; /* [micro-batches] the last instruction that works on a micro-batch; -1: none does */
    bool *begun;   /* [micro-batches] */
    /* instructions of other queues, gathered units, and micro-batches that are worked on further behind */
    int32_t under_way;
    bool has_micro_batch; /* the slice at hand works on one */
    int32_t place;        /* where it may end; 0: nowhere yet */
} cutter;

/* The micro-batch whose length what an instruction does depends on; -1: it depends on none. */
static int32_t micro_batch_worked_on(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_FORWARD:
    case WEFT_INSTRUCTION_RECOMPUTE:
    case WEFT_INSTRUCTION_BACKWARD:
    case WEFT_INSTRUCTION_SEND:
    case WEFT_INSTRUCTION_RECV: return instruction->micro_batch;
    default: return -1;
    }
}

static void begin_program(cutter *c, const weft_program *program) {
    c->program = program;
    c->n = 0;
    c->first[c->n++] = 0;
    c->under_way = c->place = 0;
    c->has_micro_batch = false;
    for (int32_t m = 0; m < program->micro_batches; m++) {
        c->last[m] = -1;
        c->begun[m] = false;
    }
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const int32_t micro_batch = micro_batch_worked_on(&program->instructions[i]);
        if (micro_batch >= 0) c->last[micro_batch] = i;
    }
}

static void note_under_way(cutter *c, int32_t i) {
    const weft_instruction *instruction = &c->program->instructions[i];
    const int32_t micro_batch = micro_batch_worked_on(instruction);
    if (instruction->kind == WEFT_INSTRUCTION_WAIT) c->under_way--;
    else if (instruction->queue != 0) c->under_way++;
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS) c->under_way++;
    if (instruction->kind == WEFT_INSTRUCTION_RELEASE) c->under_way--;
    if (micro_batch < 0) return;
    c->has_micro_batch = true;
    if (!c->begun[micro_batch]) c->under_way++;
    c->begun[micro_batch] = true;
    if (c->last[micro_batch] == i) c->under_way--;
}

/* A slice ends as late as it may before the next micro-batch is begun. */
static void cut_program(cutter *c, const weft_program *program) {
    begin_program(c, program);
    for (int32_t i = 0; i < program->n_instructions; i++) {
        if (c->under_way == 0 && c->has_micro_batch) c->place = i;
        if (c->place > 0 && micro_batch_worked_on(&program->instructions[i]) >= 0) {
            c->first[c->n++] = c->place;
            c->place = 0;
            c->has_micro_batch = false;
        }
        note_under_way(c, i);
    }
    c->first[c->n] = program->n_instructions;
}

/* ---- those of all ranks ---- */

static bool same_but_micro_batch(const weft_instruction *a, const weft_instruction *b) {
    return a->kind == b->kind && a->unit == b->unit && a->segment == b->segment && a->queue == b->queue &&
           a->waits == b->waits && a->what == b->what && a->scope == b->scope &&
           (a->micro_batch < 0) == (b->micro_batch < 0);
}

static bool are_alike(const weft_program *a, const weft_program *b) {
    if (a->n_instructions != b->n_instructions) return false;
    for (int32_t i = 0; i < a->n_instructions; i++)
        if (!same_but_micro_batch(&a->instructions[i], &b->instructions[i])) return false;
    return true;
}

/* The cuts of the first rank's program, where they are every rank's; else none. */
static void cut_all(cutter *c, weft_slices *out, const weft_program *const *programs, int32_t world) {
    cut_program(c, programs[0]);
    out->n = c->n;
    memcpy(out->first, c->first, (size_t)(c->n + 1) * sizeof *out->first);
    for (int32_t rank = 1; rank < world && out->n > 1; rank++) {
        bool same = are_alike(programs[0], programs[rank]);
        if (same) cut_program(c, programs[rank]);
        same = same && c->n == out->n && memcmp(c->first, out->first, (size_t)(c->n + 1) * sizeof *c->first) == 0;
        if (!same) out->n = 1;
    }
}

/* The micro-batches that a rank's program works on in [first, end). */
static int32_t list_micro_batches(cutter *c, const weft_program *program, int32_t first, int32_t end, int32_t *out) {
    int32_t n = 0;
    for (int32_t i = first; i < end; i++) {
        const int32_t micro_batch = micro_batch_worked_on(&program->instructions[i]);
        if (micro_batch < 0 || c->begun[micro_batch]) continue;
        c->begun[micro_batch] = true;
        out[n++] = micro_batch;
    }
    return n;
}

/* No two slices work on the same micro-batch: a rank's own do not, and ranks that share one send it to each other,
 * which their programs would differ in. */
static void list_all(cutter *c, weft_slices *out, const weft_program *const *programs, int32_t world) {
    const int32_t micro_batches = programs[0]->micro_batches;
    for (int32_t m = 0; m < micro_batches; m++) c->begun[m] = false;
    out->at[0] = 0;
    for (int32_t k = 0; k < out->n; k++) {
        out->at[k + 1] = out->at[k];
        for (int32_t rank = 0; rank < world && out->n > 1; rank++)
            out->at[k + 1] += list_micro_batches(c, programs[rank], out->first[k], out->first[k + 1],
                                                 &out->micro_batches[out->at[k + 1]]);
    }
    if (out->n > 1) return;
    for (int32_t m = 0; m < micro_batches; m++) out->micro_batches[m] = m;
    out->at[1] = micro_batches;
}

static void free_cutter(cutter *c) {
    free(c->first);
    free(c->last);
    free(c->begun);
}

static weft_status take_memory(weft_slices **out, cutter *c, const weft_program *program, weft_error *err) {
    const size_t instructions = (size_t)program->n_instructions + 2, micro_batches = (size_t)program->micro_batches + 1;
    weft_slices *self = calloc(1, sizeof *self);
    *out = self;
    c->first = calloc(instructions, sizeof *c->first);
    c->last = calloc(micro_batches, sizeof *c->last);
    c->begun = calloc(micro_batches, sizeof *c->begun);
    if (self != NULL) {
        self->first = calloc(micro_batches + 1, sizeof *self->first);
        self->at = calloc(micro_batches + 1, sizeof *self->at);
        self->micro_batches = calloc(micro_batches, sizeof *self->micro_batches);
    }
    if (self != NULL && self->first != NULL && self->at != NULL && self->micro_batches != NULL && c->first != NULL &&
        c->last != NULL && c->begun != NULL)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the slices of a program of %d instructions",
                          (int)program->n_instructions);
}

weft_status weft_slices_create(weft_slices **out, const weft_program *const *programs, int32_t world, int32_t rank,
                               bool cut, weft_error *err) {
    cutter c = {0};
    weft_slices *self = NULL;
    weft_status status = take_memory(&self, &c, programs[0], err);
    if (status == WEFT_OK) {
        self->n = 1;
        if (cut) cut_all(&c, self, programs, world);
        self->first[self->n] = programs[rank]->n_instructions; /* of one slice, every rank's own number */
        list_all(&c, self, programs, world);
        *out = self;
    } else weft_slices_destroy(self);
    free_cutter(&c);
    return status;
}

void weft_slices_destroy(weft_slices *slices) {
    if (slices == NULL) return;
    free(slices->first);
    free(slices->micro_batches);
    free(slices->at);
    free(slices);
}
