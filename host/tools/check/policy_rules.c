/* host/tools/check/policy_rules.c: what a wrap policy has to keep to. */
#include "tools/check/rule.h"

#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "tools/check/trees.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* What a policy has said of a tree. */
struct weft_wrap_ctx {
    char names[WEFT_TREE_PARAMETERS][2 * WEFT_TREE_NAME]; /* of units, as they were made */
    int32_t n_units, unit_of[WEFT_TREE_PARAMETERS];
    bool claimed[WEFT_TREE_PARAMETERS];
    const weft_policy_job *job;
    char wrong[1024]; /* the first mistake */
};

typedef struct weft_wrap_ctx answer;

static void keep_mistake(answer *a, const char *format, ...) WEFT_PRINTF(2, 3);
static void keep_mistake(answer *a, const char *format, ...) {
    va_list args;
    if (a->wrong[0] != '\0') return;
    va_start(args, format);
    (void)vsnprintf(a->wrong, sizeof a->wrong, format, args);
    va_end(args);
}

static int32_t take_unit(answer *a, const char *name) {
    if (name == NULL || name[0] == '\0' || strcmp(name, "root") == 0)
        keep_mistake(a, "it makes a unit called '%s'", name == NULL ? "(nothing)" : name);
    else if (a->n_units == WEFT_TREE_PARAMETERS) keep_mistake(a, "it makes more units than there are parameters");
    if (a->wrong[0] != '\0') return 0;
    for (int32_t u = 0; u < a->n_units; u++)
        if (strcmp(a->names[u], name) == 0) keep_mistake(a, "it makes two units with the name %s", name);
    (void)snprintf(a->names[a->n_units], sizeof a->names[0], "%s", name);
    return a->n_units++;
}

static void put(answer *a, int32_t unit, uint32_t parameter) {
    a->claimed[parameter] = true;
    a->unit_of[parameter] = unit;
}

static bool is_unit(answer *a, int32_t unit) {
    if (unit == WEFT_UNIT_ROOT || (unit >= 0 && unit < a->n_units)) return true;
    keep_mistake(a, "it claims for unit %d of %d", unit, a->n_units);
    return false;
}

static void take_claim(answer *a, int32_t unit, int32_t parameter) {
    if (!is_unit(a, unit)) return;
    if (parameter < 0 || (uint32_t)parameter >= a->job->n_parameters)
        keep_mistake(a, "it claims parameter %d of %u", parameter, a->job->n_parameters);
    else if (a->claimed[parameter])
        keep_mistake(a, "it claims %s twice", weft_policy_parameter(a->job, (uint32_t)parameter)->name);
    else put(a, unit, (uint32_t)parameter);
}

static bool is_below(const weft_policy_job *job, int32_t module, int32_t ancestor) {
    while (module > ancestor) module = weft_policy_module(job, (uint32_t)module)->parent; /* parents stand first */
    return module == ancestor;
}

static void take_rest(answer *a, int32_t unit, int32_t module) {
    if (!is_unit(a, unit)) return;
    if (module != WEFT_ALL_MODULES && (module < 0 || (uint32_t)module >= a->job->n_modules)) {
        keep_mistake(a, "it claims module %d of %u", module, a->job->n_modules);
        return;
    }
    for (uint32_t i = 0; i < a->job->n_parameters; i++)
        if (!a->claimed[i] &&
            (module == WEFT_ALL_MODULES || is_below(a->job, weft_policy_parameter(a->job, i)->module, module)))
            put(a, unit, i);
}

static weft_status ask(answer *out, const weft_plugin_under_test *tested, const weft_policy_job *job, uint8_t poison,
                       weft_error *err) {
    const weft_wrap wrap = {(uint32_t)sizeof wrap, 0, out, take_unit, take_claim, take_rest};
    weft_status status = WEFT_OK;
    out->n_units = 0;
    out->wrong[0] = '\0';
    memset(out->unit_of, 0, sizeof out->unit_of);
    memset(out->claimed, 0, sizeof out->claimed);
    out->job = job;
    WEFT_PLUGIN_CALL(status, weft_plugin_under_test_table(tested, policy), units, err,
                     weft_plugin_under_test_host(poison), tested->config, job, &wrap);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "units fails without a sentence");
    return status;
}

static weft_status judge(const answer *a, uint32_t number, weft_error *err) {
    if (a->wrong[0] != '\0') return WEFT_BROKEN(err, "on tree %u %s", number, a->wrong);
    for (uint32_t i = 0; i < a->job->n_parameters; i++)
        if (!a->claimed[i])
            return WEFT_BROKEN(
                err,
                "on tree %u it leaves out %s: claim_rest for WEFT_UNIT_ROOT, at its end, takes what is for "
                "no unit",
                number, weft_policy_parameter(a->job, i)->name);
    return WEFT_OK;
}

static bool is_same(const answer *a, const answer *b) {
    if (a->n_units != b->n_units || memcmp(a->unit_of, b->unit_of, sizeof a->unit_of) != 0) return false;
    for (int32_t u = 0; u < a->n_units; u++)
        if (strcmp(a->names[u], b->names[u]) != 0) return false;
    return true;
}

/* Room for a tree, for it once more at other addresses, and for two answers. */
typedef struct desk {
    weft_tree tree, other;
    answer one, two;
} desk;

typedef weft_status (*on_tree)(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err);

enum { ONE_TREE_IN = 2 }; /* has to be taken */

/* A tree that a policy refuses, with a sentence, is passed over. */
static weft_status each_tree(weft_plugin_under_test *tested, on_tree holds, weft_error *err) {
    desk *d = malloc(sizeof *d);
    weft_tried tried = {0};
    weft_status status = WEFT_OK;
    if (d == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for trees");
    for (uint32_t number = 0; number < WEFT_TREES && status == WEFT_OK; number++) {
        weft_tree_draw(&d->tree, number, false);
        weft_plugin_under_test_asks("tree %u of %u modules", number, d->tree.job.n_modules);
        status = holds(d, tested, number, err);
        tried.tried += status == WEFT_OK;
        if (status != WEFT_E_USER && status != WEFT_E_UNSUPPORTED) continue; /* these two are refusals */
        weft_tried_refused(&tried, weft_plugin_under_test_asked(), err);
        err->text[0] = '\0';
        status = WEFT_OK;
    }
    free(d);
    return status == WEFT_OK ? weft_tried_judge(&tried, tested, "trees", ONE_TREE_IN, err) : status;
}

static weft_status claims_once(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err) {
    const weft_status status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, err);
    return status == WEFT_OK ? judge(&d->one, number, err) : status;
}

static weft_status answers_alike(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err) {
    weft_status status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, err);
    weft_tree_draw(&d->other, number, true);
    if (status == WEFT_OK) status = ask(&d->two, tested, &d->other.job, WEFT_POISON_TWO, err);
    if (status == WEFT_OK && !is_same(&d->one, &d->two))
        return WEFT_BROKEN(err, "on tree %u it makes %d units, and when it is asked again %d, or others", number,
                           d->one.n_units, d->two.n_units);
    return status;
}

/* ---- beside one with other keys ---- */

static weft_status ask_keyed(weft_answer *to, void *made, weft_error *err) {
    const weft_keyed *self = made;
    desk *d = malloc(sizeof *d);
    weft_status status = d != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for trees");
    for (uint32_t i = 0; i < WEFT_TREES && status == WEFT_OK; i++) {
        const uint32_t number = weft_keyed_at(self, i, WEFT_TREES);
        weft_answer one;
        weft_answer_begin(&one);
        weft_tree_draw(&d->tree, number, false);
        status = ask(&d->one, self->tested, &d->tree.job, WEFT_POISON_ONE, err);
        WEFT_ANSWER_ADD(&one, status);
        if (status == WEFT_OK) weft_answer_add(&one, d->one.unit_of, sizeof d->one.unit_of);
        for (int32_t u = 0; status == WEFT_OK && u < d->one.n_units; u++) weft_answer_add_text(&one, d->one.names[u]);
        weft_keyed_add(to, number, &one);
        if (status == WEFT_E_USER || status == WEFT_E_UNSUPPORTED) status = WEFT_OK; /* no tree of this policy */
    }
    free(d);
    return status;
}

static weft_status heeds_its_keys(weft_plugin_under_test *tested, weft_error *err) {
    const weft_answers answers = {sizeof(weft_keyed), weft_keyed_open, weft_keyed_close, ask_keyed};
    return weft_other_keys(tested, &answers, err);
}

/* ---- lists of names ---- */

#define NOBODY "no_such_module_of_any_model"

enum { LISTED_TREES = 6 }; /* some of those with blocks */

/* One tree after another, until one is refused. */
static weft_status must_refuse(const weft_plugin_under_test *tested, const char *key, weft_error *err) {
    desk *d = malloc(sizeof *d);
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (d == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for trees");
    for (uint32_t number = 2; number < LISTED_TREES && status == WEFT_OK; number++) {
        weft_tree_draw(&d->tree, number, false);
        status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, &said);
    }
    free(d);
    if (status == WEFT_OK)
        return WEFT_BROKEN(err,
                           "with %s = %s it makes units as if the name were not there: a name that nothing in the "
                           "model has is refused, with those that there are",
                           key, NOBODY);
    if (strstr(said.text, NOBODY) == NULL)
        return WEFT_BROKEN(err, "with %s = %s it refuses by a sentence that does not name it: %s", key, NOBODY,
                           said.text);
    return WEFT_OK;
}

/* A value that the keys themselves do not take is refused already. */
static weft_status heeds_list(const weft_plugin_under_test *tested, const char *key, weft_error *err) {
    weft_plugin_under_test_other other = {0};
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = weft_plugin_under_test_open_word(&other, tested, key, NOBODY, &said);
    weft_plugin_under_test_asks("%s = %s", key, NOBODY);
    if (status == WEFT_OK) status = must_refuse(&other.tested, key, err);
    else if (status == WEFT_E_MEMORY) (void)weft_error_set(err, status, "%s", said.text);
    else status = WEFT_OK;
    weft_plugin_under_test_close_other(&other);
    return status;
}

/* Of each key that is a list of names, and of no files. */
static weft_status rule_lists(weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin *plugin = tested->loaded->plugin;
    weft_status status = WEFT_OK;
    for (uint64_t i = 0; i < plugin->n_keys && status == WEFT_OK; i++) {
        const char *at = (const char *)plugin->keys + i * plugin->key_stride;
        const weft_key *key = (const weft_key *)(const void *)at;
        if (key->type == WEFT_KEY_LIST && (key->flags & (WEFT_REMOVED | WEFT_PATHS)) == 0)
            status = heeds_list(tested, key->name, err);
    }
    return status;
}

static weft_status answers_later(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err) {
    const weft_plugin_under_test *later = weft_newer_abi(tested);
    weft_status status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, err);
    if (status != WEFT_OK) return status;
    if (later == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a tree");
    status = ask(&d->two, later, &d->tree.job, WEFT_POISON_ONE, err);
    status = weft_newer_abi_check(status, status == WEFT_OK && is_same(&d->one, &d->two), "units", err);
    return status == WEFT_OK ? status : weft_error_prefix(err, "on tree %u ", number);
}

static weft_status gives_back_memory(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err) {
    const weft_status status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && weft_plugin_under_test_pieces() != 0)
        return WEFT_BROKEN(err, "on tree %u it keeps %lld pieces of memory of host->alloc", number,
                           (long long)weft_plugin_under_test_pieces());
    return status;
}

static weft_status rule_claims(weft_plugin_under_test *tested, weft_error *err) {
    return each_tree(tested, claims_once, err);
}

static weft_status rule_alike(weft_plugin_under_test *tested, weft_error *err) {
    const weft_status status = heeds_its_keys(tested, err);
    return status == WEFT_OK ? each_tree(tested, answers_alike, err) : status;
}

static weft_status rule_later(weft_plugin_under_test *tested, weft_error *err) {
    return each_tree(tested, answers_later, err);
}

static weft_status come_and_go(weft_plugin_under_test *tested, weft_error *err) {
    return each_tree(tested, gives_back_memory, err);
}

static weft_status rule_memory(weft_plugin_under_test *tested, weft_error *err) {
    return weft_plugin_under_test_gives_back(tested, come_and_go, err);
}

const weft_rule weft_rules_policy[] = {
    {"R40", "policy", "claims each parameter of a tree once", rule_claims, false},
    {"R41", "policy", "makes the same units whenever it is asked", rule_alike, false},
    {"R42", "policy", "makes the same units in a host whose structs are longer", rule_later, false},
    {"R43", "policy", "gives its memory back", rule_memory, false},
    {"R44", "policy", "refuses a name in a list that nothing in the model has", rule_lists, false},
    {NULL, NULL, NULL, NULL, false}};
