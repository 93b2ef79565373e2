/* host/program/timeline.c: see timeline.h. Time goes from one moment at which some rank ends something to the next. */
#include "program/timeline.h"

#include "program/exchange_matches.h"

#include <stdlib.h>

typedef enum phase {
    PHASE_OWN,    /* the instruction's own work */
    PHASE_WAIT,   /* for ranks that have not come */
    PHASE_TRAVEL, /* for the bytes */
    PHASE_AFTER,  /* work on what has come */
    PHASE_DONE
} phase;

typedef struct actor {
    int32_t at;   /* the instruction */
    int32_t ends; /* the exchange that it is ending, in WAIT, TRAVEL and AFTER */
    phase phase;
    double left;   /* of what the phase takes, from 1 down to 0 */
    weft_work now; /* what that is */
    double *began; /* [n_instructions] when the instruction started */
} actor;

typedef struct meeting {
    int32_t come;
    double from;  /* when its ranks have ended what they had under way before */
    double there; /* when the bytes are there, of a communicator that moves them itself; -1: not known yet */
} meeting;

typedef struct play {
    const weft_simulation_spec *spec;
    weft_rank_time *out;
    weft_exchange_matches meetings;
    meeting *states; /* [meetings.n] */
    actor *actors;   /* [world] */
    int32_t *latest; /* [world] the meeting that the rank came to last, -1: none */
    int32_t *busy;   /* [nodes] ranks at work */
    int32_t world, done;
    double now;
} play;

static const weft_instruction *instruction_of(const play *self, int32_t rank, int32_t i) {
    return &self->spec->programs[rank]->instructions[i];
}

static int32_t meeting_of(const play *self, int32_t rank, int32_t i) {
    return self->meetings.of[rank][i];
}

static bool is_working(const actor *a) {
    return a->phase != PHASE_DONE && a->phase != PHASE_WAIT;
}

/* Seconds of a phase as things are now. */
static double seconds_of(const play *self, int32_t rank) {
    const weft_simulation_spec *spec = self->spec;
    const actor *a = &self->actors[rank];
    const double busy = self->busy[rank / spec->ranks_per_node], room = spec->room;
    const double reach = spec->together < spec->room ? spec->together : room;
    const double crowd = spec->together > spec->room ? spec->together / room : 1.0;
    const double full = a->now.together / crowd;
    const double part = reach > 1.0 && busy < reach ? (busy - 1.0) / (reach - 1.0) : 1.0;
    if (a->phase == PHASE_TRAVEL) return a->now.alone;
    if (spec->together == 1) return a->now.alone * (busy > room ? busy / room : 1.0);
    return (a->now.alone + (full - a->now.alone) * part) * (busy > room ? busy / room : 1.0);
}

static void begin_phase(actor *a, phase what, weft_work work) {
    a->phase = what;
    a->left = 1.0;
    a->now = work;
}

static void begin_instruction(play *self, int32_t rank, int32_t i) {
    const weft_program *program = self->spec->programs[rank];
    const weft_work nothing = {0.0, 0.0};
    actor *a = &self->actors[rank];
    a->at = i;
    if (i < program->n_instructions) {
        a->began[i] = self->now;
        begin_phase(a, PHASE_OWN,
                    program->instructions[i].kind == WEFT_INSTRUCTION_WAIT ? nothing : self->spec->costs[rank][i].own);
        return;
    }
    a->phase = PHASE_DONE;
    self->done++;
}

/* The rank has started an exchange. One rank's exchanges travel one after the other. */
static void come_to_meeting(play *self, int32_t rank, int32_t index, double travel) {
    meeting *m = &self->states[index];
    const int32_t before = self->latest[rank];
    const double until = before >= 0 ? self->states[before].there : -1.0;
    if (until > m->from) m->from = until;
    if (self->now > m->from) m->from = self->now;
    self->latest[rank] = index;
    if (++m->come == self->meetings.size[index]) m->there = m->from + travel;
}

/* Who waits for this exchange waits no more. */
static bool has_come(const play *self, int32_t rank, int32_t i) {
    const int32_t index = meeting_of(self, rank, i);
    return index < 0 || self->states[index].come == self->meetings.size[index];
}

/* From here on the rank is held up by the bytes of the exchange that it ends. */
static void begin_communication(play *self, int32_t rank) {
    actor *a = &self->actors[rank];
    const int32_t index = meeting_of(self, rank, a->ends);
    weft_work travel = {0.0, 0.0};
    if (index >= 0) travel.alone = self->spec->costs[rank][a->ends].travel;
    if (index >= 0 && self->spec->own_progress) {
        travel.alone = self->states[index].there - self->now;
        if (travel.alone < 0.0) travel.alone = 0.0;
    }
    begin_phase(a, PHASE_TRAVEL, travel);
}

static void begin_end(play *self, int32_t rank, int32_t instruction) {
    self->actors[rank].ends = instruction;
    if (has_come(self, rank, instruction)) begin_communication(self, rank);
    else self->actors[rank].phase = PHASE_WAIT;
}

static void count_exchange(play *self, int32_t rank) {
    const actor *a = &self->actors[rank];
    const int32_t kind = weft_overlap_of(instruction_of(self, rank, a->ends));
    if (kind >= 0) self->out[rank].overlap.under_way[kind] += self->now - a->began[a->ends];
}

/* What the rank was at has ended. */
static void go_on(play *self, int32_t rank) {
    actor *a = &self->actors[rank];
    const weft_instruction *instruction = instruction_of(self, rank, a->at);
    const int32_t index = instruction->kind == WEFT_INSTRUCTION_WAIT ? -1 : meeting_of(self, rank, a->at);
    switch (a->phase) {
    case PHASE_OWN:
        if (index >= 0) come_to_meeting(self, rank, index, self->spec->costs[rank][a->at].travel);
        if (instruction->kind == WEFT_INSTRUCTION_WAIT) begin_end(self, rank, instruction->waits);
        else if (instruction->queue == 0) begin_end(self, rank, a->at);
        else begin_instruction(self, rank, a->at + 1);
        break;
    case PHASE_TRAVEL: begin_phase(a, PHASE_AFTER, self->spec->costs[rank][a->ends].after); break;
    case PHASE_AFTER:
        count_exchange(self, rank);
        begin_instruction(self, rank, a->at + 1);
        break;
    default: break;
    }
}

/* Those for whom a rank was waited for. */
static void wake_waiting(play *self) {
    for (int32_t rank = 0; rank < self->world; rank++)
        if (self->actors[rank].phase == PHASE_WAIT && has_come(self, rank, self->actors[rank].ends))
            begin_communication(self, rank);
}

/* dt seconds go by for a rank. */
static void spend_time(play *self, int32_t rank, double dt) {
    actor *a = &self->actors[rank];
    const weft_instruction *instruction = instruction_of(self, rank, a->phase == PHASE_OWN ? a->at : a->ends);
    const int32_t kind = weft_overlap_of(instruction);
    weft_rank_time *out = &self->out[rank];
    if (a->phase == PHASE_WAIT) out->idle += dt;
    else if (a->phase == PHASE_TRAVEL) out->exposed += dt;
    else out->compute += dt;
    if (kind >= 0) out->overlap.busy[kind] += dt;
}

/* The time until the first rank ends what it is at; -1: none is at anything. */
static double next_moment(play *self) {
    double dt = -1.0;
    memset(self->busy, 0, (size_t)self->world * sizeof *self->busy);
    for (int32_t rank = 0; rank < self->world; rank++)
        if (is_working(&self->actors[rank])) self->busy[rank / self->spec->ranks_per_node]++;
    for (int32_t rank = 0; rank < self->world; rank++) {
        const double left = self->actors[rank].left * (is_working(&self->actors[rank]) ? seconds_of(self, rank) : 0.0);
        if (is_working(&self->actors[rank]) && (dt < 0.0 || left < dt)) dt = left;
    }
    return dt;
}

/* Everybody works for dt seconds; who has nothing left goes on. */
static void pass_time(play *self, double dt) {
    enum { SAME_TIME = 1000000000 }; /* a billionth of a phase is nothing */
    for (int32_t rank = 0; rank < self->world; rank++) {
        actor *a = &self->actors[rank];
        const double whole = is_working(a) ? seconds_of(self, rank) : 0.0;
        if (a->phase == PHASE_DONE) self->out[rank].idle += dt;
        else if (dt > 0.0) spend_time(self, rank, dt);
        if (is_working(a)) a->left = whole > 0.0 ? a->left - dt / whole : 0.0;
    }
    self->now += dt;
    for (int32_t rank = 0; rank < self->world; rank++)
        if (is_working(&self->actors[rank]) && self->actors[rank].left * SAME_TIME <= 1.0) go_on(self, rank);
    wake_waiting(self);
}

static weft_status set_up(play *self, weft_error *err) {
    const size_t world = (size_t)self->world;
    weft_status status = weft_exchange_matches_find(&self->meetings, self->spec->programs, self->spec->job, err);
    if (status != WEFT_OK) return status;
    self->states = calloc((size_t)self->meetings.n + 1, sizeof *self->states);
    self->actors = calloc(world, sizeof *self->actors);
    self->latest = malloc(world * sizeof *self->latest);
    self->busy = calloc(world, sizeof *self->busy);
    if (self->states == NULL || self->actors == NULL || self->latest == NULL || self->busy == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to play the programs of %d ranks", (int)self->world);
    memset(self->latest, 0xFF, world * sizeof *self->latest);
    for (int32_t i = 0; i < self->meetings.n; i++) self->states[i].there = -1.0;
    for (int32_t rank = 0; rank < self->world; rank++) {
        const size_t instructions = (size_t)self->spec->programs[rank]->n_instructions;
        self->actors[rank].began = calloc(instructions + 1, sizeof(double));
        if (self->actors[rank].began == NULL)
            return weft_error_set(err, WEFT_E_MEMORY, "no memory to play %lld instructions", (long long)instructions);
        begin_instruction(self, rank, 0);
    }
    return WEFT_OK;
}

static void free_play(play *self) {
    for (int32_t rank = 0; self->actors != NULL && rank < self->world; rank++) free(self->actors[rank].began);
    free(self->states);
    free(self->actors);
    free(self->latest);
    free(self->busy);
    weft_exchange_matches_free(&self->meetings);
}

weft_status weft_programs_simulate(weft_rank_time *out, double *step_seconds, const weft_simulation_spec *spec,
                                   weft_error *err) {
    play self = {.spec = spec, .out = out, .world = spec->job->view.world};
    weft_status status = set_up(&self, err);
    memset(out, 0, (size_t)self.world * sizeof *out);
    while (status == WEFT_OK && self.done < self.world) {
        const double dt = next_moment(&self);
        if (dt >= 0.0) pass_time(&self, dt);
        else status = weft_error_set(err, WEFT_E_HOST, "the ranks' programs wait for one another: they are not proved");
    }
    if (status == WEFT_OK) *step_seconds = self.now;
    free_play(&self);
    return status;
}
