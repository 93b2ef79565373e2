/* host/program/slices.c: see slices.h. */
#include "program/slices.h"

#include <stdlib.h>

/* ---- one program ---- */

/* Walks a program's events and notes what is under way between them. */
typedef struct cutter {
    const weft_program *program;
    int32_t *first; /* [n_events + 2] cuts that were found */
    int32_t n;
    int32_t *last;     /* [leaves] the last event that works on a leaf; -1: none does */
    bool *begun;       /* [leaves] */
    int32_t under_way; /* events of other queues, gathered units, and leaves that are worked on further behind */
    bool has_leaf;     /* the slice at hand works on one */
    int32_t place;     /* where it may end; 0: nowhere yet */
} cutter;

/* The leaf whose length what an event does depends on; -1: it depends on none. */
static int32_t leaf_worked_on(const weft_event *event) {
    switch (event->kind) {
    case WEFT_EVENT_FORWARD:
    case WEFT_EVENT_RECOMPUTE:
    case WEFT_EVENT_BACKWARD:
    case WEFT_EVENT_SEND:
    case WEFT_EVENT_RECV: return event->leaf;
    default: return -1;
    }
}

static void begin_program(cutter *c, const weft_program *program) {
    c->program = program;
    c->n = 0;
    c->first[c->n++] = 0;
    c->under_way = c->place = 0;
    c->has_leaf = false;
    for (int32_t m = 0; m < program->leaves; m++) {
        c->last[m] = -1;
        c->begun[m] = false;
    }
    for (int32_t i = 0; i < program->n_events; i++) {
        const int32_t leaf = leaf_worked_on(&program->events[i]);
        if (leaf >= 0) c->last[leaf] = i;
    }
}

static void note_under_way(cutter *c, int32_t i) {
    const weft_event *event = &c->program->events[i];
    const int32_t leaf = leaf_worked_on(event);
    if (event->kind == WEFT_EVENT_WAIT) c->under_way--;
    else if (event->queue != 0) c->under_way++;
    if (event->kind == WEFT_EVENT_GATHER && event->what == WEFT_WHAT_PARAMETERS) c->under_way++;
    if (event->kind == WEFT_EVENT_RELEASE) c->under_way--;
    if (leaf < 0) return;
    c->has_leaf = true;
    if (!c->begun[leaf]) c->under_way++;
    c->begun[leaf] = true;
    if (c->last[leaf] == i) c->under_way--;
}

/* A slice ends as late as it may before the next leaf is begun. */
static void cut_program(cutter *c, const weft_program *program) {
    begin_program(c, program);
    for (int32_t i = 0; i < program->n_events; i++) {
        if (c->under_way == 0 && c->has_leaf) c->place = i;
        if (c->place > 0 && leaf_worked_on(&program->events[i]) >= 0) {
            c->first[c->n++] = c->place;
            c->place = 0;
            c->has_leaf = false;
        }
        note_under_way(c, i);
    }
    c->first[c->n] = program->n_events;
}

/* ---- those of all ranks ---- */

static bool same_but_leaf(const weft_event *a, const weft_event *b) {
    return a->kind == b->kind && a->unit == b->unit && a->segment == b->segment && a->queue == b->queue &&
           a->waits == b->waits && a->what == b->what && a->scope == b->scope && (a->leaf < 0) == (b->leaf < 0);
}

static bool are_alike(const weft_program *a, const weft_program *b) {
    if (a->n_events != b->n_events) return false;
    for (int32_t i = 0; i < a->n_events; i++)
        if (!same_but_leaf(&a->events[i], &b->events[i])) return false;
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

/* The leaves that a rank's program works on in [first, end). */
static int32_t list_leaves(cutter *c, const weft_program *program, int32_t first, int32_t end, int32_t *out) {
    int32_t n = 0;
    for (int32_t i = first; i < end; i++) {
        const int32_t leaf = leaf_worked_on(&program->events[i]);
        if (leaf < 0 || c->begun[leaf]) continue;
        c->begun[leaf] = true;
        out[n++] = leaf;
    }
    return n;
}

/* No two slices work on the same leaf: a rank's own do not, and ranks that share one send it to each other, which their
 * programs would differ in. */
static void list_all(cutter *c, weft_slices *out, const weft_program *const *programs, int32_t world) {
    const int32_t leaves = programs[0]->leaves;
    for (int32_t m = 0; m < leaves; m++) c->begun[m] = false;
    out->at[0] = 0;
    for (int32_t k = 0; k < out->n; k++) {
        out->at[k + 1] = out->at[k];
        for (int32_t rank = 0; rank < world && out->n > 1; rank++)
            out->at[k + 1] +=
                list_leaves(c, programs[rank], out->first[k], out->first[k + 1], &out->leaves[out->at[k + 1]]);
    }
    if (out->n > 1) return;
    for (int32_t m = 0; m < leaves; m++) out->leaves[m] = m;
    out->at[1] = leaves;
}

static void free_cutter(cutter *c) {
    free(c->first);
    free(c->last);
    free(c->begun);
}

static weft_status take_memory(weft_slices **out, cutter *c, const weft_program *program, weft_error *err) {
    const size_t events = (size_t)program->n_events + 2, leaves = (size_t)program->leaves + 1;
    weft_slices *self = calloc(1, sizeof *self);
    *out = self;
    c->first = calloc(events, sizeof *c->first);
    c->last = calloc(leaves, sizeof *c->last);
    c->begun = calloc(leaves, sizeof *c->begun);
    if (self != NULL) {
        self->first = calloc(leaves + 1, sizeof *self->first);
        self->at = calloc(leaves + 1, sizeof *self->at);
        self->leaves = calloc(leaves, sizeof *self->leaves);
    }
    if (self != NULL && self->first != NULL && self->at != NULL && self->leaves != NULL && c->first != NULL &&
        c->last != NULL && c->begun != NULL)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the slices of a program of %d events",
                          (int)program->n_events);
}

weft_status weft_slices_create(weft_slices **out, const weft_program *const *programs, int32_t world, int32_t rank,
                               bool cut, weft_error *err) {
    cutter c = {0};
    weft_slices *self = NULL;
    weft_status status = take_memory(&self, &c, programs[0], err);
    if (status == WEFT_OK) {
        self->n = 1;
        if (cut) cut_all(&c, self, programs, world);
        self->first[self->n] = programs[rank]->n_events; /* of one slice, every rank's own number */
        list_all(&c, self, programs, world);
        *out = self;
    } else weft_slices_destroy(self);
    free_cutter(&c);
    return status;
}

void weft_slices_destroy(weft_slices *slices) {
    if (slices == NULL) return;
    free(slices->first);
    free(slices->leaves);
    free(slices->at);
    free(slices);
}
