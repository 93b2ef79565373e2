/* host/tools/plan/timeline.c: discrete-event simulation: time advances to the next moment at which a rank ends a
 * phase. */
#include "tools/plan/timeline.h"

#include "base/alloc.h"
#include "program/exchange.h"
#include "program/job.h"

#include <stdlib.h>

typedef enum phase {
    PHASE_OWN,    /* the instruction's own work */
    PHASE_WAIT,   /* waits for ranks that have not started the exchange */
    PHASE_TRAVEL, /* waits for the transfer */
    PHASE_AFTER,  /* work on the received data */
    PHASE_DONE
} phase;

typedef struct actor {
    int32_t at;   /* current instruction */
    int32_t ends; /* in WAIT, TRAVEL and AFTER: the instruction of the exchange that it ends */
    phase phase;
    double left;   /* remaining fraction of the phase, from 1 down to 0 */
    weft_work now; /* the phase's work */
    double *began; /* [n_instructions] start times */
} actor;

typedef struct exchange {
    int32_t started; /* ranks */
    double from;     /* time at which the earlier exchanges of its ranks have ended */
    double arrival;  /* arrival time with a communicator that makes progress by itself; -1: not known yet */
} exchange;

typedef struct play {
    const weft_simulation_spec *spec;
    weft_rank_time *out;
    weft_matches matches;
    exchange *exchanges; /* [matches.n] */
    actor *actors;       /* [world] */
    int32_t *latest;     /* [world] the rank's latest exchange, -1: none */
    int32_t *busy;       /* [nodes] ranks at work */
    int32_t world, done;
    double now;
} play;

static const weft_instruction *instruction_of(const play *self, int32_t rank, int32_t i) {
    return &self->spec->programs[rank]->instructions[i];
}

static bool is_working(const actor *a) {
    return a->phase != PHASE_DONE && a->phase != PHASE_WAIT;
}

/* Returns the seconds of the rank's complete phase at the current number of working ranks. */
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

/* Starts an exchange on this rank. The exchanges of one rank are transferred one after the other. */
static void start_exchange(play *self, int32_t rank, int32_t index, double travel) {
    exchange *m = &self->exchanges[index];
    const int32_t before = self->latest[rank];
    const double until = before >= 0 ? self->exchanges[before].arrival : -1.0;
    if (until > m->from) m->from = until;
    if (self->now > m->from) m->from = self->now;
    self->latest[rank] = index;
    if (++m->started == self->matches.size[index]) m->arrival = m->from + travel;
}

/* True if all ranks have started the exchange. */
static bool has_started(const play *self, int32_t rank, int32_t i) {
    const int32_t index = self->matches.of[rank][i];
    return index < 0 || self->exchanges[index].started == self->matches.size[index];
}

static void begin_communication(play *self, int32_t rank) {
    actor *a = &self->actors[rank];
    const int32_t index = self->matches.of[rank][a->ends];
    weft_work travel = {0.0, 0.0};
    if (index >= 0) travel.alone = self->spec->costs[rank][a->ends].travel;
    if (index >= 0 && self->spec->own_progress) {
        travel.alone = self->exchanges[index].arrival - self->now;
        if (travel.alone < 0.0) travel.alone = 0.0;
    }
    begin_phase(a, PHASE_TRAVEL, travel);
}

static void begin_end(play *self, int32_t rank, int32_t instruction) {
    self->actors[rank].ends = instruction;
    if (has_started(self, rank, instruction)) begin_communication(self, rank);
    else self->actors[rank].phase = PHASE_WAIT;
}

static void count_exchange(play *self, int32_t rank) {
    const actor *a = &self->actors[rank];
    const int32_t kind = weft_overlap_of(instruction_of(self, rank, a->ends));
    if (kind >= 0) self->out[rank].overlap.under_way[kind] += self->now - a->began[a->ends];
}

/* The rank's phase has ended: begins the next one. */
static void advance(play *self, int32_t rank) {
    actor *a = &self->actors[rank];
    const weft_instruction *instruction = instruction_of(self, rank, a->at);
    const int32_t index = instruction->kind == WEFT_INSTRUCTION_WAIT ? -1 : self->matches.of[rank][a->at];
    switch (a->phase) {
    case PHASE_OWN:
        if (index >= 0) start_exchange(self, rank, index, self->spec->costs[rank][a->at].travel);
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

static void wake_waiting(play *self) {
    for (int32_t rank = 0; rank < self->world; rank++)
        if (self->actors[rank].phase == PHASE_WAIT && has_started(self, rank, self->actors[rank].ends))
            begin_communication(self, rank);
}

/* Accounts dt seconds of a rank. */
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

/* Returns the time until the first rank ends its phase; -1: no rank is working. */
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

/* Advances all ranks by dt seconds. */
static void pass_time(play *self, double dt) {
    enum { SAME_TIME = 1000000000 }; /* a billionth of a phase counts as ended */
    for (int32_t rank = 0; rank < self->world; rank++) {
        actor *a = &self->actors[rank];
        const double whole = is_working(a) ? seconds_of(self, rank) : 0.0;
        if (a->phase == PHASE_DONE) self->out[rank].idle += dt;
        else if (dt > 0.0) spend_time(self, rank, dt);
        if (is_working(a)) a->left = whole > 0.0 ? a->left - dt / whole : 0.0;
    }
    self->now += dt;
    for (int32_t rank = 0; rank < self->world; rank++)
        if (is_working(&self->actors[rank]) && self->actors[rank].left * SAME_TIME <= 1.0) advance(self, rank);
    wake_waiting(self);
}

static void set_up(play *self) {
    self->matches = weft_matches_find(self->spec->programs, self->spec->job);
    self->exchanges = weft_alloc(self->matches.n, sizeof *self->exchanges);
    self->actors = weft_alloc(self->world, sizeof *self->actors);
    self->latest = weft_alloc(self->world, sizeof *self->latest);
    self->busy = weft_alloc(self->world, sizeof *self->busy);
    for (int32_t i = 0; i < self->matches.n; i++) self->exchanges[i].arrival = -1.0;
    for (int32_t rank = 0; rank < self->world; rank++) {
        self->latest[rank] = -1;
        self->actors[rank].began = weft_alloc(self->spec->programs[rank]->n_instructions, sizeof(double));
        begin_instruction(self, rank, 0);
    }
}

static void free_play(play *self) {
    for (int32_t rank = 0; rank < self->world; rank++) free(self->actors[rank].began);
    weft_matches_free(&self->matches);
    free(self->exchanges);
    free(self->actors);
    free(self->latest);
    free(self->busy);
}

weft_status weft_programs_simulate(weft_rank_time *out, double *step_seconds, const weft_simulation_spec *spec,
                                   weft_error *err) {
    play self = {.spec = spec, .out = out, .world = spec->job->view.world};
    weft_status status = WEFT_OK;
    set_up(&self);
    memset(out, 0, (size_t)self.world * sizeof *out);
    while (status == WEFT_OK && self.done < self.world) {
        const double dt = next_moment(&self);
        if (dt >= 0.0) pass_time(&self, dt);
        else
            status = weft_error_set(err, WEFT_E_HOST, "the ranks' programs wait for one another: they are not checked");
    }
    if (status == WEFT_OK) *step_seconds = self.now;
    free_play(&self);
    return status;
}
