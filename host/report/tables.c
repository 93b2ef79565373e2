/* host/report/tables.c: see tables.h. */
#include "report/tables.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/terms.h"
#include "report/all_rank_plan.h"
#include "report/world_line.h"
#include "run/session.h"

#include <stdlib.h>

static void merge(int32_t *unit, int32_t other) {
    if (*unit == WEFT_WRAPPED_NONE) *unit = other;
    else if (*unit != other) *unit = WEFT_WRAPPED_SEVERAL;
}

static bool is_wrapped(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout, int32_t m) {
    const weft_module *module = declared->modules[m];
    for (int32_t u = 0; u < layout->n_units; u++)
        if (!layout->units[u].is_root && strcmp(layout->units[u].name, module->path) == 0) return true;
    if (self->unit[m] < 0 || layout->units[self->unit[m]].is_root) return false;
    return weft_declared_module(declared, layout->units[self->unit[m]].name) < 0 &&
           (module->parent < 0 || self->unit[module->parent] != self->unit[m]);
}

weft_wrapped weft_wrapped_make(const weft_declared *declared, const weft_layout *layout) {
    const int32_t n = declared->n_modules;
    weft_wrapped out = {.unit = weft_alloc(n, sizeof *out.unit), .is_wrapped = weft_alloc(n, sizeof *out.is_wrapped)};
    for (int32_t m = 0; m < n; m++) out.unit[m] = WEFT_WRAPPED_NONE;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        for (int32_t m = declared->parameters[p].module; m >= 0; m = declared->modules[m]->parent)
            merge(&out.unit[m], declared->parameters[p].unit);
    for (int32_t m = 0; m < n; m++) {
        out.is_wrapped[m] = is_wrapped(&out, declared, layout, m);
        if (out.is_wrapped[m]) out.n_wrapped++;
    }
    return out;
}

void weft_wrapped_free(weft_wrapped *self) {
    free(self->unit);
    free(self->is_wrapped);
    memset(self, 0, sizeof *self);
}

double weft_wrapped_percent(const weft_wrapped *self, const weft_declared *declared) {
    return 100.0 * self->n_wrapped / declared->n_modules;
}

/* ---- print ---- */

/* Returns the elements of parameters in units that a policy made. */
static int64_t elements_wrapped(const weft_declared *declared, const weft_layout *layout) {
    int64_t sum = 0;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (!layout->units[declared->parameters[p].unit].is_root) sum += declared->parameters[p].numel;
    return sum;
}

void weft_wrapped_print_line(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout,
                             const char *policy, int width, FILE *to) {
    const int64_t all = weft_declared_numel(declared, false), wrapped = elements_wrapped(declared, layout);
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    (void)fprintf(to, "%-*s%d of %d modules wrapped (%.2f %%) by policy %s, in %d unit%s", width, "wrapping",
                  (int)self->n_wrapped, (int)declared->n_modules, weft_wrapped_percent(self, declared), policy,
                  (int)layout->n_units, layout->n_units == 1 ? "" : "s");
    (void)fprintf(to, "; %s of %s parameters (%.2f %%), the root unit has %s\n", weft_unit_count(a, wrapped),
                  weft_unit_count(b, all), 100.0 * (double)wrapped / (double)all, weft_unit_count(c, all - wrapped));
}

static const char *tag(const weft_wrapped *self, const weft_declared *declared, int32_t m) {
    if (self->is_wrapped[m]) return "--fsdp_wrap_module:";
    if (declared->modules[m]->parent < 0) return "top_module:";
    for (int32_t child = m + 1; child < declared->n_modules; child++)
        if (declared->modules[child]->parent == m) return "module group:";
    return "--unwrap-module:";
}

static int title(char *out, size_t size, const weft_module *module) {
    return snprintf(out, size, "%s%s(%s)", module->path, module->path[0] == '\0' ? "" : " ", module->class_name);
}

void weft_wrapped_print(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout, FILE *to) {
    char text[512];
    int width = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const int n = title(text, sizeof text, declared->modules[m]);
        if (n > width && n < (int)sizeof text) width = n;
    }
    for (int32_t m = 0; m < declared->n_modules; m++) {
        (void)title(text, sizeof text, declared->modules[m]);
        (void)fprintf(to, "%-19s %-*s  ", tag(self, declared, m), width, text);
        if (self->unit[m] == WEFT_WRAPPED_NONE) (void)fprintf(to, "tied\n");
        else if (self->unit[m] == WEFT_WRAPPED_SEVERAL) (void)fprintf(to, "several units\n");
        else (void)fprintf(to, "unit %s\n", layout->units[self->unit[m]].name);
    }
    (void)fprintf(to, "Total modules: %d, FSDP wrapped modules: %.2f%%\n", (int)declared->n_modules,
                  weft_wrapped_percent(self, declared));
}

/* ---- shards ---- */

static int64_t kept_of(const weft_hold *hold, const weft_parameter *p) {
    int64_t begin = 0, end = 0, at = 0;
    return weft_hold_find(hold, p, 0, p->numel, &begin, &end, &at) ? end - begin : 0;
}

static double percent(int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Sums the parameters of a unit: all of them, and the rank's shards. */
static void add_up(const weft_plan *plan, const weft_hold *hold, int32_t unit, int64_t *all, int64_t *kept) {
    *all = *kept = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (unit >= 0 && p->unit != unit) continue;
        *all += p->numel;
        *kept += kept_of(hold, p);
    }
}

/* ---- print ---- */

static bool is_sharded(const weft_plan *plan, int32_t unit) {
    const weft_job_spec *job = &plan->train.job->spec;
    return job->view.placements[unit].parameters == WEFT_SHARDED && weft_cut_of(job, unit).group > 1;
}

static bool any_sharded(const weft_plan *plan) {
    for (int32_t u = 0; u < plan->layout->n_units; u++)
        if (is_sharded(plan, u)) return true;
    return false;
}

/* Prints a line. An unsharded parameter is complete on this rank if kept equals all. */
static void print_line(FILE *to, bool sharded, const char *kind, const char *name, int64_t all, int64_t kept) {
    (void)fprintf(to, "[%s Mode] %s: %s, Total Parameter Count: %lld", sharded ? "FSDP" : "Non-FSDP", kind, name,
                  (long long)all);
    if (sharded || kept != all)
        (void)fprintf(to, ", %sParameter Count on device: %lld (%.2f%%)", sharded ? "Sharded " : "", (long long)kept,
                      percent(kept, all));
    (void)fputc('\n', to);
}

/* Output settings: the plan, the rank, and the stream. */
typedef struct listing {
    const weft_plan *plan;
    const weft_hold *hold;
    int32_t rank, ends;
    FILE *to;
} listing;

/* Returns whether line i of n is in the omitted middle; the first of them prints an ellipsis. */
static bool is_left_out(const listing *self, const char *noun, int32_t i, int32_t n) {
    if (self->ends == 0 || i < self->ends || i >= n - self->ends) return false;
    if (i == self->ends)
        (void)fprintf(self->to, "... and %d more %s: weft plan --ranks %d --print-sharding --rank %d shows all\n",
                      (int)(n - 2 * self->ends), noun, (int)self->plan->world, (int)self->rank);
    return true;
}

static void print_units(const listing *self) {
    const weft_layout *layout = self->plan->layout;
    int64_t all = 0, kept = 0;
    for (int32_t u = 0; u < layout->n_units; u++) {
        if (is_left_out(self, "units", u, layout->n_units)) continue;
        add_up(self->plan, self->hold, u, &all, &kept);
        print_line(self->to, is_sharded(self->plan, u), "Unit", layout->units[u].name, all, kept);
    }
}

static void print_parameters(const listing *self) {
    const weft_declared *declared = self->plan->declared;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (is_left_out(self, "parameters", i, declared->n_parameters)) continue;
        print_line(self->to, is_sharded(self->plan, p->unit), "Model Layer", p->name, p->numel, kept_of(self->hold, p));
    }
}

void weft_sharding_print(const weft_plan *plan, const weft_hold *hold, int32_t rank, int32_t ends, FILE *to) {
    const listing list = {plan, hold, rank, ends, to};
    int64_t all = 0, kept = 0;
    (void)fprintf(to, "parameters on rank %d\n", (int)rank);
    print_units(&list);
    print_parameters(&list);
    add_up(plan, hold, -1, &all, &kept);
    print_line(to, any_sharded(plan), "Model", plan->declared->modules[0]->class_name, all, kept);
}

/* ---- the object ---- */

static json_t *share_object(const char *name, int64_t all, int64_t kept) {
    return json_pack("{s:s, s:I, s:I, s:f}", "name", name, "elements", (json_int_t)all, "kept", (json_int_t)kept,
                     "percent", percent(kept, all));
}

json_t *weft_sharding_object(const weft_plan *plan, const weft_hold *hold, int32_t rank) {
    json_t *units = json_array(), *parameters = json_array();
    int64_t all = 0, kept = 0;
    for (int32_t u = 0; u < plan->layout->n_units; u++) {
        add_up(plan, hold, u, &all, &kept);
        (void)json_array_append_new(units, share_object(plan->layout->units[u].name, all, kept));
    }
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        (void)json_array_append_new(parameters, share_object(p->name, p->numel, kept_of(hold, p)));
    }
    return json_pack("{s:i, s:o, s:o}", "rank", (int)rank, "units", units, "parameters", parameters);
}

/* ---- the sequences of each rank, and their first ids; see world_line.h ---- */

enum { SHOWN_RANKS = 16, SHOWN_MICRO_BATCHES = 8, SHOWN_IDS = 64 };

/* Prints the sequences of a rank; those of a micro-batch are consecutive. */
static void print_batch_rows(const weft_engine *engine, int32_t rank, FILE *to) {
    const int32_t rows = engine->plan.spec.rows;
    const char *separator = "";
    int32_t shown = 0;
    for (int32_t micro_batch = 0; micro_batch < engine->plan.train.program->micro_batches; micro_batch++) {
        if (engine->plan.train.losses[micro_batch].rank != rank) continue;
        if (shown++ == SHOWN_MICRO_BATCHES) {
            (void)fprintf(to, ", ...");
            break;
        }
        if (rows == 1) (void)fprintf(to, "%s%d", separator, (int)micro_batch);
        else (void)fprintf(to, "%s%d-%d", separator, (int)(micro_batch * rows), (int)((micro_batch + 1) * rows - 1));
        separator = ", ";
    }
}

/* Returns the first micro-batch that a rank runs to the end; -1: another rank of its replica does. */
static int32_t first_micro_batch(const weft_engine *engine, int32_t rank) {
    for (int32_t micro_batch = 0; micro_batch < engine->plan.train.program->micro_batches; micro_batch++)
        if (engine->plan.train.losses[micro_batch].rank == rank) return micro_batch;
    return -1;
}

/* Prints the ranks: those of one replica process the same sequences. */
static void print_who(const weft_engine *engine, int32_t rank, FILE *to) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    if (job->replicas > 1 || job->world == 1) (void)fprintf(to, "rank %d: ", (int)rank);
    else (void)fprintf(to, "all ranks: ");
}

static void print_rank_batch(const weft_engine *engine, int32_t rank, FILE *to) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    print_who(engine, rank, to);
    (void)fprintf(to,
                  "Mini-batch size: %d of the %d rows of a step: ", (int)(job->micro_batches * engine->plan.spec.rows),
                  (int)(job->micro_batches * engine->plan.spec.rows * job->replicas));
    print_batch_rows(engine, rank, to);
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
    const int32_t micro_batch = first_micro_batch(engine, rank);
    const uint64_t micro_batches = (uint64_t)engine->plan.train.program->micro_batches;
    const uint64_t row = ((uint64_t)(step - 1) * micro_batches + (uint64_t)micro_batch) *
                         (uint64_t)engine->plan.spec.rows;
    weft_micro_batch sample;
    weft_status status = WEFT_OK;
    if (micro_batch < 0) return WEFT_OK;
    status = weft_session_row(&sample, session, WEFT_SPLIT_TRAIN, row, err);
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

weft_status weft_samples_print(const weft_session *session, int64_t step, FILE *to, weft_error *err) {
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
        weft_wrapped_print(&wrapped, plan->declared, plan->layout, to);
        weft_wrapped_free(&wrapped);
    }
    if ((tables & WEFT_SHOWN_SHARDING) != 0) {
        weft_hold *hold = weft_all_rank_plan_hold(plan, plan->rank);
        weft_sharding_print(plan, hold, plan->rank, SHOWN_ENDS, to);
        weft_hold_destroy(hold);
    }
    if ((tables & WEFT_SHOWN_SAMPLES) != 0) status = weft_samples_print(session, step, to, err);
    (void)fflush(to);
    return status;
}
