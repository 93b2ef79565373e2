/* host/report/wrapping.c: see wrapping.h. */
#include "report/wrapping.h"

#include "base/units.h"

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

weft_status weft_wrapped_make(weft_wrapped *out, const weft_declared *declared, const weft_layout *layout,
                              weft_error *err) {
    const size_t n = (size_t)declared->n_modules;
    const weft_wrapped made = {.unit = calloc(n, sizeof *made.unit), .is_wrapped = calloc(n, sizeof *made.is_wrapped)};
    *out = made;
    if (made.unit == NULL || made.is_wrapped == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the report on %zu modules", n);
    for (size_t m = 0; m < n; m++) out->unit[m] = WEFT_WRAPPED_NONE;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        for (int32_t m = declared->parameters[p].module; m >= 0; m = declared->modules[m]->parent)
            merge(&out->unit[m], declared->parameters[p].unit);
    for (int32_t m = 0; m < declared->n_modules; m++) {
        out->is_wrapped[m] = is_wrapped(out, declared, layout, m);
        if (out->is_wrapped[m]) out->n_wrapped++;
    }
    return WEFT_OK;
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
