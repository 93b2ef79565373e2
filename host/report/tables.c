/* host/report/tables.c: see tables.h. */
#include "report/tables.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/job.h"
#include "report/all_rank_plan.h"
#include "run/session.h"

#include <stdlib.h>

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
                      percent(kept, all));
    (void)fputc('\n', to);
}

/* Prints the size of the omitted middle: of n lines only `ends` at both ends are printed. */
static void print_omitted(FILE *to, const char *noun, int32_t n, int32_t ends, const weft_plan *plan, int32_t rank) {
    (void)fprintf(to, "... and %d more %s: weft plan --ranks %d --print-sharding --rank %d shows all\n",
                  (int)(n - 2 * ends), noun, (int)plan->world, (int)rank);
}

void weft_sharding_print(const weft_plan *plan, const weft_hold *hold, int32_t rank, int32_t ends, FILE *to) {
    const weft_layout *layout = plan->layout;
    const weft_declared *declared = plan->declared;
    const int32_t n_units = layout->n_units, n_parameters = declared->n_parameters;
    bool sharded = false;
    int64_t all = 0, kept = 0;
    (void)fprintf(to, "parameters on rank %d\n", (int)rank);
    for (int32_t u = 0; u < n_units; u++) {
        sharded = sharded || is_sharded(plan, u);
        add_up(plan, hold, u, &all, &kept);
        if (ends == 0 || u < ends || u >= n_units - ends)
            print_line(to, is_sharded(plan, u), "Unit", layout->units[u].name, all, kept);
        else if (u == ends) print_omitted(to, "units", n_units, ends, plan, rank);
    }
    for (int32_t i = 0; i < n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (ends == 0 || i < ends || i >= n_parameters - ends)
            print_line(to, is_sharded(plan, p->unit), "Model Layer", p->name, p->numel, kept_of(hold, p));
        else if (i == ends) print_omitted(to, "parameters", n_parameters, ends, plan, rank);
    }
    add_up(plan, hold, -1, &all, &kept);
    print_line(to, sharded, "Model", declared->modules[0]->class_name, all, kept);
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
    (void)fprintf(to, "Mini-batch size: %d of the %d rows of a step: ", (int)(job->micro_batches * rows),
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
    if ((tables & WEFT_SHOWN_SHARDING) != 0) {
        weft_hold *hold = weft_all_rank_plan_hold(plan, plan->rank);
        weft_sharding_print(plan, hold, plan->rank, SHOWN_ENDS, to);
        weft_hold_destroy(hold);
    }
    if (status == WEFT_OK && (tables & WEFT_SHOWN_SAMPLES) != 0) status = print_samples(session, step, to, err);
    (void)fflush(to);
    return status;
}
