/* class: each module of the named classes is a unit; the other parameters are in the root unit.
 *
 * A name is a class of the model, or else a case-insensitive part of one: `layer` matches LlamaDecoderLayer. If chosen
 * modules are nested, the inner unit has its parameters and the outer unit the rest. */
#include "../../common/distance.h"

#include <strings.h>
#include <weft/policy.h>

#define CLASS_KEYS(K)                                                                                                  \
    K(LIST, classes, NULL, "", "", WEFT_SAME,                                                                          \
      "Classes whose modules are units: names such as LlamaDecoderLayer, or a substring such as layer.")
WEFT_KEYS(class_config, CLASS_KEYS)

/* ---- names ---- */

/* Copies the next name of "a,b,c" and returns the rest of the list; NULL at the end. */
static const char *next_name(const char *list, char name[NAME_SIZE]) {
    const size_t n = strcspn(list, ",");
    if (n == 0) return NULL;
    (void)snprintf(name, NAME_SIZE, "%.*s", (int)n, list);
    return list + n + (list[n] == ',');
}

static int is_class(const weft_policy_job *job, const char *name) {
    uint32_t i;
    for (i = 0; i < job->n_modules; i++)
        if (strcmp(weft_policy_module(job, i)->class_name, name) == 0) return 1;
    return 0;
}

static int holds(const char *text, const char *part) {
    const size_t n = strlen(part);
    for (; *text != 0; text++)
        if (strncasecmp(text, part, n) == 0) return 1;
    return 0;
}

static int fits(const weft_policy_job *job, const char *name, const weft_module_view *module) {
    return is_class(job, name) ? strcmp(module->class_name, name) == 0 : holds(module->class_name, name);
}

/* ---- names without a match ---- */

static int seen_before(const weft_policy_job *job, uint32_t i) {
    uint32_t before;
    for (before = 0; before < i; before++)
        if (strcmp(weft_policy_module(job, before)->class_name, weft_policy_module(job, i)->class_name) == 0) return 1;
    return 0;
}

static weft_status refuse(const weft_policy_job *job, const char *name, weft_error *err) {
    const char *nearest = "";
    size_t best = (size_t)-1, used = 0;
    char all[1024] = "";
    uint32_t i;
    for (i = 0; i < job->n_modules; i++) {
        const char *other = weft_policy_module(job, i)->class_name;
        const size_t d = name_distance(name, other);
        if (d < best) nearest = other;
        if (d < best) best = d;
        if (seen_before(job, i) || used >= sizeof all) continue;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used > 0 ? ", " : "", other);
    }
    return weft_error_set(
        err, WEFT_E_USER,
        "[policy] classes has '%s', which matches no class of this model. The nearest is %s; the classes are: %s.",
        name, nearest, all);
}

/* ---- units ---- */

static int chosen(const weft_policy_job *job, const char *classes, const weft_module_view *module) {
    char name[NAME_SIZE];
    while ((classes = next_name(classes, name)) != NULL)
        if (fits(job, name, module)) return 1;
    return 0;
}

static weft_status check(const weft_policy_job *job, const char *classes, weft_error *err) {
    char name[NAME_SIZE];
    if (classes[0] == 0)
        return weft_error_set(err, WEFT_E_USER, "[policy] classes is empty. Fix: add a class, or set plugin = whole.");
    while ((classes = next_name(classes, name)) != NULL) {
        uint32_t i = 0;
        while (i < job->n_modules && !fits(job, name, weft_policy_module(job, i))) i++;
        if (i == job->n_modules) return refuse(job, name, err);
    }
    return WEFT_OK;
}

static weft_status class_units(const weft_host *host, const void *config, const weft_policy_job *job,
                               const weft_wrap *wrap, weft_error *err) {
    const char *classes = ((const class_config *)config)->classes;
    const weft_status status = check(job, classes, err);
    uint32_t i;
    (void)host;
    if (status != WEFT_OK) return status;
    for (i = job->n_modules; i-- > 0;) { /* inner modules before outer ones */
        const weft_module_view *module = weft_policy_module(job, i);
        if (module->path[0] != 0 && chosen(job, classes, module))
            wrap->claim_rest(wrap->ctx, wrap->unit(wrap->ctx, module->path), (int32_t)i);
    }
    wrap->claim_rest(wrap->ctx, WEFT_UNIT_ROOT, WEFT_ALL_MODULES);
    return WEFT_OK;
}

static const weft_policy_plugin class_table = {(uint32_t)sizeof(weft_policy_plugin), 0, class_units};

WEFT_PLUGIN(policy, 1, "class", "0.1.0", "One unit per module of the named classes.", class_config, NULL, class_table)
