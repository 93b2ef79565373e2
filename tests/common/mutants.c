/* tests/common/mutants.c: see mutants.h. */
#include "mutants.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

const char *const mutation_names[N_MUTATIONS] = {"deletions", "duplications", "swaps", "moves", "operands"};

typedef struct mutating {
    const weft_program *valid;
    const weft_strategy_job *view;
    void (*judge)(void *context, const mutant *m);
    void *context;
} mutating;

weft_program *copy_program(const weft_program *program) {
    const size_t bytes = (size_t)program->n_instructions * sizeof *program->instructions;
    weft_program *copy = calloc(1, sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    copy->instructions = malloc(bytes);
    ck_assert_ptr_nonnull(copy->instructions);
    memcpy(copy->instructions, program->instructions, bytes);
    copy->n_instructions = copy->capacity = program->n_instructions;
    copy->mode = program->mode;
    copy->rank = program->rank;
    copy->micro_batches = program->micro_batches;
    copy->peak_instruction = copy->foreign_instruction = -1;
    return copy;
}

/* Change of an index. */
typedef struct shift {
    int32_t from, by;
} shift;

static void shift_waits(weft_program *program, shift how) {
    for (int32_t i = 0; i < program->n_instructions; i++) {
        weft_instruction *instruction = &program->instructions[i];
        if (instruction->kind == WEFT_INSTRUCTION_WAIT && instruction->waits >= how.from) instruction->waits += how.by;
    }
}

void remove_instruction(weft_program *program, int32_t i) {
    const shift how = {i + 1, -1};
    memmove(program->instructions + i, program->instructions + i + 1,
            (size_t)(program->n_instructions - i - 1) * sizeof *program->instructions);
    program->n_instructions--;
    shift_waits(program, how);
}

void insert_instruction(weft_program *program, int32_t i, weft_instruction instruction) {
    const shift how = {i, 1};
    shift_waits(program, how);
    program->instructions =
        realloc(program->instructions, (size_t)(program->n_instructions + 1) * sizeof *program->instructions);
    ck_assert_ptr_nonnull(program->instructions);
    program->capacity = program->n_instructions + 1;
    memmove(program->instructions + i + 1, program->instructions + i,
            (size_t)(program->n_instructions - i) * sizeof *program->instructions);
    program->instructions[i] = instruction;
    program->n_instructions++;
}

void swap_instructions(weft_program *program, int32_t i, int32_t j) {
    const weft_instruction instruction = program->instructions[i];
    program->instructions[i] = program->instructions[j];
    program->instructions[j] = instruction;
    for (int32_t k = 0; k < program->n_instructions; k++) {
        weft_instruction *wait = &program->instructions[k];
        if (wait->kind != WEFT_INSTRUCTION_WAIT) continue;
        if (wait->waits == i) wait->waits = j;
        else if (wait->waits == j) wait->waits = i;
    }
}

bool are_refused(const weft_program *const *programs, const weft_job_spec *job, weft_coverage *coverage) {
    weft_error err = WEFT_ERROR_INIT;
    if (weft_programs_check(coverage, programs, job, &err) == WEFT_OK) return false;
    ck_assert_msg(strncmp(err.text, "rank ", 5) == 0 && (strstr(err.text, ", instruction ") != NULL ||
                                                         strstr(err.text, "its program ends after") != NULL),
                  "a refusal that names nothing: %s", err.text);
    return true;
}

bool is_refused(const weft_program *program, const weft_job_spec *job) {
    weft_coverage coverage;
    return are_refused(&program, job, &coverage);
}

/* WAITs for instruction i of the valid program refer to its new index `to`. */
static void follow(const weft_program *valid, weft_program *program, int32_t i, int32_t to) {
    for (int32_t k = 0; k < valid->n_instructions; k++) {
        const int32_t gone = k - (k > i), now = gone + (gone >= to);
        if (k != i && valid->instructions[k].kind == WEFT_INSTRUCTION_WAIT && valid->instructions[k].waits == i)
            program->instructions[now].waits = to;
    }
}

/* Inserts instruction i again at `to` (-1: not at all), after its removal unless it stays. */
static void replace(weft_program *program, const weft_program *valid, int32_t i, bool stays, int32_t to) {
    const weft_instruction instruction = program->instructions[i];
    const int32_t waits = instruction.waits - (!stays && instruction.waits > i);
    if (!stays) remove_instruction(program, i);
    if (to >= 0) insert_instruction(program, to, instruction);
    if (to >= 0 && instruction.kind == WEFT_INSTRUCTION_WAIT) program->instructions[to].waits = waits + (waits >= to);
    if (to >= 0 && !stays) follow(valid, program, i, to);
}

/* --- operands --- */

typedef struct field {
    const char *name;
    size_t offset;
    int32_t from, to;
} field;

enum { N_FIELDS = 12 };

static void list_fields(field *out, const weft_program *valid, const weft_strategy_job *view) {
    const field fields[N_FIELDS] = {
        {"struct_size", offsetof(weft_instruction, struct_size), 0, (int32_t)sizeof(weft_instruction) - 1},
        {"flags", offsetof(weft_instruction, flags), 0, 2},
        {"kind", offsetof(weft_instruction, kind), -1, WEFT_INSTRUCTION_REFRESH + 2},
        {"unit", offsetof(weft_instruction, unit), -2, view->n_units + 1},
        {"segment", offsetof(weft_instruction, segment), -2, view->n_segments + 1},
        {"micro-batch", offsetof(weft_instruction, micro_batch), -2, view->micro_batches * view->replicas + 1},
        {"peer", offsetof(weft_instruction, peer), -2, view->world + 1},
        {"queue", offsetof(weft_instruction, queue), -2, 5},
        {"waits", offsetof(weft_instruction, waits), -2, valid->n_instructions + 1},
        {"what", offsetof(weft_instruction, what), -2, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT + 2},
        {"scope", offsetof(weft_instruction, scope), -2, WEFT_SCOPE_ACROSS + 2},
        {"reserved", offsetof(weft_instruction, reserved), -1, 1},
    };
    memcpy(out, fields, sizeof fields);
}

/* Returns false if the change has no effect. A larger struct_size, of a newer SDK's instruction, has none. */
static bool change_field(weft_instruction *instruction, const weft_program *valid, const weft_strategy_job *view,
                         const char *name, int32_t value) {
    field fields[N_FIELDS];
    list_fields(fields, valid, view);
    for (int f = 0; f < N_FIELDS; f++) {
        int32_t old = 0;
        if (strcmp(fields[f].name, name) != 0) continue;
        memcpy(&old, (char *)instruction + fields[f].offset, sizeof old);
        if (value == old || (fields[f].offset == 0 && (value > old || value < 0))) return false;
        memcpy((char *)instruction + fields[f].offset, &value, sizeof value);
        return true;
    }
    return false;
}

weft_program *mutate_alike(const weft_program *valid, const weft_strategy_job *view, const mutant *m) {
    const int32_t i = m->instruction;
    weft_program *program = copy_program(valid);
    bool changed = i < valid->n_instructions && (m->how == MUTATION_OPERAND || m->to <= valid->n_instructions);
    if (changed && m->how == MUTATION_SWAP) changed = i + 1 < valid->n_instructions;
    if (changed && m->how == MUTATION_MOVE) changed = m->to < valid->n_instructions;
    if (changed && m->how == MUTATION_SWAP) swap_instructions(program, i, i + 1);
    else if (changed && m->how == MUTATION_OPERAND)
        changed = change_field(&program->instructions[i], valid, view, m->field, m->to);
    else if (changed) replace(program, valid, i, m->how == MUTATION_DUPLICATION, m->to);
    if (changed) return program;
    weft_program_destroy(program);
    return NULL;
}

static void judge_one(const mutating *self, mutation how, int32_t i, const char *name, int32_t to) {
    mutant m = {NULL, how, i, name, to};
    m.program = mutate_alike(self->valid, self->view, &m);
    if (m.program != NULL) self->judge(self->context, &m);
}

static void change_operands(const mutating *self, int32_t i) {
    field fields[N_FIELDS];
    list_fields(fields, self->valid, self->view);
    for (int f = 0; f < N_FIELDS; f++) {
        judge_one(self, MUTATION_OPERAND, i, fields[f].name, INT32_MIN);
        judge_one(self, MUTATION_OPERAND, i, fields[f].name, INT32_MAX);
        for (int32_t value = fields[f].from; value <= fields[f].to; value++)
            judge_one(self, MUTATION_OPERAND, i, fields[f].name, value);
    }
}

void each_mutant(const weft_program *valid, const weft_strategy_job *view, uint32_t kinds,
                 void (*judge)(void *context, const mutant *m), void *context) {
    const mutating self = {valid, view, judge, context};
    for (int32_t i = 0; i < valid->n_instructions; i++) {
        if (kinds & 1u << MUTATION_DELETION) judge_one(&self, MUTATION_DELETION, i, NULL, -1);
        for (int32_t to = 0; to <= valid->n_instructions && (kinds & 1u << MUTATION_DUPLICATION); to++)
            judge_one(&self, MUTATION_DUPLICATION, i, NULL, to);
        if ((kinds & 1u << MUTATION_SWAP) && i + 1 < valid->n_instructions)
            judge_one(&self, MUTATION_SWAP, i, NULL, i + 1);
        for (int32_t to = 0; to < valid->n_instructions && (kinds & 1u << MUTATION_MOVE); to++)
            if (to != i) judge_one(&self, MUTATION_MOVE, i, NULL, to);
        if (kinds & 1u << MUTATION_OPERAND) change_operands(&self, i);
    }
}
