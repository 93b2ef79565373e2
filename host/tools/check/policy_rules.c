/* host/tools/check/policy_rules.c: rules for wrap policies. */
#include "plugin/enter.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "tools/check/rule.h"

#include <stdbool.h>
#include <stdlib.h>
#include <weft/policy.h>
#include <weft/random.h>

/* module trees with parameters, generated from a number, as wrap policies receive them. */

enum { WEFT_TREE_MODULES = 8100, WEFT_TREE_PARAMETERS = 4100, WEFT_TREE_NAME = 512, WEFT_TREES = 27 };

typedef struct weft_tree {
    weft_policy_job job; /* points into this struct, so a tree must not be copied */
    weft_module_view modules[WEFT_TREE_MODULES];
    weft_parameter_view parameters[WEFT_TREE_PARAMETERS];
    char module_paths[WEFT_TREE_MODULES][WEFT_TREE_NAME], parameter_names[WEFT_TREE_PARAMETERS][WEFT_TREE_NAME];
    char class_names[WEFT_TREE_MODULES][32];
} weft_tree;

typedef struct pen {
    weft_tree *tree;
    uint64_t drawn; /* count of drawn numbers so far */
    uint32_t number;
    bool downwards;
} pen;

enum { DRAWN = 24, MANY = 24, LONG = 25, ELSEWHERE = 26 }; /* tree numbers; those below DRAWN are random */

static int64_t draw(pen *p, int64_t below) {
    return (int64_t)(weft_random(p->number, WEFT_RANDOM_SAMPLE, 0, p->drawn++).v[0] % (uint32_t)below);
}

static int32_t add_module(pen *p, int32_t parent, const char *name, const char *class_name, int32_t is_block) {
    weft_tree *tree = p->tree;
    const int32_t index = (int32_t)tree->job.n_modules++;
    weft_module_view *view = &tree->modules[index];
    const int32_t row = p->downwards ? WEFT_TREE_MODULES - 1 - index : index;
    char *path = tree->module_paths[row];
    const char *above = parent >= 0 ? tree->modules[parent].path : "";
    (void)snprintf(path, WEFT_TREE_NAME, "%.440s%s%s", above, above[0] == '\0' ? "" : ".", name);
    (void)snprintf(tree->class_names[row], sizeof tree->class_names[0], "%s", class_name);
    memset(view, 0, sizeof *view);
    view->struct_size = (uint32_t)sizeof *view;
    view->path = path;
    view->name = path + strlen(path) - strlen(name);
    view->class_name = tree->class_names[row];
    view->parent = parent;
    view->is_block = is_block;
    return index;
}

static void add_parameter(pen *p, int32_t module, int64_t numel) {
    weft_tree *tree = p->tree;
    const uint32_t index = tree->job.n_parameters++;
    weft_parameter_view *view = &tree->parameters[index];
    const uint32_t row = p->downwards ? WEFT_TREE_PARAMETERS - 1 - index : index;
    (void)snprintf(tree->parameter_names[row], WEFT_TREE_NAME, "%.480s.weight", tree->modules[module].path);
    memset(view, 0, sizeof *view);
    view->struct_size = (uint32_t)sizeof *view;
    view->name = tree->parameter_names[row];
    view->numel = numel;
    view->module = module;
    view->dtype = draw(p, 5) == 0 ? WEFT_BF16 : draw(p, 9) == 0 ? WEFT_F16 : WEFT_F32;
    view->trainable = draw(p, 4) != 0;
    tree->modules[module].own_parameters += numel;
    for (int32_t m = module; m >= 0; m = tree->modules[m].parent) {
        tree->modules[m].parameters += numel;
        tree->modules[m].trainable += view->trainable != 0 ? numel : 0;
    }
}

/* Adds a weight object: a module of its own below the module that declares it. */
static void add_weight(pen *p, int32_t parent, const char *name, const char *class_name) {
    add_parameter(p, add_module(p, parent, name, class_name, 0), 1 + draw(p, draw(p, 3) == 0 ? 70000 : 900));
}

static void add_block(pen *p, int32_t parent, int64_t i) {
    char name[24];
    int32_t block, attention;
    (void)snprintf(name, sizeof name, "%lld", (long long)i);
    block = add_module(p, parent, name, "LlamaDecoderLayer", 1);
    attention = add_module(p, block, "attention", "LlamaAttention", 0);
    add_weight(p, attention, "q_proj", "Linear");
    if (draw(p, 2) == 0) add_weight(p, attention, "k_proj", "Linear");
    add_weight(p, block, "norm", "LlamaRMSNorm");
    if (draw(p, 3) != 0) add_weight(p, add_module(p, block, "mlp", "LlamaMLP", 0), "up_proj", "Linear");
    if (draw(p, 6) == 0) (void)add_module(p, block, "dropout", "Dropout", 0);
}

static int64_t blocks_of(pen *p) {
    switch (p->number) {
    case 1: return 0;
    case 2: return 1;
    case MANY: return 128;
    case LONG: return 1000;
    default: return 1 + draw(p, p->number < DRAWN ? 12 : 40);
    }
}

/* Adds modules around the model, which make paths long. Returns the innermost one. */
static int32_t around(pen *p, int32_t root) {
    int32_t at = root;
    for (int i = 0; i < 6 && p->number == LONG; i++)
        at = add_module(p, at, "language_model_of_a_model_for_conditional_generation_of_text", "Wrapper", 0);
    return at;
}

static void clear(weft_tree *out) {
    memset(&out->job, 0, sizeof out->job);
    out->job.struct_size = (uint32_t)sizeof out->job;
    out->job.module_stride = (uint32_t)sizeof out->modules[0];
    out->job.parameter_stride = (uint32_t)sizeof out->parameters[0];
    out->job.modules = out->modules;
    out->job.parameters = out->parameters;
}

/* Draws tree `number`. 0 has only a root, 1 has no blocks, 2 is a single block, and others up to 23 have up to 12
 * blocks. Tree 24 has 128 blocks, 25 has 1,000 under paths of about 400 bytes, and 26 uses GPT-2's module names. Some
 * parameters are frozen or packed, and some modules have no parameters. downwards: the same tree with names in reverse
 * memory order. */
static void weft_tree_draw(weft_tree *out, uint32_t number, bool downwards) {
    pen p = {out, 0, number, downwards};
    const bool elsewhere = number == ELSEWHERE;
    const int64_t blocks = blocks_of(&p);
    int32_t root, model;
    clear(out);
    root = add_module(&p, -1, number == 0 ? "model" : "", "LlamaForCausalLM", 0);
    if (number == 0) {
        add_parameter(&p, root, 77);
        return;
    }
    model = add_module(&p, around(&p, root), elsewhere ? "transformer" : "model", "LlamaModel", 0);
    add_weight(&p, model, elsewhere ? "wte" : "embed_tokens", "Embedding");
    if (blocks > 0) {
        const int32_t list = add_module(&p, model, elsewhere ? "h" : "layers", "ModuleList", 0);
        for (int64_t i = 0; i < blocks; i++) add_block(&p, list, i);
    }
    add_weight(&p, model, elsewhere ? "ln_f" : "norm", "LlamaRMSNorm");
    if (draw(&p, 2) == 0) add_weight(&p, root, "lm_head", "Linear");
}

/* The units that a policy made for a tree. */
struct weft_wrap_ctx {
    char names[WEFT_TREE_PARAMETERS][2 * WEFT_TREE_NAME]; /* of units, in order of creation */
    int32_t n_units, unit_of[WEFT_TREE_PARAMETERS];
    bool claimed[WEFT_TREE_PARAMETERS];
    const weft_policy_job *job;
    char wrong[1024]; /* first error */
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
        keep_mistake(a, "it creates a unit called '%s'", name == NULL ? "(nothing)" : name);
    else if (a->n_units == WEFT_TREE_PARAMETERS) keep_mistake(a, "it creates more units than there are parameters");
    if (a->wrong[0] != '\0') return 0;
    for (int32_t u = 0; u < a->n_units; u++)
        if (strcmp(a->names[u], name) == 0) keep_mistake(a, "it creates two units with the name %s", name);
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
        keep_mistake(a, "it claims %s more than once", weft_policy_parameter(a->job, (uint32_t)parameter)->name);
    else put(a, unit, (uint32_t)parameter);
}

static bool is_below(const weft_policy_job *job, int32_t module, int32_t ancestor) {
    while (module > ancestor) module = weft_policy_module(job, (uint32_t)module)->parent; /* parents precede children */
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
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "units fails without an error message");
    return status;
}

static weft_status judge(const answer *a, uint32_t number, weft_error *err) {
    if (a->wrong[0] != '\0') return WEFT_BROKEN(err, "on tree %u %s", number, a->wrong);
    for (uint32_t i = 0; i < a->job->n_parameters; i++)
        if (!a->claimed[i])
            return WEFT_BROKEN(err,
                               "on tree %u it leaves out %s: end with claim_rest for WEFT_UNIT_ROOT, which claims all "
                               "remaining parameters",
                               number, weft_policy_parameter(a->job, i)->name);
    return WEFT_OK;
}

static bool is_same(const answer *a, const answer *b) {
    if (a->n_units != b->n_units || memcmp(a->unit_of, b->unit_of, sizeof a->unit_of) != 0) return false;
    for (int32_t u = 0; u < a->n_units; u++)
        if (strcmp(a->names[u], b->names[u]) != 0) return false;
    return true;
}

/* Buffers: a tree, its copy at other addresses, and two results. */
typedef struct desk {
    weft_tree tree, other;
    answer one, two;
} desk;

typedef weft_status (*on_tree)(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err);

enum { ONE_TREE_IN = 2 }; /* minimum share of accepted trees */

/* Runs a test for each tree. Skips trees that the policy rejects with a message. */
static weft_status each_tree(weft_plugin_under_test *tested, on_tree holds, weft_error *err) {
    desk *d = weft_alloc(1, sizeof *d);
    weft_tried tried = {0};
    weft_status status = WEFT_OK;
    for (uint32_t number = 0; number < WEFT_TREES && status == WEFT_OK; number++) {
        weft_tree_draw(&d->tree, number, false);
        weft_plugin_under_test_asks("tree %u of %u modules", number, d->tree.job.n_modules);
        status = holds(d, tested, number, err);
        tried.tried += status == WEFT_OK;
        if (status != WEFT_E_USER && status != WEFT_E_UNSUPPORTED) continue; /* these two codes are rejections */
        weft_tried_refused(&tried, weft_plugin_under_test_asked(), err);
        err->text[0] = '\0';
        status = WEFT_OK;
    }
    free(d);
    return status == WEFT_OK ? weft_tried_check(&tried, tested, "trees", ONE_TREE_IN, err) : status;
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
        return WEFT_BROKEN(err, "on tree %u it creates %d units, and on a second call %d or different ones", number,
                           d->one.n_units, d->two.n_units);
    return status;
}

/* ---- independence from instances with other keys ---- */

static weft_status query_keyed(weft_answer *to, void *made, weft_error *err) {
    const weft_keyed *self = made;
    desk *d = weft_alloc(1, sizeof *d);
    weft_status status = WEFT_OK;
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
        if (status == WEFT_E_USER || status == WEFT_E_UNSUPPORTED) status = WEFT_OK; /* the policy rejects the tree */
    }
    free(d);
    return status;
}

static const weft_answers answers = {sizeof(weft_keyed), weft_keyed_open, weft_keyed_close, query_keyed};

/* ---- lists of names ---- */

#define NOBODY "no_such_module_of_any_model"

enum { LISTED_TREES = 6 }; /* number of trees with blocks to test */

/* Runs trees until one is rejected. */
static weft_status must_refuse(const weft_plugin_under_test *tested, const char *key, weft_error *err) {
    desk *d = weft_alloc(1, sizeof *d);
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    for (uint32_t number = 2; number < LISTED_TREES && status == WEFT_OK; number++) {
        weft_tree_draw(&d->tree, number, false);
        status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, &said);
    }
    free(d);
    if (status == WEFT_OK)
        return WEFT_BROKEN(err,
                           "with %s = %s it ignores the name. Fix: reject a name that the model does not have, with a "
                           "list of the valid names",
                           key, NOBODY);
    if (strstr(said.text, NOBODY) == NULL)
        return WEFT_BROKEN(err, "with %s = %s its error message does not contain the name: %s", key, NOBODY, said.text);
    return WEFT_OK;
}

/* Checks that unknown names are rejected, by the keys or by the policy. */
static weft_status follows_list(const weft_plugin_under_test *tested, const char *key, weft_error *err) {
    weft_plugin_under_test_other other = {0};
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = weft_plugin_under_test_open_word(&other, tested, key, NOBODY, &said);
    weft_plugin_under_test_asks("%s = %s", key, NOBODY);
    if (status == WEFT_OK) status = must_refuse(&other.tested, key, err);
    else status = WEFT_OK;
    weft_plugin_under_test_close_other(&other);
    return status;
}

/* Checks each key that is a list of names, but not a list of paths. */
static weft_status rule_lists(weft_plugin_under_test *tested, weft_error *err) {
    const weft_key *key = NULL;
    weft_status status = WEFT_OK;
    for (uint64_t i = 0; status == WEFT_OK && (key = weft_plugin_under_test_key_at(tested, i)) != NULL; i++)
        if (key->type == WEFT_KEY_LIST && (key->flags & (WEFT_REMOVED | WEFT_PATHS)) == 0)
            status = follows_list(tested, key->name, err);
    return status;
}

static weft_status answers_later(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err) {
    weft_status status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, err);
    if (status != WEFT_OK) return status;
    status = ask(&d->two, weft_newer_abi(tested), &d->tree.job, WEFT_POISON_ONE, err);
    status = weft_newer_abi_check(status, status == WEFT_OK && is_same(&d->one, &d->two), "units", err);
    return status == WEFT_OK ? status : weft_error_prefix(err, "on tree %u ", number);
}

static weft_status releases_memory(desk *d, const weft_plugin_under_test *tested, uint32_t number, weft_error *err) {
    const weft_status status = ask(&d->one, tested, &d->tree.job, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && weft_plugin_under_test_pieces() != 0)
        return WEFT_BROKEN(err, "on tree %u it does not release %lld allocations of host->alloc", number,
                           (long long)weft_plugin_under_test_pieces());
    return status;
}

static weft_status rule_alike(weft_plugin_under_test *tested, weft_error *err) {
    const weft_status status = weft_other_keys(tested, &answers, err);
    return status == WEFT_OK ? each_tree(tested, answers_alike, err) : status;
}

WEFT_RULE_BY(rule_claims, each_tree, claims_once)
WEFT_RULE_BY(rule_later, each_tree, answers_later)
WEFT_RULE_BY(create_and_destroy, each_tree, releases_memory)
WEFT_RULE_BY(rule_memory, weft_plugin_under_test_releases, create_and_destroy)

const weft_rule weft_rules_policy[] = {{"R40", "claims each parameter of a tree once", rule_claims, false},
                                       {"R41", "creates the same units on each call", rule_alike, false},
                                       {"R42", "creates the same units with a host that has longer structs", rule_later,
                                        false},
                                       {"R43", "frees its memory", rule_memory, false},
                                       {"R44", "rejects a listed name that the model does not have", rule_lists, false},
                                       {NULL, NULL, NULL, false}};
