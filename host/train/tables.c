/* host/train/tables.c: see tables.h. */
#include "train/tables.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "program/job.h"

#include <stdlib.h>

/* ---- wrapping ---- */

static bool is_wrapped(const weft_wrapped *self, int32_t m) {
    const weft_declared *declared = self->declared;
    const weft_layout *layout = self->layout;
    const weft_module *module = declared->modules[m];
    for (int32_t u = 0; u < layout->n_units; u++)
        if (!layout->units[u].is_root && strcmp(layout->units[u].name, module->path) == 0) return true;
    if (self->unit[m] < 0 || layout->units[self->unit[m]].is_root) return false;
    return weft_declared_module(declared, layout->units[self->unit[m]].name) < 0 &&
           (module->parent < 0 || self->unit[module->parent] != self->unit[m]);
}

weft_wrapped weft_wrapped_make(const weft_declared *declared, const weft_layout *layout) {
    const int32_t n = declared->n_modules;
    weft_wrapped out = {.declared = declared,
                        .layout = layout,
                        .unit = weft_alloc(n, sizeof *out.unit),
                        .is_wrapped = weft_alloc(n, sizeof *out.is_wrapped)};
    for (int32_t m = 0; m < n; m++) out.unit[m] = WEFT_WRAPPED_NONE;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        for (int32_t m = declared->parameters[p].module; m >= 0; m = declared->modules[m]->parent) {
            int32_t *unit = &out.unit[m], of = declared->parameters[p].unit;
            *unit = *unit == WEFT_WRAPPED_NONE || *unit == of ? of : WEFT_WRAPPED_SEVERAL;
        }
    for (int32_t m = 0; m < n; m++) {
        out.is_wrapped[m] = is_wrapped(&out, m);
        if (out.is_wrapped[m]) out.n_wrapped++;
    }
    out.percent = 100.0 * out.n_wrapped / n;
    return out;
}

void weft_wrapped_free(weft_wrapped *self) {
    free(self->unit);
    free(self->is_wrapped);
    memset(self, 0, sizeof *self);
}

void weft_wrapped_print_line(const weft_wrapped *self, const char *policy, int width, FILE *to) {
    const weft_declared *declared = self->declared;
    const weft_layout *layout = self->layout;
    const int64_t all = weft_declared_numel(declared, false);
    int64_t wrapped = 0; /* in units that the policy made */
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (!layout->units[declared->parameters[p].unit].is_root) wrapped += declared->parameters[p].numel;
    (void)fprintf(to, "%-*s%d of %d modules wrapped (%.2f %%) by policy %s, in %d unit%s", width, "wrapping",
                  (int)self->n_wrapped, (int)declared->n_modules, self->percent, policy, (int)layout->n_units,
                  layout->n_units == 1 ? "" : "s");
    (void)fprintf(to, "; %s of %s parameters (%.2f %%), the root unit has %s\n", weft_unit_count(a, wrapped),
                  weft_unit_count(b, all), 100.0 * (double)wrapped / (double)all, weft_unit_count(c, all - wrapped));
}

static const char *tag(const weft_wrapped *self, int32_t m) {
    const weft_declared *declared = self->declared;
    if (self->is_wrapped[m]) return "--fsdp_wrap_module:";
    if (declared->modules[m]->parent < 0) return "top_module:";
    for (int32_t child = m + 1; child < declared->n_modules; child++)
        if (declared->modules[child]->parent == m) return "module group:";
    return "--unwrap-module:";
}

static int title(char *out, size_t size, const weft_module *module) {
    return snprintf(out, size, "%s%s(%s)", module->path, module->path[0] == '\0' ? "" : " ", module->class_name);
}

void weft_wrapped_print(const weft_wrapped *self, FILE *to) {
    const weft_declared *declared = self->declared;
    char text[512];
    int width = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const int n = title(text, sizeof text, declared->modules[m]);
        if (n > width && n < (int)sizeof text) width = n;
    }
    for (int32_t m = 0; m < declared->n_modules; m++) {
        (void)title(text, sizeof text, declared->modules[m]);
        (void)fprintf(to, "%-19s %-*s  ", tag(self, m), width, text);
        if (self->unit[m] == WEFT_WRAPPED_NONE) (void)fprintf(to, "tied\n");
        else if (self->unit[m] == WEFT_WRAPPED_SEVERAL) (void)fprintf(to, "several units\n");
        else (void)fprintf(to, "unit %s\n", self->layout->units[self->unit[m]].name);
    }
    (void)fprintf(to, "Total modules: %d, FSDP wrapped modules: %.2f%%\n", (int)declared->n_modules, self->percent);
}

/* ---- shards ---- */

int64_t weft_sharding_kept(const weft_plan *plan, const weft_parameter *p) {
    int64_t begin = 0, end = 0, at = 0;
    return weft_hold_find(plan->holds[WEFT_HOLD_PARAMETERS], p, 0, p->numel, &begin, &end, &at) ? end - begin : 0;
}

int64_t weft_sharding_sum(int64_t *kept, const weft_plan *plan, int32_t unit) {
    int64_t all = 0;
    *kept = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (unit >= 0 && p->unit != unit) continue;
        all += p->numel;
        *kept += weft_sharding_kept(plan, p);
    }
    return all;
}

static bool is_sharded(const weft_plan *plan, int32_t unit) {
    const weft_job_spec *job = &plan->train.job->spec;
    return job->view.placements[unit].parameters == WEFT_SHARDED && weft_cut_of(job, unit).group > 1;
}

/* Prints a line. An unsharded parameter is complete on this rank if kept equals all. */
static void print_line(FILE *to, bool sharded, const char *kind, const char *name, int64_t all, int64_t kept) {
    (void)fprintf(to, "[%s Mode] %s: %s, Total Parameter Count: %lld", sharded ? "FSDP" : "Non-FSDP", kind, name,
                  (long long)all);
    if (sharded || kept != all)
        (void)fprintf(to, ", %sParameter Count on device: %lld (%.2f%%)", sharded ? "Sharded " : "", (long long)kept,
                      all > 0 ? 100.0 * (double)kept / (double)all : 0.0);
    (void)fputc('\n', to);
}

/* Returns whether line i of n is printed: only `ends` at both ends are. Prints the size of the omitted middle. */
static bool is_printed(FILE *to, const char *noun, int32_t i, int32_t n, int32_t ends, const weft_plan *plan) {
    if (i == ends && ends > 0 && i < n - ends)
        (void)fprintf(to, "... and %d more %s: weft plan --ranks %d --print-sharding --rank %d shows all\n",
                      (int)(n - 2 * ends), noun, (int)plan->world, (int)plan->rank);
    return ends == 0 || i < ends || i >= n - ends;
}

void weft_sharding_print(const weft_plan *plan, int32_t ends, FILE *to) {
    const weft_layout *layout = plan->layout;
    const weft_declared *declared = plan->declared;
    bool sharded = false;
    int64_t all = 0, kept = 0;
    (void)fprintf(to, "parameters on rank %d\n", (int)plan->rank);
    for (int32_t u = 0; u < layout->n_units; u++) {
        sharded = sharded || is_sharded(plan, u);
        all = weft_sharding_sum(&kept, plan, u);
        if (is_printed(to, "units", u, layout->n_units, ends, plan))
            print_line(to, is_sharded(plan, u), "Unit", layout->units[u].name, all, kept);
    }
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (is_printed(to, "parameters", i, declared->n_parameters, ends, plan))
            print_line(to, is_sharded(plan, p->unit), "Model Layer", p->name, p->numel, weft_sharding_kept(plan, p));
    }
    all = weft_sharding_sum(&kept, plan, -1);
    print_line(to, sharded, "Model", declared->modules[0]->class_name, all, kept);
}

/* ---- the sequences of each rank, and their first ids; see summary.h ---- */

enum { SHOWN_RANKS = 16, SHOWN_MICRO_BATCHES = 8, SHOWN_IDS = 64 };

/* Prints the ranks: those of one replica process the same sequences. */
static void print_who(const weft_engine *engine, int32_t rank, FILE *to) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    if (job->replicas > 1 || job->world == 1) (void)fprintf(to, "rank %d: ", (int)rank);
    else (void)fprintf(to, "all ranks: ");
}

/* Prints the sequences of a rank; those of a micro-batch are consecutive. */
static void print_rank_batch(const weft_engine *engine, int32_t rank, FILE *to) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    const int32_t rows = engine->plan.spec.rows;
    int32_t shown = 0;
    print_who(engine, rank, to);
    (void)fprintf(to, "Mini-batch size: %d of the %d sequences of a step: ", (int)(job->micro_batches * rows),
                  (int)(job->micro_batches * rows * job->replicas));
    for (int32_t m = 0; m < engine->plan.train.program->micro_batches && shown <= SHOWN_MICRO_BATCHES; m++) {
        if (engine->plan.train.losses[m].rank != rank) continue;
        if (shown > 0) (void)fprintf(to, ", ");
        if (shown++ == SHOWN_MICRO_BATCHES) (void)fprintf(to, "...");
        else if (rows == 1) (void)fprintf(to, "%d", (int)m);
        else (void)fprintf(to, "%d-%d", (int)(m * rows), (int)((m + 1) * rows - 1));
    }
    (void)fputc('\n', to);
}

/* Returns the end of the printed ranks: each prints itself, and rank 0 as many as fit. */
static int32_t end_printed(const weft_engine *engine) {
    const int32_t world = engine->plan.train.job->spec.view.world;
    if (engine->ranks.rank > 0) return engine->ranks.rank + 1;
    return world < SHOWN_RANKS ? world : SHOWN_RANKS;
}

static void print_rest(const weft_engine *engine, FILE *to) {
    const int32_t left = engine->plan.train.job->spec.view.world - SHOWN_RANKS;
    if (engine->ranks.rank == 0 && left > 0) (void)fprintf(to, "  and so on for %d more\n", (int)left);
}

void weft_batches_print(const weft_session *session, FILE *to) {
    const weft_engine *engine = session->engine;
    if (engine->plan.train.job->spec.view.replicas == 1) return;
    for (int32_t rank = engine->ranks.rank; rank < end_printed(engine); rank++) {
        (void)fputs("  ", to);
        print_rank_batch(engine, rank, to);
    }
    print_rest(engine, to);
}

static weft_status print_sample(const weft_session *session, int64_t step, int32_t rank, FILE *to, weft_error *err) {
    const weft_engine *engine = session->engine;
    const int32_t n = engine->plan.train.program->micro_batches;
    int32_t first = 0; /* the first micro-batch that the rank runs to the end; n: another rank of its replica does */
    weft_micro_batch sample;
    weft_status status = WEFT_OK;
    while (first < n && engine->plan.train.losses[first].rank != rank) first++;
    if (first == n) return WEFT_OK;
    status = weft_session_row(&sample, session, WEFT_SPLIT_TRAIN,
                              ((uint64_t)(step - 1) * (uint64_t)n + (uint64_t)first) * (uint64_t)engine->plan.spec.rows,
                              err);
    if (status != WEFT_OK) return status;
    (void)fprintf(to, "Step %lld: ", (long long)step);
    print_who(engine, rank, to);
    (void)fprintf(to, "1st data in mini-batch: [");
    for (int32_t i = 0; i < sample.length && i < SHOWN_IDS; i++)
        (void)fprintf(to, "%s%d", i == 0 ? "" : ", ", (int)sample.ids[i]);
    if (sample.length > SHOWN_IDS) (void)fprintf(to, ", ...] of %d ids\n", (int)sample.length);
    else (void)fprintf(to, "]\n");
    free(sample.ids);
    return WEFT_OK;
}

/* Prints the sequences of one step, with the ids of each rank's first one; also with one replica. */
static weft_status print_samples(const weft_session *session, int64_t step, FILE *to, weft_error *err) {
    const weft_engine *engine = session->engine;
    const bool together = engine->plan.train.job->spec.view.replicas == 1;
    int32_t rank = together ? engine->plan.train.losses[0].rank : engine->ranks.rank;
    const int32_t end = together ? rank + 1 : end_printed(engine);
    weft_status status = WEFT_OK;
    for (; rank < end && status == WEFT_OK; rank++) {
        (void)fprintf(to, "Step %lld: ", (long long)step);
        print_rank_batch(engine, rank, to);
        status = print_sample(session, step, rank, to, err);
    }
    if (!together) print_rest(engine, to);
    return status;
}

enum { SHOWN_ENDS = 15 };

weft_status weft_tables_print(const weft_session *session, uint32_t tables, int64_t step, FILE *to, weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    weft_status status = WEFT_OK;
    if ((tables & WEFT_SHOWN_WRAPPING) != 0) {
        weft_wrapped wrapped = weft_wrapped_make(plan->declared, plan->layout);
        weft_wrapped_print(&wrapped, to);
        weft_wrapped_free(&wrapped);
    }
    if ((tables & WEFT_SHOWN_SHARDING) != 0) weft_sharding_print(plan, SHOWN_ENDS, to);
    if (status == WEFT_OK && (tables & WEFT_SHOWN_SAMPLES) != 0) status = print_samples(session, step, to, err);
    (void)fflush(to);
    return status;
}

/* ---- stages ---- */

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
        out->rows[rank].total = all_rank_plan->bytes[rank].total;
        out->rows[rank].activations = all_rank_plan->bytes[rank].category[WEFT_MEMORY_ACTIVATIONS];
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
