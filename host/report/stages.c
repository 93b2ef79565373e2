/* host/report/stages.c: see stages.h. */
#include "report/stages.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"

#include <stdlib.h>

/* A layer: a run of consecutive segments with equal names except for the last component: "layers.3" of
 * "layers.3.attn". A name without a dot is a layer by itself. */
typedef struct layer {
    const char *name;
    int n, stem;        /* letters of its name, and of the part before its number */
    int32_t number;     /* -1: none */
    int32_t begin, end; /* its segments */
    bool is_whole;      /* one rank runs all of them */
} layer;

static int layer_length(const char *segment) {
    const char *point = strrchr(segment, '.');
    return point == NULL ? (int)strlen(segment) : (int)(point - segment);
}

/* Returns the layer that contains segment s. */
static layer layer_at(const weft_strategy_job *job, int32_t s) {
    const weft_segment_view *segments = job->segments;
    const char *name = segments[s].name;
    layer out = {.name = name, .n = layer_length(name), .number = -1, .begin = s, .end = s + 1, .is_whole = true};
    const bool dotted = name[out.n] == '.';
    while (dotted && out.begin > 0 && layer_length(segments[out.begin - 1].name) == out.n &&
           strncmp(segments[out.begin - 1].name, name, (size_t)out.n + 1) == 0)
        out.begin--;
    while (dotted && out.end < job->n_segments && layer_length(segments[out.end].name) == out.n &&
           strncmp(segments[out.end].name, name, (size_t)out.n + 1) == 0)
        out.end++;
    for (int32_t t = out.begin; t < out.end; t++)
        if (segments[t].owner != segments[s].owner) out.is_whole = false;
    for (out.stem = out.n; out.stem > 0 && name[out.stem - 1] >= '0' && name[out.stem - 1] <= '9';) out.stem--;
    if (out.stem < out.n) out.number = (int32_t)strtol(name + out.stem, NULL, 10);
    return out;
}

/* Describes the segments from s on that belong together, and returns the following segment: layers of one rank with
 * consecutive numbers, or one segment of a divided layer. */
static int32_t describe_segments(const weft_strategy_job *job, int32_t s, char *text, size_t size) {
    const layer first = layer_at(job, s);
    layer last = first;
    if (first.begin != s || !first.is_whole) {
        (void)snprintf(text, size, "%s", first.name);
        return s + 1;
    }
    while (last.end < job->n_segments && last.number >= 0) {
        const layer next = layer_at(job, last.end);
        if (job->segments[next.begin].owner != job->segments[s].owner || !next.is_whole ||
            next.number != last.number + 1 || next.stem != first.stem ||
            strncmp(next.name, first.name, (size_t)first.stem) != 0)
            break;
        last = next;
    }
    if (last.begin == s) (void)snprintf(text, size, "%.*s", first.n, first.name);
    else (void)snprintf(text, size, "%.*s-%d", first.n, first.name, (int)last.number);
    return last.end;
}

/* ---- balance ---- */

static double imbalance_of(const double *totals, int32_t n, int32_t *largest) {
    double sum = 0.0;
    *largest = 0;
    for (int32_t r = 0; r < n; r++) {
        sum += totals[r];
        if (totals[r] > totals[*largest]) *largest = r;
    }
    return sum > 0.0 ? 100.0 * (totals[*largest] * n / sum - 1.0) : 0.0;
}

static double micro_batch_bytes(const weft_segment_view *view) {
    return (double)(view->tape_bytes + view->carry_bytes);
}

/* Returns the activation bytes of a rank per byte of one micro-batch's activations. */
static double micro_batches_of(const weft_stage_row *row) {
    return row->micro_batch > 0.0 ? (double)row->activations / row->micro_batch : 1.0;
}

/* Tries to move segments [begin, end) from their rank to another. */
static void try_move(weft_stages *self, const weft_strategy_job *job, int32_t begin, int32_t end, int32_t to,
                     double *totals) {
    const int32_t from = job->segments[begin].owner;
    const double before[2] = {totals[from], totals[to]};
    int32_t largest = 0;
    double then = 0.0;
    layer moved;
    if (self->rows[from].n == end - begin) return; /* the rank would have no segments */
    for (int32_t s = begin; s < end; s++) {
        const weft_segment_view *view = &job->segments[s];
        const double fixed = (double)(view->parameter_bytes + view->gradient_bytes + view->state_bytes);
        totals[from] -= fixed + micro_batches_of(&self->rows[from]) * micro_batch_bytes(view);
        totals[to] += fixed + micro_batches_of(&self->rows[to]) * micro_batch_bytes(view);
    }
    then = imbalance_of(totals, self->n, &largest);
    totals[from] = before[0];
    totals[to] = before[1];
    if (then >= self->imbalance_then) return;
    self->imbalance_then = then;
    self->from = from;
    self->to = to;
    moved = layer_at(job, begin);
    (void)snprintf(self->layer, sizeof self->layer, "%.*s",
                   end - begin == moved.end - moved.begin ? moved.n : (int)strlen(moved.name), moved.name);
}

/* Tries moves at each rank boundary: the layer on either side, as much of it as one rank has, and the segment. */
static void find_move(weft_stages *self, const weft_strategy_job *job, double *totals) {
    for (int32_t s = 1; s < job->n_segments; s++) {
        const int32_t below = job->segments[s - 1].owner, above = job->segments[s].owner;
        int32_t begin = s - 1, end = s + 1;
        if (below == above) continue;
        while (begin > layer_at(job, s - 1).begin && job->segments[begin - 1].owner == below) begin--;
        while (end < layer_at(job, s).end && job->segments[end].owner == above) end++;
        if (below == self->largest) {
            try_move(self, job, begin, s, above, totals);
            try_move(self, job, s - 1, s, above, totals);
        }
        if (above == self->largest) {
            try_move(self, job, s, end, below, totals);
            try_move(self, job, s, s + 1, below, totals);
        }
    }
}

/* ---- all stages ---- */

bool weft_stages_exist(const weft_plan *plan) {
    return plan->world > 1 && plan->train.job != NULL && plan->train.job->spec.view.segments[0].owner >= 0;
}

void weft_stages_make(weft_stages *out, const weft_plan *plan, const weft_all_rank_plan *all_rank_plan) {
    const weft_strategy_job *job = NULL;
    double *totals = NULL;
    memset(out, 0, sizeof *out);
    if (!weft_stages_exist(plan)) return;
    job = &plan->train.job->spec.view;
    out->n = all_rank_plan->world;
    out->rows = weft_alloc(out->n, sizeof *out->rows);
    totals = weft_alloc(out->n, sizeof *totals);
    for (int32_t rank = 0; rank < out->n; rank++) {
        out->rows[rank].total = all_rank_plan->ranks[rank].bytes.total;
        out->rows[rank].activations = all_rank_plan->ranks[rank].bytes.category[WEFT_MEMORY_ACTIVATIONS];
        totals[rank] = (double)out->rows[rank].total;
    }
    for (int32_t s = 0; s < job->n_segments; s++) {
        weft_stage_row *row = &out->rows[job->segments[s].owner];
        row->n++;
        row->micro_batch += micro_batch_bytes(&job->segments[s]);
    }
    for (int32_t s = 0; s < job->n_segments;) {
        char *segments = out->rows[job->segments[s].owner].segments, one[200];
        s = describe_segments(job, s, one, sizeof one);
        if (strlen(segments) + strlen(one) + 3 < sizeof out->rows->segments)
            weft_words_append(segments, sizeof out->rows->segments, "%s%s", *segments == '\0' ? "" : ", ", one);
    }
    out->imbalance = out->imbalance_then = imbalance_of(totals, out->n, &out->largest);
    find_move(out, job, totals);
    free(totals);
}

void weft_stages_free(weft_stages *self) {
    free(self->rows);
    memset(self, 0, sizeof *self);
}

void weft_stages_print(const weft_stages *self, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    if (self->n == 0) return;
    (void)fprintf(to, "stages            total  segments\n");
    for (int32_t rank = 0; rank < self->n; rank++)
        (void)fprintf(to, "  %9d %11s  %s\n", (int)rank, weft_unit_bytes(text, self->rows[rank].total),
                      self->rows[rank].segments);
    (void)fprintf(to, "  imbalance: rank %d takes %.1f %% more than the mean", (int)self->largest, self->imbalance);
    if (self->layer[0] != '\0')
        (void)fprintf(to, "; with %s on rank %d instead of %d it would be about %.1f %%", self->layer, (int)self->to,
                      (int)self->from, self->imbalance_then);
    else (void)fprintf(to, "; no layer on a neighbour instead makes it less");
    (void)fprintf(to, "\n");
}
