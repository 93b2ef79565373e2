/* host/program/split.c: see split.h. */
#include "program/split.h"

#include <stdlib.h>

enum { NAME = 512 };

enum { NOT, COPY, OWNER };

/* Who computes with which parameter. */
typedef struct users {
    const weft_plan *plan;
    const weft_mode_plan *mode_plan;
    int32_t world, n;
    uint8_t *by_rank; /* [n][world] how a rank uses it */
    int32_t *piece;   /* [n] */
    weft_layout_piece *pieces;
    int32_t n_pieces;
    bool changed; /* some unit has several pieces */
} users;

static int32_t owner_of(const users *self, int32_t s) {
    return self->mode_plan->job->spec.view.segments[s].owner;
}

static bool is_read_by(const users *self, int32_t s, int32_t parameter) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_set_reads(self->mode_plan->graphs, s, &n);
    for (int32_t i = 0; i < n; i++)
        if (reads[i].parameter == parameter) return true;
    return false;
}

/* From the last segment down, the parts of the ranks that have copies come before those of the owner, which adds to
 * them. */
static weft_status check_order(const users *self, int32_t parameter, weft_error *err) {
    const weft_parameter *p = &self->plan->declared->parameters[parameter];
    const weft_segment_view *segments = self->mode_plan->job->spec.view.segments;
    int32_t first = -1, last_other = -1;
    for (int32_t s = 0; s < self->mode_plan->graphs->n_segments; s++) {
        if (!is_read_by(self, s, parameter)) continue;
        if (first < 0) first = s;
        if (owner_of(self, s) != owner_of(self, first)) last_other = s;
        else if (last_other >= 0 && p->trainable)
            return weft_error_set(
                err, WEFT_E_USER,
                "the strategy gives the users of %s to rank %d (segment %s), rank %d (%s) and rank %d "
                "again (%s): let one rank have the last two",
                p->name, (int)owner_of(self, first), segments[first].name, (int)owner_of(self, last_other),
                segments[last_other].name, (int)owner_of(self, s), segments[s].name);
    }
    return WEFT_OK;
}

/* How each rank uses a parameter: a row of by_rank. */
static uint8_t *uses_of(const users *self, int32_t parameter) {
    return self->by_rank + (size_t)parameter * (size_t)self->world;
}

static weft_status find_users(users *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t p = 0; p < self->n && status == WEFT_OK; p++) {
        uint8_t use = OWNER;
        for (int32_t s = 0; s < self->mode_plan->graphs->n_segments; s++) {
            uint8_t *of = &uses_of(self, p)[owner_of(self, s)];
            if (!is_read_by(self, s, p)) continue;
            if (*of == NOT) *of = use;
            use = COPY;
        }
        status = check_order(self, p, err);
    }
    return status;
}

/* Of a unit that is cut: its name, the owner of the piece, and the ranks that have copies. */
static char *name_piece(const users *self, int32_t parameter) {
    const weft_parameter *p = &self->plan->declared->parameters[parameter];
    char text[NAME];
    size_t n = (size_t)snprintf(text, sizeof text, "%.400s", self->plan->layout->units[p->unit].name);
    for (int use = OWNER; use >= COPY; use--)
        for (int32_t rank = 0; rank < self->world && n + 16 < sizeof text; rank++)
            if (uses_of(self, parameter)[rank] == use)
                n += (size_t)snprintf(text + n, sizeof text - n, use == OWNER ? "/%d" : "+%d", (int)rank);
    return strdup(text);
}

/* Parameters of one unit that the same ranks use alike stay together. */
static void find_pieces(users *self) {
    const weft_parameter *parameters = self->plan->declared->parameters;
    for (int32_t p = 0; p < self->n; p++) {
        int32_t q = 0;
        bool seen = false;
        for (; q < p; q++) {
            const bool same = parameters[q].unit == parameters[p].unit;
            seen = seen || same;
            if (same && memcmp(uses_of(self, q), uses_of(self, p), (size_t)self->world) == 0) break;
        }
        if (q == p) self->changed = self->changed || seen;
        self->piece[p] = q < p ? self->piece[q] : self->n_pieces;
        if (q == p) self->pieces[self->n_pieces++].unit = parameters[p].unit;
    }
}

static bool is_unit_cut(const users *self, int32_t unit) {
    int32_t n = 0;
    for (int32_t i = 0; i < self->n_pieces; i++) n += self->pieces[i].unit == unit;
    return n > 1;
}

static weft_status name_pieces(users *self, weft_error *err) {
    for (int32_t p = 0; p < self->n; p++) {
        weft_layout_piece *piece = &self->pieces[self->piece[p]];
        if (piece->name != NULL) continue;
        piece->name = is_unit_cut(self, piece->unit) ? name_piece(self, p)
                                                     : strdup(self->plan->layout->units[piece->unit].name);
        if (piece->name == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the names of units");
    }
    return WEFT_OK;
}

static void free_users(users *self) {
    for (int32_t i = 0; i < self->n_pieces; i++) free((char *)(uintptr_t)self->pieces[i].name);
    free(self->by_rank);
    free(self->piece);
    free(self->pieces);
}

weft_status weft_split_units(bool *out, weft_plan *plan, const weft_mode_plan *mode_plan, weft_error *err) {
    users self = {.plan = plan, .mode_plan = mode_plan};
    weft_layout *layout = NULL;
    weft_status status = WEFT_OK;
    *out = false;
    if (mode_plan->job->spec.view.segments[0].owner < 0) return WEFT_OK;
    self.world = mode_plan->job->spec.view.world;
    self.n = plan->declared->n_parameters;
    self.by_rank = calloc((size_t)self.n * (size_t)self.world + 1, sizeof *self.by_rank);
    self.piece = calloc((size_t)self.n + 1, sizeof *self.piece);
    self.pieces = calloc((size_t)self.n + 1, sizeof *self.pieces);
    if (self.by_rank == NULL || self.piece == NULL || self.pieces == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the users of %d parameters", (int)self.n);
    if (status == WEFT_OK) status = find_users(&self, err);
    if (status == WEFT_OK) find_pieces(&self);
    if (status == WEFT_OK && self.changed) status = name_pieces(&self, err);
    if (status == WEFT_OK && self.changed)
        status = weft_layout_split(&layout, plan->layout, plan->declared, self.pieces, self.piece, err);
    if (layout != NULL) {
        weft_layout_destroy(plan->layout);
        plan->layout = layout;
        *out = true;
    }
    free_users(&self);
    return status;
}

weft_status weft_split_owners(int32_t **out, const weft_job *job, weft_error *err) {
    const int32_t n = job->spec.view.n_segments;
    *out = malloc(((size_t)n + 1) * sizeof **out);
    if (*out == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the owners of %d segments", (int)n);
    for (int32_t s = 0; s < n; s++) (*out)[s] = job->spec.view.segments[s].owner;
    return WEFT_OK;
}

weft_status weft_split_check(const weft_job *job, const int32_t *owners, weft_error *err) {
    const weft_strategy_job *view = &job->spec.view;
    for (int32_t s = 0; s < view->n_segments; s++)
        if (view->segments[s].owner != owners[s])
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin gave segment %s to rank %d, and to rank %d once units had been "
                                  "cut for that: where segments lie must not depend on units",
                                  view->segments[s].name, (int)owners[s], (int)view->segments[s].owner);
    return WEFT_OK;
}
