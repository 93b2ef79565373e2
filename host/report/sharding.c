/* host/report/sharding.c: prints the size of a rank's shard of each parameter; see all_rank_table.h. */
#include "program/terms.h"
#include "report/all_rank_table.h"

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
