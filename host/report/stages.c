/* host/report/stages.c: see stages.h. */
#include "report/stages.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"

#include <stdlib.h>

/* Returns the length of a layer's name. A layer is a run of consecutive segments with equal names except for the last
 * component: "layers.3" of "layers.3.attn". A name without a dot is a layer by itself. */
static int layer_length(const char *segment) {
    const char *point = strrchr(segment, '.');
    return point == NULL ? (int)strlen(segment) : (int)(point - segment);
}

static bool same_layer(const char *a, const char *b) {
    return layer_length(a) == layer_length(b) && strncmp(a, b, (size_t)layer_length(a)) == 0 &&
           strchr(a, '.') != NULL && strchr(b, '.') != NULL;
}

static const char *name_of(const weft_strategy_job *job, int32_t s) {
    return job->segments[s].name;
}

/* Returns the end of the layer that contains s. */
static int32_t layer_end(const weft_strategy_job *job, int32_t s) {
    int32_t end = s + 1;
    while (end < job->n_segments && same_layer(name_of(job, s), name_of(job, end))) end++;
    return end;
}

static int32_t layer_begin(const weft_strategy_job *job, int32_t s) {
    while (s > 0 && same_layer(name_of(job, s - 1), name_of(job, s))) s--;
    return s;
}

/* Returns true if one rank runs the complete layer that begins at s. */
static bool is_whole(const weft_strategy_job *job, int32_t s) {
    for (int32_t t = s; t < layer_end(job, s); t++)
        if (job->segments[t].owner != job->segments[s].owner) return false;
    return true;
}

/* Returns the number at the end of a layer's name; *stem: the length before it. -1: no number. */
static int32_t layer_number(const char *segment, int *stem) {
    const int n = layer_length(segment);
    *stem = n;
    while (*stem > 0 && segment[*stem - 1] >= '0' && segment[*stem - 1] <= '9') (*stem)--;
    return *stem == n ? -1 : (int32_t)strtol(segment + *stem, NULL, 10);
}

/* Returns the start of the last complete layer that continues the numbering from s on the same rank. */
static int32_t range_end(const weft_strategy_job *job, int32_t s) {
    int stem = 0, other = 0;
    const int32_t number = layer_number(name_of(job, s), &stem);
    int32_t last = s;
    for (int32_t t = layer_end(job, s), n = 1; t < job->n_segments && number >= 0; t = layer_end(job, t), n++) {
        if (job->segments[t].owner != job->segments[s].owner || !is_whole(job, t) ||
            layer_number(name_of(job, t), &other) != number + n || other != stem ||
            strncmp(name_of(job, s), name_of(job, t), (size_t)stem) != 0)
            break;
        last = t;
    }
    return last;
}

/* Describes the range that begins with segment s, and returns the following segment. */
static int32_t describe_segments(const weft_strategy_job *job, int32_t s, char *text, size_t size) {
    const bool begins = layer_begin(job, s) == s && is_whole(job, s);
    const int32_t last = begins ? range_end(job, s) : s;
    int stem = 0;
    const int32_t number = layer_number(name_of(job, last), &stem);
    if (!begins) {
        (void)snprintf(text, size, "%s", name_of(job, s));
        return s + 1;
    }
    if (last == s) (void)snprintf(text, size, "%.*s", layer_length(name_of(job, s)), name_of(job, s));
    else (void)snprintf(text, size, "%.*s-%d", layer_length(name_of(job, s)), name_of(job, s), (int)number);
    return layer_end(job, last);
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
    (void)snprintf(self->layer, sizeof self->layer, "%.*s",
                   end - begin == layer_end(job, begin) - layer_begin(job, begin) ? layer_length(name_of(job, begin))
                                                                                  : (int)strlen(name_of(job, begin)),
                   name_of(job, begin));
}

/* Tries moves at each rank boundary: the layer on either side, as much of it as one rank has, and the segment. */
static void find_move(weft_stages *self, const weft_strategy_job *job, double *totals) {
    for (int32_t s = 1; s < job->n_segments; s++) {
        const int32_t below = job->segments[s - 1].owner, above = job->segments[s].owner;
        int32_t begin = s - 1, end = s + 1;
        if (below == above) continue;
        while (begin > layer_begin(job, s - 1) && job->segments[begin - 1].owner == below) begin--;
        while (end < layer_end(job, s) && job->segments[end].owner == above) end++;
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
