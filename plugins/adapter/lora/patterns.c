/* plugins/adapter/lora/patterns.c: see patterns.h. */
#include "patterns.h"

#include "../common/expression.h"
#include "../common/targets.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_RANK = 65536 }; /* limit of the key r */

static const struct {
    const char *key, *one, *allowed, *example;
} sorts[] = {{"rank_pattern", "rank", "an integer from 1 to 65536", "q_proj:16"},
             {"alpha_pattern", "alpha", "a number above 0", "q_proj:32"}};

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
}

static int is_allowed(pattern_sort sort, double value) {
    if (!isfinite(value) || value <= 0) return 0;
    return sort == PATTERN_ALPHA || (value >= 1 && value <= MOST_RANK && floor(value) == value);
}

/* Copies the module name. */
static weft_status add_entry(patterns *self, const char *module, double value, weft_error *err) {
    pattern *longer = realloc(self->entries, (self->n + 1) * sizeof *longer);
    char *copy = strdup(module);
    if (longer != NULL) self->entries = longer;
    if (longer == NULL || copy == NULL) {
        free(copy);
        return no_memory(err);
    }
    self->entries[self->n++] = (pattern){copy, value};
    return WEFT_OK;
}

void patterns_free(patterns *self) {
    for (size_t i = 0; i < self->n; i++) free(self->entries[i].module);
    free(self->entries);
    self->entries = NULL;
    self->n = 0;
}

/* ---- entries of a key ---- */

static weft_status refuse_value(const patterns *self, const char *item, const char *value, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER, "%s has '%s' with the %s '%s'. Allowed: %s", sorts[self->sort].key, item,
                          sorts[self->sort].one, value, sorts[self->sort].allowed);
}

static weft_status refuse_item(const patterns *self, const char *item, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "%s has '%s', which is no module and its %s: an entry is a name or pattern as targets has "
                          "them, a colon and %s, as %s",
                          sorts[self->sort].key, item, sorts[self->sort].one, sorts[self->sort].allowed,
                          sorts[self->sort].example);
}

static weft_status refuse_twice(const patterns *self, const char *module, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER, "%s has '%s' more than once. Allowed: one %s per module",
                          sorts[self->sort].key, module, sorts[self->sort].one);
}

static weft_status take_item(patterns *self, const char *item, weft_error *err) {
    const char *colon = strrchr(item, ':'), *text = colon == NULL ? "" : colon + 1 + strspn(colon + 1, " ");
    char module[512], *end = NULL;
    double value;
    int length = colon == NULL ? 0 : (int)(colon - item);
    while (length > 0 && item[length - 1] == ' ') length--;
    if (length == 0 || length >= (int)sizeof module) return refuse_item(self, item, err);
    (void)snprintf(module, sizeof module, "%.*s", length, item);
    value = strtod(text, &end);
    if (*text == 0 || *end != 0 || strspn(text, "0123456789.eE+-") != strlen(text) || !is_allowed(self->sort, value))
        return refuse_value(self, item, text, err);
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->entries[i].module, module) == 0) return refuse_twice(self, module, err);
    return add_entry(self, module, value, err);
}

weft_status patterns_of_key(patterns *self, pattern_sort sort, const char *text, weft_error *err) {
    weft_status status = WEFT_OK;
    self->sort = sort;
    if (strcmp(text, "auto") == 0 || strcmp(text, "none") == 0) return WEFT_OK;
    while (status == WEFT_OK && *text != 0) {
        const size_t n = strcspn(text, ",");
        char item[560];
        (void)snprintf(item, sizeof item, "%.*s", (int)n, text);
        status = take_item(self, item, err);
        text += n + (text[n] == ',');
    }
    return status;
}

/* ---- entries of a file ---- */

weft_status patterns_of_file(patterns *self, pattern_sort sort, json_t *object, const char *source, weft_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    weft_status status = WEFT_OK;
    self->sort = sort;
    self->source = source;
    if (object == NULL || json_is_null(object)) return WEFT_OK;
    if (!json_is_object(object))
        return weft_error_set(err, WEFT_E_DATA, "%s: %s is no object of modules, each with its %s", source,
                              sorts[sort].key, sorts[sort].one);
    json_object_foreach(object, key, value) {
        const double number = json_number_value(value);
        if (status != WEFT_OK) break;
        if (!json_is_number(value) || (sort == PATTERN_RANK && !json_is_integer(value)) || !is_allowed(sort, number))
            return weft_error_set(err, WEFT_E_DATA, "%s: %s sets '%s' to an invalid %s. Allowed: %s", source,
                                  sorts[sort].key, key, sorts[sort].one, sorts[sort].allowed);
        status = add_entry(self, key, number, err);
    }
    return status;
}

/* ---- matching ---- */

static weft_status refuse_expression(const patterns *self, const char *module, const char *why, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA, "%s: %s '%s' %s", self->source, sorts[self->sort].key, module, why);
}

/* other: the path of a module without an adapter that the entry matches; NULL: it matches no module. */
static weft_status refuse_unmet(const patterns *self, const pattern *entry, const weft_adapter_job *job,
                                const uint8_t *chosen, const char *other, weft_error *err) {
    targets_known known;
    targets_know(&known, job, 0, chosen, entry->module);
    if (self->source != NULL && other != NULL)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: %s has '%s', which matches modules without an adapter only, as %s. Adapted are %s. "
                              "Fix: correct or remove the entry, or add the module to target_modules",
                              self->source, sorts[self->sort].key, entry->module, other, known.all);
    if (self->source != NULL)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: %s has '%s', which matches no module of this model that can be adapted; the nearest "
                              "is %s. Adapted are %s. Fix: correct or remove the entry",
                              self->source, sorts[self->sort].key, entry->module, known.nearest, known.all);
    return weft_error_set(err, WEFT_E_USER,
                          "%s has '%s', which is no adapted module; the nearest is %s. Adapted are %s. Allowed: names "
                          "and patterns in which * matches any text",
                          sorts[self->sort].key, entry->module, known.nearest, known.all);
}

static weft_status refuse_unused(const patterns *self, const pattern *entry, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "%s has '%s', and each module that it matches has its %s by an earlier entry, because the "
                          "first match counts. Fix: put it before that entry, or remove it",
                          sorts[self->sort].key, entry->module, sorts[self->sort].one);
}

/* Assigns one entry's value to matching sites without a value. compiled: the expression of a file's entry. */
static weft_status give_one(const patterns *self, const pattern *entry, const expression *compiled,
                            const weft_adapter_job *job, const uint8_t *chosen, uint8_t *given, double *values,
                            weft_error *err) {
    const int of_file = self->source != NULL;
    const char *other = NULL;
    int met = 0, used = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        int found = 0;
        if (site->path == NULL || (!chosen[i] && !of_file)) continue;
        found = compiled != NULL ? expression_fits(compiled, site->path) : targets_mean(entry->module, site);
        if (found < 0)
            return refuse_expression(self, entry->module, "needs too many steps to be compared with a path", err);
        if (found && !chosen[i]) other = site->path;
        if (!found || !chosen[i]) continue;
        met = 1;
        if (given[i]) continue;
        given[i] = 1;
        values[i] = entry->value;
        used = 1;
    }
    if (!met) return refuse_unmet(self, entry, job, chosen, other, err);
    return used || of_file ? WEFT_OK : refuse_unused(self, entry, err);
}

static weft_status give_entry(const patterns *self, const pattern *entry, const weft_adapter_job *job,
                              const uint8_t *chosen, uint8_t *given, double *values, weft_error *err) {
    expression_fault why;
    expression *compiled = NULL;
    weft_status status = WEFT_OK;
    if (self->source != NULL) compiled = expression_open(entry->module, EXPRESSION_END, true, &why);
    if (self->source != NULL && compiled == NULL) return refuse_expression(self, entry->module, why.text, err);
    status = give_one(self, entry, compiled, job, chosen, given, values, err);
    expression_close(compiled);
    return status;
}

weft_status patterns_give(const patterns *self, const weft_adapter_job *job, const uint8_t *chosen, double *values,
                          weft_error *err) {
    uint8_t *given = calloc((size_t)job->n_sites + 1, sizeof *given);
    weft_status status = given == NULL ? no_memory(err) : WEFT_OK;
    for (size_t i = 0; i < self->n && status == WEFT_OK; i++)
        status = give_entry(self, &self->entries[i], job, chosen, given, values, err);
    free(given);
    return status;
}

/* ---- writing in PEFT's format ---- */

/* True if all chosen sites with the site's name have the same value. */
static int is_of_name(const weft_adapter_job *job, const uint8_t *chosen, const double *values, uint32_t i) {
    const char *name = targets_last_name(weft_adapter_site(job, i)->path);
    for (uint32_t k = 0; k < job->n_sites; k++)
        if (chosen[k] && values[k] != values[i] &&
            strcmp(targets_last_name(weft_adapter_site(job, k)->path), name) == 0)
            return 0;
    return 1;
}

json_t *patterns_write(pattern_sort sort, const weft_adapter_job *job, const uint8_t *chosen, const double *values,
                       double common) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const char *path = weft_adapter_site(job, i)->path;
        if (!chosen[i] || values[i] == common) continue;
        if (is_of_name(job, chosen, values, i)) path = targets_last_name(path);
        (void)json_object_set_new(object, path,
                                  sort == PATTERN_RANK ? json_integer((json_int_t)values[i]) : json_real(values[i]));
    }
    return object;
}
