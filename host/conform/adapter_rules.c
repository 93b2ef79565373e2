/* host/conform/adapter_rules.c: what an adapter has to keep to, on the small model; and what its files mean, tried by
 * this program's own commands. */
#include "conform/own_command.h"
#include "conform/rule.h"

#include "adapter/attach.h"
#include "conform/later.h"
#include "plugin/services.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The model that adapters are tried on is this project's own, with its keys as they are by default. */
static weft_status declare_model(weft_declared **out, const weft_subject *subject, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_subject model;
    weft_status status = weft_subject_open_own(&model, "model", "llama", err);
    if (status == WEFT_OK) status = weft_path_join(path, subject->options->directory, "config.json", err);
    if (status == WEFT_OK)
        status = weft_declared_create(out, weft_services(), weft_subject_table(&model, model), model.config, path, err);
    weft_subject_close(&model);
    return status;
}

static weft_status attach(weft_declared **out, const weft_subject *subject, uint8_t poison, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = NULL;
    status = declare_model(out, subject, err);
    if (status == WEFT_OK)
        status = weft_adapter_attach(*out, weft_subject_host(poison), weft_subject_table(subject, adapter),
                                     subject->config, NULL, err);
    return status;
}

/* ---- before it computes ---- */

static bool same_parameter(const weft_parameter *a, const weft_parameter *b) {
    return strcmp(a->name, b->name) == 0 && a->rank == b->rank && a->dims[0] == b->dims[0] &&
           a->dims[1] == b->dims[1] && a->frozen == b->frozen && a->init_form == b->init_form &&
           a->init_std == b->init_std && a->module == b->module;
}

static bool same_claims(const weft_declared *a, const weft_declared *b) {
    bool is_same = a->n_parameters == b->n_parameters;
    for (int32_t i = 0; i < a->n_parameters && is_same; i++)
        is_same = same_parameter(&a->parameters[i], &b->parameters[i]);
    for (int32_t i = 0; i < a->n_sites && is_same; i++) is_same = a->sites[i].claimed == b->sites[i].claimed;
    return is_same;
}

static weft_status compare(const weft_declared *a, const weft_declared *b, weft_error *err) {
    if (a->n_parameters != b->n_parameters)
        return WEFT_BROKEN(err, "a second instance adds %d parameters, and the first one %d", (int)b->n_parameters,
                           (int)a->n_parameters);
    for (int32_t i = 0; i < a->n_parameters; i++)
        if (!same_parameter(&a->parameters[i], &b->parameters[i]))
            return WEFT_BROKEN(err, "a second instance declares %s otherwise than the first one",
                               a->parameters[i].name);
    for (int32_t i = 0; i < a->n_sites; i++)
        if (a->sites[i].claimed != b->sites[i].claimed)
            return WEFT_BROKEN(err, "one of two instances claims %s", a->sites[i].view.path);
    return WEFT_OK;
}

static weft_status declares_alike(weft_subject *subject, weft_error *err) {
    weft_declared *one = NULL, *two = NULL;
    weft_status status = attach(&one, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = attach(&two, subject, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = compare(one, two, err);
    weft_declared_destroy(one);
    weft_declared_destroy(two);
    return status;
}

static weft_status declares_later(weft_subject *subject, weft_error *err) {
    const weft_subject *later = weft_later(subject);
    weft_declared *one = NULL, *two = NULL;
    weft_status status = later == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter")
                                       : attach(&one, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && later != NULL) {
        status = attach(&two, later, WEFT_POISON_ONE, err);
        status = weft_later_judge(status, status == WEFT_OK && same_claims(one, two), "weights or claims", err);
    }
    weft_declared_destroy(one);
    weft_declared_destroy(two);
    return status;
}

static weft_status come_and_go(weft_subject *subject, weft_error *err) {
    weft_declared *made = NULL;
    const weft_status status = attach(&made, subject, WEFT_POISON_ONE, err);
    weft_declared_destroy(made);
    return status;
}

static weft_status gives_back(weft_subject *subject, weft_error *err) {
    return weft_subject_gives_back(subject, come_and_go, err);
}

/* ---- its files ---- */

/* A run that learns enough to be told from its base. */
static weft_status learn(const weft_subject *subject, const char *ini, weft_error *err) {
    const char *const words[] = {"train", ini, "run.out=learnt", "train.steps=4", "optimizer.lr=0.02", NULL};
    return weft_own_command(subject, words, true, err);
}

static weft_status reads_what_it_saved(weft_subject *subject, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    weft_status status = weft_own_ini(ini, subject, err);
    const char *const still[] = {"train",         ini, "run.out=read", "adapter.from=learnt/model", "optimizer.lr=0",
                                 "train.steps=1", NULL};
    if (status == WEFT_OK) status = learn(subject, ini, err);
    if (status == WEFT_OK) status = weft_own_command(subject, still, true, err);
    if (status == WEFT_OK &&
        !weft_same_files("learnt/model/adapter_model.safetensors", "read/model/adapter_model.safetensors"))
        status = WEFT_BROKEN(err, "an adapter that is read and saved again is another one");
    return status;
}

/* The file under the name that its id is found by. */
static weft_status be_found(const weft_subject *subject, weft_error *err) {
    char link[WEFT_PATH_BYTES];
    (void)snprintf(link, sizeof link, "found/weft-adapter-%s.so", subject->options->id);
    if (mkdir("found", 0700) != 0 || symlink(subject->options->file, link) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be made", link);
    if (getcwd(link, sizeof link - 8) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    return setenv("WEFT_PLUGIN_PATH", strcat(link, "/found"), 1) == 0 ? WEFT_OK
                                                                      : weft_error_set(err, WEFT_E_MEMORY, "no memory");
}

static weft_status measure(double *loss, const weft_subject *subject, const char *const *words, bool chosen,
                           weft_error *err) {
    const weft_status status = weft_own_command(subject, words, chosen, err);
    *loss = weft_own_number("loss");
    return status == WEFT_OK && isnan(*loss) ? weft_error_set(err, WEFT_E_SYSTEM, "weft eval says no loss") : status;
}

/* Rounding alone parts the two: sums are added in another order. */
static weft_status merges_to_the_same(weft_subject *subject, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    double adapted = 0, merged = 0;
    weft_status status = weft_own_ini(ini, subject, err);
    const char *const merge[] = {"merge", "learnt/model", "learnt/model", "merged", NULL};
    const char *const both[] = {
        "eval", ini, "model.path=learnt/model", "model.start=weights", "adapter.from=learnt/model", "--json", NULL};
    const char *const one[] = {"eval", ini, "model.path=merged", "model.start=weights", "--json", NULL};
    if (weft_subject_table(subject, adapter)->merge == NULL)
        return WEFT_MOOT(subject, err, "it cannot be merged, and need not");
    if (status == WEFT_OK) status = be_found(subject, err);
    if (status == WEFT_OK) status = learn(subject, ini, err);
    if (status == WEFT_OK) status = weft_own_command(subject, merge, false, err);
    if (status == WEFT_OK) status = measure(&adapted, subject, both, true, err);
    if (status == WEFT_OK) status = measure(&merged, subject, one, false, err);
    if (status == WEFT_OK && fabs(adapted - merged) > 1e-5 * fabs(adapted))
        status = WEFT_BROKEN(err, "the merged model has loss %.7g, and base and adapter %.7g", merged, adapted);
    return status;
}

const weft_rule weft_rules_adapter[] = {
    {"R90", "adapter", "declares and claims the same whenever it is asked", declares_alike, false},
    {"R91", "adapter", "is read as it was saved", reads_what_it_saved, true},
    {"R92", "adapter", "merges into what base and adapter compute", merges_to_the_same, true},
    {"R93", "adapter", "gives its memory back", gives_back, false},
    {"R94", "adapter", "declares and claims the same in a host whose structs are longer", declares_later, false},
    {NULL, NULL, NULL, NULL, false}};
