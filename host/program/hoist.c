/* host/program/hoist.c: GATHERs that start before they are needed, as a rewriting of instructions.
 *
 * A strategy says where parameters must be there; how far ahead they are fetched is a number. Each GATHER of parameters
 * that ends in its place becomes a start and a WAIT. The WAIT stands where the GATHER stood; before it the next
 * job->prefetch GATHERs of the list start as well, in their order, as far as their units are free: a unit that is still
 * live from an earlier GATHER is fetched again after its RELEASE. */
#include "program/instructions.h"

#include <stdlib.h>
#include <weft/emit.h>

#define GATHER_QUEUE 2

typedef struct hoist {
    const weft_program *from;
    const weft_job_spec *job;
    weft_program to;
    int32_t *moved;   /* old index -> new one, of what was not hoisted */
    int32_t *gathers; /* old indices of those that are, in order */
    int32_t *started; /* new index of each, or -1 */
    bool *live;       /* [n_units] started and not released */
    int32_t n, next;  /* gathers; the first that has not started */
    bool failed;
} hoist;

static bool is_hoistable(const hoist *h, const weft_instruction *instruction) {
    return instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS &&
           instruction->queue == 0 && instruction->unit >= 0 && instruction->unit < h->job->view.n_units;
}

static int32_t put_instruction(hoist *h, const weft_instruction *instruction) {
    const int32_t index = weft_program_emit(&h->to, instruction);
    if (index < 0) h->failed = true;
    return index;
}

/* Starts GATHERs up to number `last`, until one must wait for a RELEASE. */
static void start_gathers(hoist *h, int32_t last) {
    while (h->next < h->n && h->next <= last) {
        weft_instruction instruction = h->from->instructions[h->gathers[h->next]];
        if (h->live[instruction.unit]) return;
        h->live[instruction.unit] = true;
        instruction.queue = GATHER_QUEUE;
        h->started[h->next++] = put_instruction(h, &instruction);
    }
}

/* A GATHER whose unit is live already is the checker's to refuse: it stays as it is. */
static void rewrite_instructions(hoist *h) {
    int32_t needed = 0; /* GATHERs that the list has come by */
    for (int32_t i = 0; i < h->from->n_instructions; i++) {
        weft_instruction instruction = h->from->instructions[i];
        if (is_hoistable(h, &instruction)) {
            weft_instruction wait = weft_instruction_of(WEFT_INSTRUCTION_WAIT);
            start_gathers(h, needed + h->job->prefetch);
            wait.waits = h->started[needed];
            if (wait.waits < 0)
                h->started[needed] = h->next < h->n ? (h->next++, put_instruction(h, &instruction)) : -1;
            else (void)put_instruction(h, &wait);
            h->moved[i] = h->started[needed++];
            continue;
        }
        if (instruction.waits >= 0 && instruction.waits < i) instruction.waits = h->moved[instruction.waits];
        h->moved[i] = put_instruction(h, &instruction);
        if (instruction.kind == WEFT_INSTRUCTION_RELEASE && instruction.unit >= 0 &&
            instruction.unit < h->job->view.n_units) {
            h->live[instruction.unit] = false;
            if (needed > 0) start_gathers(h, needed - 1 + h->job->prefetch);
        }
    }
}

weft_status weft_program_hoist(weft_program *program, const weft_job_spec *job, weft_error *err) {
    const size_t instructions = (size_t)program->n_instructions + 1;
    hoist h = {.from = program, .job = job};
    weft_status status = WEFT_OK;
    h.moved = malloc(instructions * sizeof *h.moved);
    h.gathers = malloc(instructions * sizeof *h.gathers);
    h.started = malloc(instructions * sizeof *h.started);
    h.live = calloc((size_t)job->view.n_units + 1, sizeof *h.live);
    if (h.moved == NULL || h.gathers == NULL || h.started == NULL || h.live == NULL) h.failed = true;
    for (int32_t i = 0; i < program->n_instructions && !h.failed; i++)
        if (is_hoistable(&h, &program->instructions[i])) h.gathers[h.n++] = i;
    for (int32_t i = 0; i < h.n; i++) h.started[i] = -1;
    if (!h.failed && h.n > 0) rewrite_instructions(&h);
    if (h.failed)
        status =
            weft_error_set(err, WEFT_E_MEMORY, "no memory to rewrite %d instructions", (int)program->n_instructions);
    else if (h.n > 0) {
        free(program->instructions);
        program->instructions = h.to.instructions;
        program->n_instructions = h.to.n_instructions;
        program->capacity = h.to.capacity;
        h.to.instructions = NULL;
    }
    free(h.to.instructions);
    free(h.moved);
    free(h.gathers);
    free(h.started);
    free(h.live);
    return status;
}
