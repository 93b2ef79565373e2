/* host/report/sharding.c: how much of each parameter a rank keeps; see survey.h. */
#include "report/survey.h"
#include "report/units.h"

static int64_t kept_of(const weft_hold *hold, const weft_parameter *p) {
    int64_t begin = 0, end = 0, at = 0;
    return weft_hold_find(hold, p, 0, p->numel, &begin, &end, &at) ? end - begin : 0;
}

static double percent(int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Parameters of a unit: all of them, and what is kept. */
static void add_up(const weft_engine *engine, const weft_hold *hold, int32_t unit, int64_t *all, int64_t *kept) {
    *all = *kept = 0;
    for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        if (unit >= 0 && p->unit != unit) continue;
        *all += p->numel;
        *kept += kept_of(hold, p);
    }
}

static void print_line(FILE *to, const char *indent, const char *name, int64_t all, int64_t kept) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "  %s%-*s %16s %16s %8.2f %%\n", indent, (int)(50 - strlen(indent)), name,
                  weft_unit_count(a, all), weft_unit_count(b, kept), percent(kept, all));
}

void weft_sharding_print(const weft_engine *engine, const weft_hold *hold, int32_t rank, FILE *to) {
    int64_t all = 0, kept = 0;
    (void)fprintf(to, "parameters on rank %d\n  %-50s %16s %16s %10s\n", (int)rank, "unit, parameter", "elements",
                  "kept here", "share");
    for (int32_t u = 0; u < engine->layout->n_units; u++) {
        add_up(engine, hold, u, &all, &kept);
        print_line(to, "", engine->layout->units[u].name, all, kept);
        for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
            const weft_parameter *p = &engine->declared->parameters[i];
            if (p->unit == u) print_line(to, "  ", p->name, p->numel, kept_of(hold, p));
        }
    }
    add_up(engine, hold, -1, &all, &kept);
    print_line(to, "", "all", all, kept);
}

static json_t *share_object(const char *name, int64_t all, int64_t kept) {
    return json_pack("{s:s, s:I, s:I, s:f}", "name", name, "elements", (json_int_t)all, "kept", (json_int_t)kept,
                     "percent", percent(kept, all));
}

json_t *weft_sharding_object(const weft_engine *engine, const weft_hold *hold, int32_t rank) {
    json_t *units = json_array(), *parameters = json_array();
    int64_t all = 0, kept = 0;
    for (int32_t u = 0; u < engine->layout->n_units; u++) {
        add_up(engine, hold, u, &all, &kept);
        (void)json_array_append_new(units, share_object(engine->layout->units[u].name, all, kept));
    }
    for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        (void)json_array_append_new(parameters, share_object(p->name, p->numel, kept_of(hold, p)));
    }
    return json_pack("{s:i, s:o, s:o}", "rank", (int)rank, "units", units, "parameters", parameters);
}
