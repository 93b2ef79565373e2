/* host/program/exchange_matches.c: see exchange_matches.h. A table of what is known of each exchange, by its key. */
#include "program/exchange_matches.h"

#include "program/job.h"

#include <stdlib.h>

/* What ranks that exchange agree on without speaking. */
typedef struct key {
    int32_t kind, what, scope; /* a RECV has its SEND's kind */
    int32_t of, micro_batch;   /* unit, or segment; of a pair of ranks alone its micro-batch */
    int32_t first, second;     /* the group's first rank and stride; or sender and receiver */
    int32_t turn;              /* of the exchanges of this rank that are alike so far */
} key;

typedef struct entry {
    key key;
    int32_t value; /* what is known under the key; entries without a key have -1 */
} entry;

typedef struct table {
    entry *entries;
    size_t room; /* a power of two, more than twice what goes in */
} table;

static size_t hash_of(const key *k) {
    const unsigned char *bytes = (const unsigned char *)k;
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < sizeof *k; i++) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return (size_t)(hash ^ hash >> 31);
}

/* The entry of the key; one that is new has value -1. */
static entry *find_entry(const table *self, const key *k) {
    size_t at = hash_of(k) & (self->room - 1);
    while (self->entries[at].value >= 0 && memcmp(&self->entries[at].key, k, sizeof *k) != 0)
        at = (at + 1) & (self->room - 1);
    self->entries[at].key = *k;
    return &self->entries[at];
}

static bool make_table(table *self, size_t most) {
    self->room = 16;
    while (self->room < 2 * most + 2) self->room *= 2;
    self->entries = malloc(self->room * sizeof *self->entries);
    for (size_t i = 0; self->entries != NULL && i < self->room; i++) self->entries[i].value = -1;
    return self->entries != NULL;
}

/* False: nobody else takes part. */
static bool key_of(key *out, const weft_instruction *instruction, const weft_job_spec *job, int32_t rank,
                   int32_t *size) {
    const bool sends = instruction->kind == WEFT_INSTRUCTION_SEND;
    const key nothing = {0};
    weft_members ranks;
    *out = nothing;
    out->what = instruction->what;
    out->of = instruction->unit >= 0 ? instruction->unit : instruction->segment;
    if (sends || instruction->kind == WEFT_INSTRUCTION_RECV) {
        out->kind = WEFT_INSTRUCTION_SEND;
        out->micro_batch = instruction->micro_batch;
        out->first = sends ? rank : instruction->peer;
        out->second = sends ? instruction->peer : rank;
        *size = 2;
        return true;
    }
    ranks = weft_job_spec_ranks(job, instruction, rank);
    out->kind = instruction->kind;
    out->scope = instruction->scope;
    out->first = ranks.first;
    out->second = ranks.stride;
    *size = ranks.count;
    return ranks.count > 1;
}

/* turns: how often the rank has met under each key. */
static void meet_program(weft_exchange_matches *self, table *known, table *turns, const weft_job_spec *job,
                         const weft_program *program, int32_t rank) {
    for (int32_t i = 0; i < program->n_instructions; i++) {
        int32_t size = 0;
        key k;
        entry *turn = NULL, *meeting = NULL;
        self->of[rank][i] = -1;
        if (!key_of(&k, &program->instructions[i], job, rank, &size)) continue;
        turn = find_entry(turns, &k);
        k.turn = ++turn->value;
        meeting = find_entry(known, &k);
        if (meeting->value < 0) {
            meeting->value = self->n++;
            self->size[meeting->value] = size;
        }
        self->of[rank][i] = meeting->value;
    }
}

static weft_status no_memory_for_meetings(int32_t world, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the exchanges of %d ranks", (int)world);
}

static weft_status meet_rank(weft_exchange_matches *self, table *known, const weft_job_spec *job,
                             const weft_program *program, int32_t rank, weft_error *err) {
    table turns = {0};
    weft_status status = WEFT_OK;
    self->of[rank] = malloc(((size_t)program->n_instructions + 1) * sizeof **self->of);
    if (self->of[rank] == NULL || !make_table(&turns, (size_t)program->n_instructions))
        status = no_memory_for_meetings(self->world, err);
    if (status == WEFT_OK) meet_program(self, known, &turns, job, program, rank);
    free(turns.entries);
    return status;
}

weft_status weft_exchange_matches_find(weft_exchange_matches *out, const weft_program *const *programs,
                                       const weft_job_spec *job, weft_error *err) {
    size_t instructions = 0;
    table known = {0};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->world = job->view.world;
    for (int32_t rank = 0; rank < out->world; rank++) instructions += (size_t)programs[rank]->n_instructions;
    out->of = calloc((size_t)out->world, sizeof *out->of);
    out->size = calloc(instructions + 1, sizeof *out->size);
    if (out->of == NULL || out->size == NULL || !make_table(&known, instructions))
        status = no_memory_for_meetings(out->world, err);
    for (int32_t rank = 0; rank < out->world && status == WEFT_OK; rank++)
        status = meet_rank(out, &known, job, programs[rank], rank, err);
    free(known.entries);
    return status;
}

void weft_exchange_matches_free(weft_exchange_matches *self) {
    for (int32_t rank = 0; self->of != NULL && rank < self->world; rank++) free(self->of[rank]);
    free(self->of);
    free(self->size);
    memset(self, 0, sizeof *self);
}
